"""Absent members: too long between two polls, or closed with REMAIN_IN_GROUP or LEAVE_GROUP."""

import contextlib

import pytest

from compat_tests.differential import Session
from compat_tests.groups.group import Group
from compat_tests.groups.settings import CLIENTS, Settings
from compat_tests.groups.workers import count_rebalances

MAX_POLL_MS = 1500
NEVER_MS = 60_000
GROUP_RESOURCE, SET = 32, 0
PROTOCOLS = ("classic", "consumer")


@pytest.mark.parametrize(("kind", "protocol"), CLIENTS)
def test_a_member_that_does_not_poll(group: Group, kind: str, protocol: str) -> None:
    """The live member leaves, and the other gets all partitions; when it polls again it joins again.

    (aiokafka sends heartbeats from the polling thread, so there the broker expires its session.)
    """
    key = "max_poll_interval_ms" if kind in ("kafka-python", "aiokafka") else "max.poll.interval.ms"
    settings = Settings(protocol, session_ms=MAX_POLL_MS)
    stays = group.join(kind, settings)
    busy = group.join(kind, settings, extra={key: MAX_POLL_MS})
    group.wait_until_shared()
    group.assert_read_exactly_once()
    owned, since = set(busy.assignment), len(busy.events)
    busy.worker.send("pause", busy.name)
    group.wait(lambda: len(stays.assignment) == len(group.ends), "the other to get all partitions")
    group.fill()
    group.wait_until_read()
    busy.worker.send("resume", busy.name)
    group.wait(
        lambda: busy.partitions_of("revoked", since) | busy.partitions_of("lost", since) >= owned, "its loss"
    )
    group.wait_until_shared()
    group.assert_read_exactly_once()


@pytest.fixture
def patient_group(group: Group) -> Group:
    """A group of either protocol whose members' sessions do not expire in a test."""
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
    """The group keeps the member and its partitions; a static one gets them back.

    (With the new protocol a dynamic member should remain, too. But the client of 4.3.1 leaves if a heartbeat is due
    while it closes.)
    """
    group = patient_group
    stays = group.join("java", Settings(protocol, session_ms=NEVER_MS))
    settings = Settings(protocol, session_ms=NEVER_MS, instance=instance)
    gone = group.join("java", settings)
    group.wait_until_shared()
    group.assert_read_exactly_once()
    owned, calls = set(gone.assignment), count_rebalances(stays)
    group.leave(gone, membership="REMAIN_IN_GROUP")
    assert group.member_count(protocol) == 2
    if instance:
        back = group.join("java", settings)
        group.wait_until_shared([stays, back])
        assert back.assignment == owned
        group.assert_read_exactly_once()
    assert count_rebalances(stays) == calls


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_that_leaves_for_good(patient_group: Group, protocol: str) -> None:
    """The other member gets all partitions before the session would expire."""
    group = patient_group
    stays = group.join("java", Settings(protocol, session_ms=NEVER_MS))
    gone = group.join("java", Settings(protocol, session_ms=NEVER_MS, instance="instance"))
    group.wait_until_shared()
    group.leave(gone, membership="LEAVE_GROUP")
    group.wait_until_shared([stays])
    assert group.member_count(protocol) == 1
    group.assert_read_exactly_once()
