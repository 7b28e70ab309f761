"""Single members of consumer groups: epochs, intervals, limits, lost responses, restarts."""

from __future__ import annotations

import contextlib

import pytest

from oncelog.coordinator.groups.consumer.describe import describe
from oncelog.coordinator.groups.consumer.states import ConsumerGroupState
from oncelog.coordinator.groups.modern.member import MemberState
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.consumer_group_heartbeat import TopicPartitions
from oncelog.wire.stored import groups as stored
from tests.harness.consumer_clients import (
    REBALANCE_MS,
    Consumer,
    durable,
    group_of,
    settle,
    target_of,
)
from tests.harness.group_shard import GroupShardHarness

NO_INTERVAL = {"group.consumer.assignment.interval.ms": "0"}
SESSION_MS = 45_000


def lab_with(partitions: int = 4, **settings: str) -> GroupShardHarness:
    harness = GroupShardHarness(
        NO_INTERVAL | {key.replace("_", "."): value for key, value in settings.items()}
    )
    harness.topics.create("t", partitions)
    return harness


def refused(code: ErrorCode, call: object, *arguments: object) -> str | None:
    """Check that ``call`` raises KafkaError with ``code``. Returns the error message."""
    assert callable(call)
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    assert caught.value.code is code
    return caught.value.message


def test_a_first_member_gets_everything_in_epoch_2() -> None:
    harness = lab_with()
    one = Consumer(harness, "one")
    response = one.join()
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 2, 5_000)
    assert one.owned == {(harness.topics.create("t", 4).topic_id, number) for number in range(4)}
    assert one.beat().assignment is None
    assert group_of(harness.shard).state is ConsumerGroupState.STABLE


def test_a_second_member_gets_its_share_after_the_first_has_revoked_it() -> None:
    harness = lab_with()
    one, two = Consumer(harness, "one"), Consumer(harness, "two")
    one.join()
    two.join()
    assert (two.epoch, two.owned) == (3, set())
    assert group_of(harness.shard).members["two"].state is MemberState.UNRELEASED_PARTITIONS
    one.beat()
    assert group_of(harness.shard).members["one"].state is MemberState.UNREVOKED_PARTITIONS
    assert group_of(harness.shard).state is ConsumerGroupState.RECONCILING
    assert two.beat().assignment is None
    one.acknowledge()
    assert one.epoch == 3
    two.beat()
    assert len(one.owned) == len(two.owned) == 2
    assert not one.owned & two.owned
    assert group_of(harness.shard).state is ConsumerGroupState.STABLE


def test_changes_within_the_assignment_interval_wait_for_its_end() -> None:
    harness = GroupShardHarness()
    harness.topics.create("t", 4)
    one, two = Consumer(harness, "one"), Consumer(harness, "two")
    one.join()
    two.join()
    assert (group_of(harness.shard).epoch, group_of(harness.shard).target_epoch) == (3, 2)
    assert group_of(harness.shard).state is ConsumerGroupState.ASSIGNING
    harness.advance(999)
    assert one.beat().member_epoch == 2
    assert group_of(harness.shard).target_epoch == 2
    harness.advance(1)
    one.beat()
    assert group_of(harness.shard).target_epoch == 3


def test_a_groups_own_settings() -> None:
    harness = lab_with()
    harness.overrides["g"] = {
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.session.timeout.ms": "60000",
        # The broker's limits changed after it was set.
        "consumer.assignment.interval.ms": "99999",
    }
    one = Consumer(harness, "one")
    assert one.join().heartbeat_interval_ms == 7_000
    harness.advance(59_999)
    one.beat()
    harness.advance(59_999)
    assert "one" in group_of(harness.shard).members
    harness.advance(1)
    assert not group_of(harness.shard).members
    one.join()
    Consumer(harness, "two").join()
    harness.advance(15_000)
    one.beat()
    assert group_of(harness.shard).target_epoch == group_of(harness.shard).epoch


def test_a_silent_member_is_fenced_and_its_partitions_go_to_others() -> None:
    harness = lab_with()
    one, two = Consumer(harness, "one"), Consumer(harness, "two")
    one.join()
    two.join()
    settle(harness, [one, two], rounds=3)
    for _ in range(12):
        harness.advance(5_000)
        two.acknowledge()
    assert len(two.owned) == 4
    refused(ErrorCode.UNKNOWN_MEMBER_ID, one.beat)


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    harness = lab_with()
    one, two = Consumer(harness, "one"), Consumer(harness, "two")
    one.join()
    two.join()
    one.beat()
    for _ in range(REBALANCE_MS // 10_000 - 1):
        harness.advance(10_000)
        one.beat()
        two.beat()
    assert "one" in group_of(harness.shard).members
    harness.advance(10_000)
    refused(ErrorCode.UNKNOWN_MEMBER_ID, one.beat)
    two.beat()
    assert len(two.owned) == 4


def test_a_revocation_ends_the_rebalance_timeout() -> None:
    harness = lab_with()
    one, two = Consumer(harness, "one"), Consumer(harness, "two")
    one.join()
    two.join()
    one.beat()
    one.acknowledge()
    for _ in range(20):
        harness.advance(10_000)
        one.beat()
        two.beat()
    assert set(group_of(harness.shard).members) == {"one", "two"}


def test_timeouts_start_anew_after_a_restart() -> None:
    harness = lab_with()
    one, two = Consumer(harness, "one"), Consumer(harness, "two")
    one.join()
    two.join()
    one.beat()
    harness.advance(40_000)
    before = durable(harness.shard)
    harness.restart()
    assert durable(harness.shard) == before
    harness.advance(44_000)
    one.beat()
    two.beat()
    harness.advance(REBALANCE_MS - 44_000 - 1)
    one.beat()
    assert "one" in group_of(harness.shard).members
    harness.advance(1)
    assert "one" not in group_of(harness.shard).members
    harness.advance(SESSION_MS)
    assert group_of(harness.shard).is_empty()
    assert not len(harness.deadlines)


def test_a_fence_that_cannot_be_stored_is_tried_again() -> None:
    harness = lab_with()
    one = Consumer(harness, "one")
    one.join()
    harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    with contextlib.suppress(KafkaError):  # the broker retries failed timers
        harness.advance(SESSION_MS)
    assert "one" in group_of(harness.shard).members
    harness.advance(500)
    assert not group_of(harness.shard).members


@pytest.mark.parametrize("step", ["join", "acknowledge", "leave"])
def test_a_step_that_cannot_be_stored_changes_nothing(step: str) -> None:
    harness = lab_with()
    one, two = Consumer(harness, "one"), Consumer(harness, "two")
    one.join()
    two.join()
    one.beat()
    who = Consumer(harness, "three") if step == "join" else one
    before, deadlines = durable(harness.shard), set(harness.deadlines._by_key)
    harness.log.failure = ErrorCode.KAFKA_STORAGE_ERROR
    refused(ErrorCode.KAFKA_STORAGE_ERROR, getattr(who, step))
    assert durable(harness.shard) == before
    assert set(harness.deadlines._by_key) == deadlines
    getattr(who, step)()
    assert durable(harness.shard) != before


def test_a_full_group() -> None:
    harness = lab_with(group_consumer_max_size="2")
    one, two, three = (Consumer(harness, name) for name in ("one", "two", "three"))
    one.join()
    two.join()
    refused(ErrorCode.GROUP_MAX_SIZE_REACHED, three.join)
    one.beat()
    one.join()
    two.leave()
    three.join()


def test_a_static_member_that_returns_to_a_full_group() -> None:
    harness = lab_with(group_consumer_max_size="1")
    one = Consumer(harness, "one", instance="i1")
    one.join()
    one.leave(-2)
    refused(ErrorCode.GROUP_MAX_SIZE_REACHED, Consumer(harness, "other", instance="i2").join)
    Consumer(harness, "again", instance="i1").join()
    assert list(group_of(harness.shard).members) == ["again"]


def test_changed_topics_are_noticed_at_the_next_heartbeat() -> None:
    harness = lab_with(partitions=2)
    one = Consumer(harness, "one", ["t", "later"])
    one.join()
    assert len(one.owned) == 2
    harness.topics.create("t", 3)
    harness.topics.create("later", 1)
    assert one.beat().assignment is None
    group_of(harness.shard).on_topics_changed(harness.shard, ["t", "later"])
    one.beat()
    assert len(one.owned) == 4
    epoch = one.epoch
    group_of(harness.shard).on_topics_changed(harness.shard, ["t"])
    one.beat()
    assert one.epoch == epoch, "nothing has changed for it"


def test_topics_are_checked_again_after_a_restart() -> None:
    harness = lab_with(partitions=2)
    one = Consumer(harness, "one")
    one.join()
    harness.topics.create("t", 3)
    harness.restart()
    one.beat()
    assert len(one.owned) == 3


def test_a_static_member_returns_to_its_assignment() -> None:
    harness = lab_with()
    one = Consumer(harness, "one", instance="i1")
    two = Consumer(harness, "two", instance="i2")
    one.join()
    two.join()
    settle(harness, [one, two], rounds=3)
    had = set(one.owned)
    epoch = group_of(harness.shard).epoch
    one.leave(-2)
    again = Consumer(harness, "again", instance="i1")
    again.join()
    assert again.owned == had
    assert group_of(harness.shard).epoch == epoch, "no rebalance"
    assert group_of(harness.shard).members["again"].assignment_epoch(min(had)[0], min(had)[1]) == 0
    refused(ErrorCode.FENCED_INSTANCE_ID, one.beat)


def test_a_static_member_that_does_not_return_is_fenced() -> None:
    harness = lab_with()
    one = Consumer(harness, "one", instance="i1")
    one.join()
    one.leave(-2)
    harness.advance(SESSION_MS)
    assert not group_of(harness.shard).members
    assert not group_of(harness.shard).static_members


def test_a_member_in_an_unknown_state_must_rejoin() -> None:
    harness = lab_with()
    one = Consumer(harness, "one")
    one.join()
    topic_id = harness.topics.create("t", 4).topic_id
    harness.shard.replay(
        stored.ConsumerGroupCurrentMemberAssignmentKey("g", "one"),
        stored.ConsumerGroupCurrentMemberAssignmentValue(
            2, 2, 9, [stored.TopicPartitions(topic_id, [0, 1], [2, 2])]
        ),
        99,
    )
    assert group_of(harness.shard).members["one"].state is MemberState.UNKNOWN
    refused(ErrorCode.FENCED_MEMBER_EPOCH, one.beat)
    refused(ErrorCode.FENCED_MEMBER_EPOCH, one.acknowledge)
    assert one.join().member_epoch == 2
    assert len(one.owned) == 4


def test_assignments_of_brokers_before_4_3_have_the_members_epoch() -> None:
    harness = lab_with()
    one = Consumer(harness, "one")
    one.join()
    topic_id = harness.topics.create("t", 4).topic_id
    for epochs in (None, [1]):
        harness.shard.replay(
            stored.ConsumerGroupCurrentMemberAssignmentKey("g", "one"),
            stored.ConsumerGroupCurrentMemberAssignmentValue(
                2, 2, 0, [stored.TopicPartitions(topic_id, [0, 1], epochs)]
            ),
            99,
        )
        assert group_of(harness.shard).members["one"].assigned == {topic_id: {0: 2, 1: 2}}


def test_subscription_metadata_of_brokers_before_4_1_is_deleted() -> None:
    harness = lab_with()
    one = Consumer(harness, "one")
    one.join()
    key = stored.ConsumerGroupPartitionMetadataKey("g")
    harness.shard.replay(key, stored.ConsumerGroupPartitionMetadataValue(), 99)
    group = group_of(harness.shard)
    group.on_topics_changed(harness.shard, ["t"])
    harness.topics.create("t", 5)
    one.beat()
    assert not group.has_subscription_metadata


def test_the_group_uses_the_assignor_that_most_ask_for() -> None:
    harness = lab_with(partitions=3)
    members = [
        Consumer(harness, name, assignor=assignor)
        for name, assignor in zip("abc", ("range", "uniform", "range"), strict=True)
    ]
    for member in members:
        member.join()
    assert describe(harness.shard, "g").whole().assignor_name == "range"
    assert [sorted(number for _, number in target_of(harness.shard, name)) for name in "abc"] == [
        [0],
        [1],
        [2],
    ]


def test_a_changed_assignor_of_the_group_rebalances_it() -> None:
    harness = lab_with(partitions=3)
    one, two = Consumer(harness, "a", assignor="range"), Consumer(harness, "b", assignor="range")
    one.join()
    two.join()
    settle(harness, [one, two], rounds=3)
    epoch = group_of(harness.shard).epoch
    two.beat(server_assignor="uniform")
    assert group_of(harness.shard).epoch == epoch + 1, "as many prefer one as the other"
    for member in (one, two, one, two):
        member.beat()
    assert group_of(harness.shard).epoch == epoch + 1, "nobody has changed anything"
    one.beat(server_assignor="uniform")
    assert group_of(harness.shard).epoch == epoch + 1


def test_the_default_assignor_is_the_first_that_is_configured() -> None:
    harness = lab_with(group_consumer_assignors="range")
    Consumer(harness, "one").join()
    assert describe(harness.shard, "g").whole().assignor_name == "range"
    message = refused(ErrorCode.UNSUPPORTED_ASSIGNOR, Consumer(harness, "two", assignor="uniform").join)
    assert message == "ServerAssignor uniform is not supported. Supported assignors: range."


def test_assignors_may_be_configured_by_kafkas_classes() -> None:
    harness = lab_with(
        group_consumer_assignors="org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform"
    )
    Consumer(harness, "one").join()
    assert describe(harness.shard, "g").whole().assignor_name == "range"
    Consumer(harness, "two", assignor="uniform").join()


def test_a_topic_that_is_deleted_leaves_the_description() -> None:
    harness = lab_with()
    one = Consumer(harness, "one")
    one.join()
    harness.topics.delete("t")
    (member,) = describe(harness.shard, "g").whole().members
    assert member.assignment.topic_partitions == member.target_assignment.topic_partitions == []


def test_partitions_to_revoke_are_described_as_the_members_own() -> None:
    harness = lab_with()
    one, two = Consumer(harness, "one"), Consumer(harness, "two")
    one.join()
    two.join()
    one.beat()
    rows = {member.member_id: member for member in describe(harness.shard, "g").whole().members}
    assert rows["one"].assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert rows["one"].target_assignment.topic_partitions[0].partitions == [0, 1]
    assert rows["two"].assignment.topic_partitions == []


def test_reported_partitions_that_a_member_cannot_own_are_ignored() -> None:
    harness = lab_with()
    one, two = Consumer(harness, "one"), Consumer(harness, "two")
    one.join()
    two.join()
    one.beat()
    topic_id = harness.topics.create("t", 4).topic_id
    one.beat(topic_partitions=[TopicPartitions(topic_id, [0, 1, 2])])
    assert group_of(harness.shard).members["one"].state is MemberState.UNREVOKED_PARTITIONS
    one.beat(topic_partitions=[TopicPartitions(b"x" * 16, [9]), TopicPartitions(topic_id, [77])])
    assert group_of(harness.shard).members["one"].state is MemberState.STABLE
