"""A group moves from the classic protocol to the new one and back while its members consume (KIP-848)."""

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
    """The first member of the new protocol upgrades the group; when the last one leaves it is downgraded."""
    old = [group.join(kind, classic), group.join(kind, classic)]
    group.wait_until_shared()
    group.assert_read_exactly_once()
    assert group.type_and_state() == ("classic", "stable")

    new = group.join(kind, CONSUMER)  # classic members continue in a group of the new protocol
    group.wait_until_shared([*old, new])
    assert group.type_and_state()[0] == "consumer"
    group.assert_read_exactly_once()

    group.leave(old[0])  # the members are replaced one at a time
    newer = group.join(kind, CONSUMER)
    group.wait_until_shared([old[1], new, newer])
    group.assert_read_exactly_once()
    group.leave(old[1])
    group.wait_until_shared([new, newer])
    assert group.type_and_state() == ("consumer", "stable")
    group.assert_read_exactly_once()

    group.leave(newer)  # and back
    again = group.join(kind, classic)
    group.wait_until_shared([new, again])
    assert group.type_and_state()[0] == "consumer"
    group.assert_read_exactly_once()
    group.leave(new)
    group.wait_until_shared([again])
    assert group.type_and_state() == ("classic", "stable")
    group.assert_read_exactly_once()
    group.assert_single_owners()


def test_an_empty_group_changes_its_protocol(group: Group) -> None:
    """The next member of an empty group determines its protocol; its offsets stay."""
    for settings in (CLASSIC, CONSUMER, CLASSIC):
        group.join("java", settings)
        group.wait_until_shared()
        assert group.type_and_state() == (settings.protocol, "stable")
        group.assert_read_exactly_once()
        group.leave()
        assert group.type_and_state() == (settings.protocol, "empty")
        assert group.committed() == group.ends


def test_a_conversion_that_would_lose_data(group: Group) -> None:
    """librdkafka's cooperative-sticky assignor puts user data into assignments: such a group stays classic."""
    for _ in range(2):
        group.join("confluent-kafka", COOPERATIVE)
        group.wait_until_shared()
    group.assert_read_exactly_once()
    group.wait_until_refused(group.join("confluent-kafka", CONSUMER), "The group id does not exist")
    assert group.type_and_state() == ("classic", "stable")
    group.assert_read_exactly_once()
