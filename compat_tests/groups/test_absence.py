"""Members that are away: too long between two polls, or ended with the word that they stay, or that they do not."""

import contextlib

import pytest

from compat_tests.differential import Session
from compat_tests.groups.group import Group
from compat_tests.groups.settings import KINDS, NEW_PROTOCOL_KINDS, Settings
from compat_tests.groups.test_static import rebalances

MAX_POLL_MS = 1500
NEVER_MS = 60_000
GROUP_RESOURCE, SET = 32, 0
WAYS = [
    *(pytest.param(kind, "classic", id=f"{kind}-classic") for kind in KINDS),
    *(pytest.param(kind, "consumer", id=f"{kind}-consumer") for kind in NEW_PROTOCOL_KINDS),
]
PROTOCOLS = ("classic", "consumer")


@pytest.mark.parametrize(("kind", "protocol"), WAYS)
def test_a_member_that_does_not_poll(group: Group, kind: str, protocol: str) -> None:
    """It goes although it is alive, the other takes all; when it polls again it learns that, and comes back.

    (aiokafka's heartbeats are of the same thread, so there it is the broker that ends its session.)
    """
    key = "max_poll_interval_ms" if kind in ("kafka-python", "aiokafka") else "max.poll.interval.ms"
    settings = Settings(protocol, session_ms=MAX_POLL_MS)
    stays = group.join(kind, settings)
    busy = group.join(kind, settings, extra={key: MAX_POLL_MS})
    group.wait_shared()
    group.read_exactly_once()
    owned, told = set(busy.assignment), len(busy.events)
    busy.worker.send("pause", busy.name)
    group.wait(lambda: len(stays.assignment) == len(group.ends), "the other to get all partitions")
    group.fill()
    group.wait_read()
    busy.worker.send("resume", busy.name)
    group.wait(
        lambda: busy.partitions_of("revoked", told) | busy.partitions_of("lost", told) >= owned, "its loss"
    )
    group.wait_shared()
    group.read_exactly_once()


@pytest.fixture
def patient_group(group: Group) -> Group:
    """No session of it ends in a test, whatever its protocol."""
    config = {"name": "consumer.session.timeout.ms", "value": str(NEVER_MS), "config_operation": SET}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group.group_id, "configs": [config]}
    with contextlib.closing(Session(group.bootstrap)) as session:
        response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
        assert response["responses"][0]["error_code"] == 0, response
    return group


@pytest.mark.parametrize(
    ("protocol", "instance"), [("classic", ""), ("classic", "instance"), ("consumer", "instance")]
)
def test_a_member_that_ends_and_remains(patient_group: Group, protocol: str, instance: str) -> None:
    """The group keeps it, and its partitions; a static one comes back to them.

    (Of the new protocol a dynamic member should remain, too. But 4.3.1's leaves with the heartbeat that comes due while
    it closes, if one does.)
    """
    group = patient_group
    stays = group.join("java", Settings(protocol, session_ms=NEVER_MS))
    settings = Settings(protocol, session_ms=NEVER_MS, instance=instance)
    gone = group.join("java", settings)
    group.wait_shared()
    group.read_exactly_once()
    owned, calls = set(gone.assignment), rebalances(stays)
    group.leave(gone, membership="REMAIN_IN_GROUP")
    assert group.member_count(protocol) == 2
    if instance:
        back = group.join("java", settings)
        group.wait_shared([stays, back])
        assert back.assignment == owned
        group.read_exactly_once()
    assert rebalances(stays) == calls


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_that_leaves_for_good(patient_group: Group, protocol: str) -> None:
    """Without waiting for its session the other has all."""
    group = patient_group
    stays = group.join("java", Settings(protocol, session_ms=NEVER_MS))
    gone = group.join("java", Settings(protocol, session_ms=NEVER_MS, instance="instance"))
    group.wait_shared()
    group.leave(gone, membership="LEAVE_GROUP")
    group.wait_shared([stays])
    assert group.member_count(protocol) == 1
    group.read_exactly_once()
