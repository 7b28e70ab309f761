"""Online migration, and classic members in consumer groups: policies, limits, timeouts."""

from __future__ import annotations

import pytest

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.join import join
from oncelog.coordinator.groups.consumer.group import ConsumerGroup
from oncelog.coordinator.groups.modern.requests import TOPIC_NAMES_MAX
from oncelog.coordinator.promise import Promise
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.harness.classic_consumers import REBALANCE_MS, SESSION_MS, ClassicConsumer, subscription
from tests.harness.consumer_clients import Consumer, durable, group_of
from tests.harness.group_shard import GroupShardHarness

SETTINGS = {"group.consumer.assignment.interval.ms": "0", "group.initial.rebalance.delay.ms": "0"}


def lab_with(**settings: str) -> GroupShardHarness:
    harness = GroupShardHarness(SETTINGS | {key.replace("_", "."): value for key, value in settings.items()})
    harness.topics.create("t", 4)
    return harness


def founded(harness: GroupShardHarness) -> ClassicConsumer:
    """A stable classic group of one member."""
    one = ClassicConsumer(harness, ["t"])
    for _ in range(4):
        one.act()
        harness.advance(0)
    one.act()
    assert len(one.owned) == 4
    assert isinstance(harness.shard.groups["g"], ClassicGroup)
    return one


def settle(harness: GroupShardHarness, *members: Consumer | ClassicConsumer, rounds: int = 8) -> None:
    for _ in range(rounds):
        for member in members:
            if isinstance(member, Consumer):
                member.acknowledge()
            else:
                member.act()
        harness.advance(1_000)


def test_upgrade_mixed_group_and_downgrade() -> None:
    harness = lab_with()
    old, new = founded(harness), Consumer(harness, "new")
    new.join()
    group = group_of(harness.shard)
    assert group.members[old.member_id].is_classic
    settle(harness, old, new)
    assert (len(old.owned), len(new.owned)) == (2, 2)
    assert not old.owned & new.owned
    assert durable(harness.reloaded()) == durable(harness.shard)
    new.leave()
    left = harness.shard.groups["g"]
    assert isinstance(left, ClassicGroup)
    assert left.state_name == "PreparingRebalance"
    settle(harness, old)
    assert len(old.owned) == 4
    assert left.state_name == "Stable"


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("DOWNGRADE", False, True),
        ("disabled", False, False),
    ],
)
def test_policies(policy: str, up: bool, down: bool) -> None:
    harness = lab_with(group_consumer_migration_policy=policy)
    founded(harness)
    new = Consumer(harness, "new")
    if up:
        new.join()
    else:
        with pytest.raises(KafkaError) as caught:
            new.join()
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert isinstance(harness.shard.groups["g"], ClassicGroup)
    harness = lab_with(group_consumer_migration_policy=policy)
    new = Consumer(harness, "new")
    new.join()
    old = ClassicConsumer(harness, ["t"])
    settle(harness, old, new)
    if policy == "disabled":
        assert set(old.codes) == {ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
        return
    new.leave()
    assert isinstance(harness.shard.groups["g"], ClassicGroup) is down


def test_a_group_that_would_be_too_large_is_not_converted() -> None:
    harness = lab_with(group_consumer_max_size="1", group_max_size="1")
    founded(harness)
    with pytest.raises(KafkaError) as caught:
        Consumer(harness, "new").join()
    assert caught.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    harness = lab_with(group_max_size="1")
    new = Consumer(harness, "new")
    new.join()
    classics = [ClassicConsumer(harness, ["t"]) for _ in range(2)]
    settle(harness, new, *classics)
    new.leave()
    assert isinstance(harness.shard.groups["g"], ConsumerGroup)
    settle(harness, *classics)
    assert sorted(len(old.owned) for old in classics) == [2, 2]


def test_a_group_in_its_first_rebalance() -> None:
    """Kafka returns UNKNOWN_SERVER_ERROR. Here waiting members must rejoin, and get their partitions."""
    harness = lab_with(group_initial_rebalance_delay_ms="3000")
    old = ClassicConsumer(harness, ["t"])
    old.act()
    old.act()
    new = Consumer(harness, "new")
    new.join()
    old.act()
    assert old.codes[-1] is ErrorCode.REBALANCE_IN_PROGRESS
    settle(harness, old, new)
    assert (len(old.owned), len(new.owned)) == (2, 2)


TOO_MANY = subscription([f"t{number}" for number in range(TOPIC_NAMES_MAX + 1)])


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\0\0\0\5", TOO_MANY], ids=range(4))
def test_members_with_malformed_metadata(metadata: bytes) -> None:
    harness = lab_with()
    protocols = [JoinGroupRequestProtocol("range", metadata)]
    request = JoinGroupRequest("g", SESSION_MS, REBALANCE_MS, "", "i1", "consumer", protocols)
    assert isinstance(join(harness.shard, request, harness.client(9)), Promise)
    with pytest.raises(KafkaError) as caught:
        Consumer(harness, "new").join()
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    harness = lab_with()
    Consumer(harness, "new").join()
    response = join(harness.shard, request, harness.client(9))
    assert not isinstance(response, Promise)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert set(group_of(harness.shard).members) == {"new"}


def test_a_classic_member_that_does_not_rejoin_is_removed() -> None:
    harness = lab_with()
    old, new = founded(harness), Consumer(harness, "new")
    new.join()
    member_id = old.member_id
    old.act()
    assert old.codes[-1] is ErrorCode.REBALANCE_IN_PROGRESS
    old._joined = True  # it continues as if it had got no response
    for _ in range(REBALANCE_MS // 10_000 - 1):
        harness.advance(10_000)
        old.act()
        old._joined = True
        new.beat()
    assert member_id in group_of(harness.shard).members
    harness.advance(10_000)
    assert member_id not in group_of(harness.shard).members
    new.beat()
    new.settle_down()
    assert len(new.owned) == 4


def test_a_classic_member_that_does_not_sync_is_removed() -> None:
    harness = lab_with()
    new = Consumer(harness, "new")
    new.join()
    protocols = [JoinGroupRequestProtocol("range", subscription(["t"]))]
    long_session = REBALANCE_MS * 2
    request = JoinGroupRequest("g", long_session, REBALANCE_MS, "", "i1", "consumer", protocols)
    response = join(harness.shard, request, harness.client(9))
    assert not isinstance(response, Promise)
    for _ in range(REBALANCE_MS // 10_000):
        assert response.member_id in group_of(harness.shard).members
        harness.advance(10_000)
        new.acknowledge()
    assert set(group_of(harness.shard).members) == {"new"}


def test_the_session_of_a_classic_member_is_its_own() -> None:
    harness = lab_with()
    old, new = founded(harness), Consumer(harness, "new")
    new.join()
    settle(harness, old, new)
    for _ in range(SESSION_MS // 5_000 + 1):
        harness.advance(5_000)
        new.acknowledge()
    assert set(group_of(harness.shard).members) == {"new"}
    assert not [key for key in harness.deadlines._by_key if old.member_id in str(key)]
