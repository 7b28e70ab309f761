"""Static membership: who comes back under its group.instance.id causes no rebalance; two cannot hold one."""

from collections.abc import Mapping

import pytest

from compat_tests.groups.group import Group
from compat_tests.groups.settings import KINDS, NEW_PROTOCOL_KINDS, Settings
from compat_tests.groups.workers import Member, Worker

WAYS = [
    *(pytest.param(kind, "classic", id=f"{kind}-classic") for kind in KINDS),
    *(pytest.param(kind, "consumer", id=f"{kind}-consumer") for kind in NEW_PROTOCOL_KINDS),
]
# What becomes of the second holder of an instance. aiokafka heartbeats without its instance id: Kafka does not know the
# member then, it joins anew, and the two take the place from each other for ever.
REFUSED = [
    ("confluent-kafka", "classic", "Static consumer fenced"),
    ("kafka-python", "classic", "FencedInstanceIdError"),  # as soon as it commits
    ("java", "classic", "FencedInstanceIdException"),
    ("confluent-kafka", "consumer", "The instance ID is still used"),
    ("java", "consumer", "UnreleasedInstanceIdException"),
]


def settings(protocol: str, instance: str) -> Settings:
    """With the classic protocol a session so long that none ends in a test."""
    return Settings(protocol, session_ms=60_000, instance=instance)


def generation(member: Member) -> int:
    """The generation, or member epoch, that a Java member is in."""
    return int(member.worker.ask(member, "where")["generation"])


def rebalances(member: Member) -> int:
    return member.count("assigned") + member.count("revoked") + member.count("lost")


@pytest.mark.parametrize(("kind", "protocol"), WAYS)
def test_a_restart_is_no_rebalance(group: Group, kind: str, protocol: str) -> None:
    """Each of two members, the leader and the other, ends and comes back; who stayed notices nothing."""
    members = [group.join(kind, settings(protocol, f"instance-{number}")) for number in range(2)]
    group.wait_shared()
    group.read_exactly_once()
    for number in range(2):
        gone, stayed = members[number], members[1 - number]
        owned, calls = set(gone.assignment), rebalances(stayed)
        group.leave(gone)
        members[number] = back = group.join(kind, settings(protocol, f"instance-{number}"))
        group.wait_shared(members)
        assert back.assignment == owned
        group.read_exactly_once()
        assert rebalances(stayed) == calls


@pytest.mark.parametrize(("kind", "protocol", "error"), REFUSED)
def test_two_holders_of_an_instance(group: Group, kind: str, protocol: str, error: str) -> None:
    """Classic: the later one gets the place, and the earlier one is fenced. New protocol: the later one is refused."""
    earlier = group.join(kind, settings(protocol, "the-one"))
    other = group.join(kind, settings(protocol, "other"))
    group.wait_shared()
    owned, calls = set(earlier.assignment), rebalances(other)
    later = group.join(kind, settings(protocol, "the-one"))
    loser, holder = (earlier, later) if protocol == "classic" else (later, earlier)
    group.wait(lambda: holder.assignment == owned, "the instance's partitions")
    group.fill()
    group.wait_refused(loser, error)
    group.wait_read()
    assert group.is_shared([holder, other])
    assert holder.assignment == owned
    assert rebalances(other) == calls


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_removal_by_instance(group: Group, workers: Mapping[str, Worker], protocol: str) -> None:
    """An admin removes an instance that is away; its partitions pass on without waiting for its session."""
    stays = group.join("java", settings(protocol, "stays"))
    leaves = group.join("java", settings(protocol, "leaves"))
    group.wait_shared()
    before = generation(stays)
    group.leave(leaves)
    response = workers["java"].response(
        "remove", bootstrap=group.bootstrap, group=group.group_id, instances=["leaves"]
    )
    assert response["error"] == ""
    group.wait_shared([stays])
    assert generation(stays) > before
    group.read_exactly_once()
    response = workers["java"].response(
        "remove", bootstrap=group.bootstrap, group=group.group_id, instances=["leaves"]
    )
    assert response["error"] == "UnknownMemberIdException"
