"""One group goes over from the classic protocol to the new one while its members work, and back (KIP-848)."""

import pytest

from compat_tests.groups.group import Group
from compat_tests.groups.settings import Settings

CLASSIC = Settings("classic", assignors=("range",))
COOPERATIVE = Settings("classic", assignors=("cooperative-sticky",))
CONSUMER = Settings("consumer")


WAYS = [
    pytest.param("java", CLASSIC, id="java-eager"),
    pytest.param("java", COOPERATIVE, id="java-cooperative"),
    pytest.param("confluent-kafka", CLASSIC, id="confluent-kafka-eager"),
]


@pytest.mark.parametrize(("kind", "classic"), WAYS)
def test_there_and_back(group: Group, kind: str, classic: Settings) -> None:
    """The first member of the new protocol converts the group, the last one's end converts it back."""
    old = [group.join(kind, classic), group.join(kind, classic)]
    group.wait_shared()
    group.read_exactly_once()
    assert group.listed() == ("classic", "stable")

    new = group.join(kind, CONSUMER)  # classic members go on in a group of the new protocol
    group.wait_shared([*old, new])
    assert group.listed()[0] == "consumer"
    group.read_exactly_once()

    group.leave(old[0])  # rolled over, one at a time
    newer = group.join(kind, CONSUMER)
    group.wait_shared([old[1], new, newer])
    group.read_exactly_once()
    group.leave(old[1])
    group.wait_shared([new, newer])
    assert group.listed() == ("consumer", "stable")
    group.read_exactly_once()

    group.leave(newer)  # and back
    again = group.join(kind, classic)
    group.wait_shared([new, again])
    assert group.listed()[0] == "consumer"
    group.read_exactly_once()
    group.leave(new)
    group.wait_shared([again])
    assert group.listed() == ("classic", "stable")
    group.read_exactly_once()
    group.check_handovers()


def test_an_empty_group_changes_its_protocol(group: Group) -> None:
    """Without members a group is of the kind that its next member speaks; its offsets stay."""
    for settings in (CLASSIC, CONSUMER, CLASSIC):
        group.join("java", settings)
        group.wait_shared()
        assert group.listed() == (settings.protocol, "stable")
        group.read_exactly_once()
        group.leave()
        assert group.listed() == (settings.protocol, "empty")
        assert group.committed() == group.ends


def test_a_conversion_that_would_lose_data(group: Group) -> None:
    """librdkafka's cooperative-sticky assignor sends data of its own with an assignment: such a group stays classic."""
    for _ in range(2):
        group.join("confluent-kafka", COOPERATIVE)
        group.wait_shared()
    group.read_exactly_once()
    group.wait_refused(group.join("confluent-kafka", CONSUMER), "The group id does not exist")
    assert group.listed() == ("classic", "stable")
    group.read_exactly_once()
