"""Directories of replicas: those that fail, and where a broker says that its replicas are."""

from __future__ import annotations

import pytest

from oncelog.broker.metadata.replica_directories import LOST
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from oncelog.wire.schema import Uuid
from tests.controller.decided_cluster import DecidedCluster, directory_id

NOBODY = -1


@pytest.fixture
def cluster() -> DecidedCluster:
    """Two brokers with two directories each; the replicas are in the first ones."""
    cluster = DecidedCluster()
    for broker_id in (1, 2):
        cluster.register(broker_id, log_dirs=[directory_id(broker_id), directory_id(broker_id, 1)])
        cluster.beat(broker_id)
    cluster.topic("t", [1, 2], [1])
    return cluster


def assign(cluster: DecidedCluster, broker_id: int, directory: Uuid, index: int, name: str = "t") -> int:
    """Let a broker say where its replica of a partition is; the error code of the row."""
    topic_id = cluster.image.topics[name].topic_id if name in cluster.image.topics else bytes(16)
    row = DirectoryData(directory, [TopicData(topic_id, [PartitionData(index)])])
    epoch = cluster.image.brokers[broker_id].broker_epoch
    outcome = cluster.assign_directories(AssignReplicasToDirsRequest(broker_id, epoch, [row]))
    assert outcome.response is not None, outcome
    [told] = AssignReplicasToDirsResponse.decode(outcome.response, 0).directories
    assert told.id == directory
    return told.topics[0].partitions[0].error_code


def state(cluster: DecidedCluster, index: int = 0) -> tuple[int, list[int], list[int]]:
    """The partition's leader, ISR and ELR."""
    found = cluster.partition("t", index)
    return found.leader, found.isr, found.eligible_leader_replicas


def test_partitions_leave_a_directory_that_fails(cluster: DecidedCluster) -> None:
    cluster.beat(1, offline=[directory_id(1, 1), directory_id(7)])
    assert state(cluster) == (1, [1, 2], [])
    cluster.register(1, incarnation=1, log_dirs=[directory_id(1), directory_id(1, 1)])
    cluster.beat(1, offline=[directory_id(1)])
    assert state(cluster) == (2, [2], [])
    assert cluster.image.brokers[1].log_dirs == [directory_id(1, 1)]
    assert not cluster.beat(1, offline=[directory_id(1)]).records


def test_a_replica_that_is_somewhere_else_goes_on(cluster: DecidedCluster) -> None:
    assert assign(cluster, 1, directory_id(1, 1), 0) == 0
    assert cluster.partition().directories == [directory_id(1, 1), directory_id(2)]
    assert state(cluster) == (1, [1, 2], [])
    assert cluster.partition().leader_epoch == 0


def test_a_broker_gives_up_one_log_and_takes_it_again(cluster: DecidedCluster) -> None:
    for index in (0, 1):
        assert assign(cluster, 1, LOST, index) == 0
    assert state(cluster) == (2, [2], [])
    assert state(cluster, 1) == (NOBODY, [], [1])
    cluster.beat(1)
    assert state(cluster, 1) == (NOBODY, [], [1])
    assert assign(cluster, 1, directory_id(1), 1) == 0
    cluster.beat(1, fence=True)
    cluster.beat(1)
    assert state(cluster, 1) == (1, [1], [])


def test_where_a_broker_has_no_replica(cluster: DecidedCluster) -> None:
    here = directory_id(2)
    assert assign(cluster, 2, here, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(cluster, 2, here, 2) == assign(cluster, 2, here, -1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(cluster, 2, here, 0, "x") == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_broker_of_an_earlier_registration(cluster: DecidedCluster) -> None:
    error = cluster.assign_directories(AssignReplicasToDirsRequest(1, 77, [])).error
    assert error is not None
    assert error[0] == ErrorCode.STALE_BROKER_EPOCH
