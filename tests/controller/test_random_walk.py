"""Random walks: what holds of every partition, whatever happens to its brokers."""

from __future__ import annotations

import random
from copy import copy

import pytest

from oncelog.broker.metadata.configs import effective_topic_config
from oncelog.broker.metadata.image import NO_LEADER, Partition
from oncelog.wire.messages.alter_partition import AlterPartitionResponse
from tests.controller import walks
from tests.controller.decided_cluster import DecidedCluster, Outcome

WALKS = 10
STEPS = 300


@pytest.mark.parametrize("elr", [True, False], ids=["with ELR", "without ELR"])
@pytest.mark.parametrize("seed", range(WALKS))
def test_partitions_stay_what_they_may_be(seed: int, elr: bool) -> None:
    rng = random.Random(f"{seed} {elr}")
    cluster = walks.begun(rng, elr=elr)
    before = partitions(cluster)

    def watch(line: str, outcome: Outcome) -> None:
        for key, state in partitions(cluster).items():
            check(cluster, key[0], state, elr=elr, where=(*key, line))
            check_change(before[key], state, line)
            before[key] = state
        if line.startswith("alter_partition") and outcome.response is not None:
            check_granted(cluster, outcome.response, version=int(line.split()[1]))

    cluster.watch = watch
    for _ in range(STEPS):
        walks.step(cluster, rng)


def partitions(cluster: DecidedCluster) -> dict[tuple[str, int], Partition]:
    return {
        (name, index): copy(state)
        for name, topic in cluster.image.topics.items()
        for index, state in enumerate(topic.partitions)
    }


def check(cluster: DecidedCluster, name: str, state: Partition, *, elr: bool, where: object) -> None:
    """What holds of a partition at any time."""
    topic_config = effective_topic_config(cluster.image, cluster.config, name)
    serving = cluster.serving()
    assert state.leader in (NO_LEADER, *state.isr), where
    assert state.leader in (NO_LEADER, *serving), where
    assert set(state.isr) <= set(state.replicas), where
    assert len(set(state.replicas)) == len(state.replicas) == len(state.directories), where
    assert not set(state.isr) & set(state.eligible_leader_replicas), where
    assert len(state.isr) < topic_config.min_insync_replicas or not state.eligible_leader_replicas, where
    assert set(state.removing_replicas) <= set(state.replicas), where
    if elr:
        # Where a topic allows unclean leaders, a cancelled move leaves the first replica in the ISR, dead or alive.
        is_cancelled = state.leader == NO_LEADER and state.isr == state.replicas[:1]
        assert is_cancelled or set(state.isr) <= set(serving), where
        assert len(state.last_known_elr) <= (state.leader == NO_LEADER), where
    else:
        assert state.isr, where
        assert not state.eligible_leader_replicas, where
        assert not state.last_known_elr, where


def check_change(before: Partition, after: Partition, line: str) -> None:
    """What holds of a partition's changes."""
    assert after.leader_epoch >= before.leader_epoch, line
    assert after.partition_epoch - before.partition_epoch >= after.leader_epoch - before.leader_epoch, line
    if after.leader != before.leader or not set(before.replicas) <= set(after.replicas):
        assert after.leader_epoch > before.leader_epoch, line
    if line.startswith("alter_partition"):
        return  # who asked knows who is in sync
    if after.leader not in (NO_LEADER, *before.isr, *before.eligible_leader_replicas):
        assert after.leader_recovery_state, line


def check_granted(cluster: DecidedCluster, response: bytes, *, version: int) -> None:
    """What the leader is granted is what the partition is."""
    for topic in AlterPartitionResponse.decode(response, version).topics:
        for row in topic.partitions:
            if row.error_code == 0:
                state = cluster.image.topics_by_id[topic.topic_id].partitions[row.partition_index]
                granted = row.leader_id, row.leader_epoch, row.isr, row.partition_epoch
                assert granted == (state.leader, state.leader_epoch, state.isr, state.partition_epoch)
