"""AlterPartition: which ISRs a leader may have, and what it is told otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)
from tests.controller.decided_cluster import DecidedCluster

LEADER = 1


@pytest.fixture
def cluster() -> DecidedCluster:
    cluster = DecidedCluster()
    cluster.brokers(1, 2, 3)
    cluster.topic("t", [1, 2, 3], min_insync_replicas="2")
    return cluster


def asked(cluster: DecidedCluster, isr: list[int], *, version: int = 3, **changes: Any) -> PartitionResult:
    """What the leader is told; it knows the partition as it is, but for the ``changes``."""
    state = cluster.partition()
    brokers = cluster.image.brokers
    epochs = changes.pop("epochs", {})
    states = [
        BrokerState(one, epochs.get(one, brokers[one].broker_epoch if one in brokers else -1)) for one in isr
    ]
    topic_id = changes.pop("topic_id", cluster.image.topics["t"].topic_id)
    asks = changes.pop("asks", LEADER)
    row = PartitionData(
        changes.pop("index", 0),
        state.leader_epoch + changes.pop("leader_epoch", 0),
        isr if version < 3 else [],
        states if version >= 3 else [],
        partition_epoch=state.partition_epoch + changes.pop("partition_epoch", 0),
        **changes,
    )
    request = AlterPartitionRequest(asks, brokers[asks].broker_epoch, [TopicData(topic_id, [row])])
    outcome = cluster.alter_partition(request, version)
    assert outcome.response is not None, outcome
    [result] = AlterPartitionResponse.decode(outcome.response, version).topics[0].partitions
    assert result.error_code in (0, ErrorCode.NEW_LEADER_ELECTED) or not outcome.records
    return result


@pytest.mark.parametrize("version", [2, 3])
def test_an_isr_shrinks_and_grows_within_an_epoch(cluster: DecidedCluster, version: int) -> None:
    told = asked(cluster, [1, 3], version=version)
    assert (told.leader_id, told.leader_epoch, told.isr, told.partition_epoch) == (1, 0, [1, 3], 1)
    assert cluster.partition().isr == [1, 3]
    told = asked(cluster, [1, 3, 2], version=version)
    assert (told.leader_epoch, told.isr, told.partition_epoch) == (0, [1, 3, 2], 2)
    assert asked(cluster, [1, 3, 2], version=version).partition_epoch == 2, "as it is already"


@pytest.mark.parametrize(
    ("isr", "changes", "error"),
    [
        ([1, 2], {"topic_id": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1, 2], {"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"index": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 1, "leader_epoch": -1}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": -1, "partition_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 2], {"asks": 2}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2, 2], {}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"epochs": {2: 999}}, ErrorCode.INELIGIBLE_REPLICA),
        ([1, 2], {"epochs": {2: -1}}, ErrorCode.NONE),
    ],
)
def test_what_a_leader_is_told(
    cluster: DecidedCluster, isr: list[int], changes: dict[str, Any], error: ErrorCode
) -> None:
    assert asked(cluster, isr, **changes).error_code == error


def test_no_broker_comes_into_an_isr_that_does_not_serve(cluster: DecidedCluster) -> None:
    assert asked(cluster, [1]).error_code == 0
    cluster.topic("u", [3, 2])
    cluster.beat(2, fence=True)
    cluster.beat(3, shut_down=True)
    assert not cluster.image.brokers[3].fenced
    for isr in ([1, 2], [1, 3]):
        assert asked(cluster, isr).error_code == ErrorCode.INELIGIBLE_REPLICA
    cluster.beat(2)
    assert asked(cluster, [1, 2]).error_code == 0


def test_a_stale_broker_is_refused_as_a_whole(cluster: DecidedCluster) -> None:
    outcome = cluster.alter_partition(AlterPartitionRequest(1, 77, []))
    epoch = cluster.image.brokers[1].broker_epoch
    assert outcome.error == (
        ErrorCode.STALE_BROKER_EPOCH,
        f"Expected broker epoch {epoch}, but got broker epoch 77",
    )
    assert cluster.alter_partition(AlterPartitionRequest(9, 1, [])).error == (
        ErrorCode.STALE_BROKER_EPOCH,
        "No broker registration found for broker id 9",
    )


def test_the_end_of_a_reassignment_may_take_the_lead_from_who_asked(cluster: DecidedCluster) -> None:
    cluster.brokers(4)
    cluster.reassign("t", 0, [2, 3, 4])
    assert cluster.partition().replicas == [2, 3, 4, 1]
    assert asked(cluster, [1, 2, 3, 4]).error_code == ErrorCode.NEW_LEADER_ELECTED
    state = cluster.partition()
    assert (state.leader, state.leader_epoch, state.isr, state.replicas) == (2, 1, [2, 3, 4], [2, 3, 4])
