"""Reassignments: begun, changed, cancelled, ended; and why some are refused."""

from __future__ import annotations

import pytest

from oncelog.wire.errors import ErrorCode
from tests.controller.decided_cluster import UNCLEAN_ENABLE, DecidedCluster


@pytest.fixture
def cluster() -> DecidedCluster:
    """Four brokers; the partition is on 1 and 2, and moves to 3 and 4."""
    cluster = DecidedCluster()
    cluster.brokers(1, 2, 3, 4)
    cluster.topic("t", [1, 2])
    assert cluster.reassign("t", 0, [3, 4]).error is None
    return cluster


def assignment(cluster: DecidedCluster) -> tuple[list[int], list[int], list[int]]:
    state = cluster.partition()
    return state.replicas, state.adding_replicas, state.removing_replicas


def test_a_partition_moves_when_all_new_replicas_are_in_sync(cluster: DecidedCluster) -> None:
    assert assignment(cluster) == ([3, 4, 1, 2], [3, 4], [1, 2])
    assert cluster.reassignments() == {("t", 0): assignment(cluster)}
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 0)
    cluster.in_sync(1, 2, 3)
    assert assignment(cluster) == ([3, 4, 1, 2], [3, 4], [1, 2])
    cluster.in_sync(1, 2, 3, 4)
    assert assignment(cluster) == ([3, 4], [], [])
    state = cluster.partition()
    assert (state.leader, state.leader_epoch, state.isr) == (3, 1, [3, 4])
    assert cluster.reassignments() == {}


def test_a_reassignment_that_is_asked_for_again_changes_nothing(cluster: DecidedCluster) -> None:
    assert not cluster.reassign("t", 0, [3, 4]).records


def test_a_cancelled_reassignment_leaves_the_old_replicas(cluster: DecidedCluster) -> None:
    cluster.in_sync(1, 2, 3)
    cluster.reassign("t", 0, None)
    assert assignment(cluster) == ([1, 2], [], [])
    assert (cluster.partition().leader, cluster.partition().isr) == (1, [1, 2])
    assert cluster.partition().leader_epoch == 1, "replica 3 is refused from now on"
    assert cluster.reassign("t", 0, None).error == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")


def test_a_cancellation_that_loses_records_needs_a_topic_that_allows_it(cluster: DecidedCluster) -> None:
    cluster.in_sync(1, 3)
    cluster.beat(1, fence=True)
    assert (cluster.partition().leader, cluster.partition().isr) == (3, [3])
    assert cluster.reassign("t", 0, None).error == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Unable to revert partition assignment for t:0 because it would require an unclean leader election.",
    )
    cluster.set_config("t", UNCLEAN_ENABLE, "true")
    assert cluster.reassign("t", 0, None).error is None
    state = cluster.partition()
    assert (state.replicas, state.leader, state.isr, state.leader_recovery_state) == ([1, 2], 2, [2], 1)


def test_fewer_replicas_go_at_once(cluster: DecidedCluster) -> None:
    cluster.reassign("t", 0, None)
    cluster.reassign("t", 0, [2])
    assert assignment(cluster) == ([2], [], [])
    assert (cluster.partition().leader, cluster.partition().isr) == (2, [2])


@pytest.mark.parametrize(
    ("replicas", "error", "text"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list."),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once."),
        (
            [1, 9],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "includes broker 9, but no such broker is registered.",
        ),
    ],
)
def test_replicas_that_cannot_be(
    cluster: DecidedCluster, replicas: list[int], error: ErrorCode, text: str
) -> None:
    assert cluster.reassign("t", 0, replicas).error == (error, f"The manual partition assignment {text}")


def test_a_partition_that_does_not_exist(cluster: DecidedCluster) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.reassign("x", 0, [1]).error == (unknown, "Unable to find a topic named x.")
    for index in (-1, 1):
        assert cluster.reassign("t", index, [1]).error == (unknown, f"Unable to find partition t:{index}.")


def test_the_number_of_replicas_may_have_to_stay(cluster: DecidedCluster) -> None:
    refused = cluster.reassign("t", 0, [1, 2, 3], may_change_count=False)
    assert refused.error == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 2 to 3",
    )
    assert cluster.reassign("t", 0, [1, 3], may_change_count=False).error is None
