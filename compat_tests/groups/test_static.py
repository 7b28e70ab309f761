"""Static membership: a member that returns with its group.instance.id causes no rebalance; two cannot share one."""

from collections.abc import Mapping

import pytest

from compat_tests.groups.group import Group
from compat_tests.groups.settings import CLIENTS, static_settings
from compat_tests.groups.workers import Worker, count_rebalances

# The error of one of two members with the same instance id. There is none for aiokafka, which sends heartbeats without
# its instance id: Kafka does not know the member then, it joins again, and the two fence each other for ever.
REFUSED = [
    ("confluent-kafka", "classic", "Static consumer fenced"),
    ("kafka-python", "classic", "FencedInstanceIdError"),  # as soon as it commits
    ("java", "classic", "FencedInstanceIdException"),
    ("confluent-kafka", "consumer", "The instance ID is still used"),
    ("java", "consumer", "UnreleasedInstanceIdException"),
]


@pytest.mark.parametrize(("kind", "protocol"), CLIENTS)
def test_a_restart_causes_no_rebalance(group: Group, kind: str, protocol: str) -> None:
    """Each of two members, the leader and the other, is closed and returns; the other one has no rebalance."""
    members = [group.join(kind, static_settings(protocol, f"instance-{number}")) for number in range(2)]
    group.wait_until_shared()
    group.assert_read_exactly_once()
    for number in range(2):
        gone, stayed = members[number], members[1 - number]
        owned, calls = set(gone.assignment), count_rebalances(stayed)
        group.leave(gone)
        members[number] = back = group.join(kind, static_settings(protocol, f"instance-{number}"))
        group.wait_until_shared(members)
        assert back.assignment == owned
        group.assert_read_exactly_once()
        assert count_rebalances(stayed) == calls


@pytest.mark.parametrize(("kind", "protocol", "error"), REFUSED)
def test_two_holders_of_an_instance(group: Group, kind: str, protocol: str, error: str) -> None:
    """With the classic protocol the earlier member is fenced; with the new protocol the later one is refused."""
    earlier = group.join(kind, static_settings(protocol, "the-one"))
    other = group.join(kind, static_settings(protocol, "other"))
    group.wait_until_shared()
    owned, calls = set(earlier.assignment), count_rebalances(other)
    later = group.join(kind, static_settings(protocol, "the-one"))
    loser, holder = (earlier, later) if protocol == "classic" else (later, earlier)
    group.wait(lambda: holder.assignment == owned, "the instance's partitions")
    group.fill()
    group.wait_until_refused(loser, error)
    group.wait_until_read()
    assert group.is_shared([holder, other])
    assert holder.assignment == owned
    assert count_rebalances(other) == calls


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_removal_by_instance(group: Group, workers: Mapping[str, Worker], protocol: str) -> None:
    """An admin client removes an absent static member; its partitions are reassigned before its session expires."""
    stays = group.join("java", static_settings(protocol, "stays"))
    leaves = group.join("java", static_settings(protocol, "leaves"))
    group.wait_until_shared()
    before = stays.generation()
    group.leave(leaves)
    reply = workers["java"].call(
        "remove", bootstrap=group.bootstrap, group=group.group_id, instances=["leaves"]
    )
    assert reply["error"] == ""
    group.wait_until_shared([stays])
    assert stays.generation() > before
    group.assert_read_exactly_once()
    reply = workers["java"].call(
        "remove", bootstrap=group.bootstrap, group=group.group_id, instances=["leaves"]
    )
    assert reply["error"] == "UnknownMemberIdException"
