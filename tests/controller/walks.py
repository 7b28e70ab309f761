"""Random walks of a decided cluster: brokers come and go, leaders ask for ISRs, elections and moves are asked for."""

from __future__ import annotations

import random
from collections.abc import Callable

from oncelog.broker.metadata.replica_directories import LOST
from oncelog.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from oncelog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, DirectoryData
from oncelog.wire.messages.assign_replicas_to_dirs import PartitionData as AssignedPartition
from oncelog.wire.messages.assign_replicas_to_dirs import TopicData as AssignedTopic
from oncelog.wire.schema import Uuid
from tests.controller.decided_cluster import (
    FEATURES,
    MIN_ISR,
    UNCLEAN_ENABLE,
    DecidedCluster,
    directory_id,
)

BROKERS = (1, 2, 3, 4)
TOPICS = {"t": 3, "u": 2, "v": 1}
"""Topics with the number of replicas of each of their partitions."""
PARTITIONS = 3


def begun(rng: random.Random, *, elr: bool) -> DecidedCluster:
    """A cluster of four brokers with three topics."""
    cluster = DecidedCluster(elr=elr)
    for broker_id in BROKERS:
        cluster.register(broker_id, log_dirs=directories(broker_id))
        _beat_on(cluster, broker_id)
    for name, replicas in TOPICS.items():
        assignments = [rng.sample(BROKERS, replicas) for _ in range(PARTITIONS)]
        configs = {"min_insync_replicas": str(rng.randint(1, 3))}
        if rng.random() < 0.3:
            configs["unclean_leader_election_enable"] = "true"
        cluster.topic(name, *assignments, **configs)
    return cluster


def directories(broker_id: int) -> list[Uuid]:
    """Two of them, so that one may fail."""
    return [directory_id(broker_id), directory_id(broker_id, 1)]


def step(cluster: DecidedCluster, rng: random.Random) -> None:
    """One thing that happens."""
    [chosen] = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    chosen(cluster, rng)


def _register(cluster: DecidedCluster, rng: random.Random) -> None:
    broker_id = rng.choice(BROKERS)
    known = cluster.image.brokers.get(broker_id)
    if known is not None and rng.random() < 0.5:
        cluster.advance(20)
        cluster.elect_unclean()
        cluster.fence_overdue()
    cluster.register(
        broker_id,
        previous_epoch=known.broker_epoch if known is not None and rng.random() < 0.5 else -1,
        version=rng.choice((2, 3, 4, 4)),
        log_dirs=directories(broker_id),
    )


def _register_badly(cluster: DecidedCluster, rng: random.Random) -> None:
    bad: list[dict[str, object]] = [
        {"cluster_id": "another"},
        {"log_dirs": []},
        {"log_dirs": [bytes(15) + b"\x05"]},
        {"log_dirs": [directory_id(9)] * 2},
        {"log_dirs": [directory_id(1)]},
        {"features": {}},
        {"features": {**FEATURES, "metadata.version": (1, 2)}},
        {"features": {"metadata.version": (1, 40)}},
        {"features": {**FEATURES, "group.version": (1, 1)}},
    ]
    cluster.register(9, **rng.choice(bad))  # type: ignore[arg-type]


def _beat(cluster: DecidedCluster, rng: random.Random) -> None:
    broker_id = rng.choice(BROKERS)
    known = cluster.image.brokers.get(broker_id)
    if known is None:
        cluster.beat(broker_id, epoch=rng.randrange(100))
        return
    if rng.random() < 0.05:
        cluster.beat(broker_id, epoch=known.broker_epoch - 1)
    if _has_stopped(cluster, broker_id):
        return
    fence, shut_down = rng.random() < 0.15, rng.random() < 0.3
    behind = known.broker_epoch - 1
    cordoned = rng.choice((None, None, [], [directory_id(broker_id)]))
    offset = behind if rng.random() < 0.2 else None
    cluster.beat(broker_id, offset=offset, cordoned=cordoned, fence=fence, shut_down=shut_down)
    _beat_on(cluster, broker_id, fence=fence, shut_down=shut_down)


def _has_stopped(cluster: DecidedCluster, broker_id: int) -> bool:
    known = cluster.image.brokers[broker_id]
    return known.in_controlled_shutdown and known.fenced


def _beat_on(
    cluster: DecidedCluster, broker_id: int, *, fence: bool = False, shut_down: bool = False
) -> None:
    """Heartbeats until nothing changes: how far a broker has read counts, in Kafka, from the first of these on."""
    while not _has_stopped(cluster, broker_id):
        if not cluster.beat(broker_id, fence=fence, shut_down=shut_down).records or fence or shut_down:
            return


def _lose_directory(cluster: DecidedCluster, rng: random.Random) -> None:
    broker_id = rng.choice(BROKERS)
    if broker_id in cluster.serving():
        cluster.beat(broker_id, offline=[directory_id(rng.choice((broker_id, 9)))])
        _beat_on(cluster, broker_id)


def _assign_directories(cluster: DecidedCluster, rng: random.Random) -> None:
    broker_id = rng.choice(BROKERS)
    known = cluster.image.brokers.get(broker_id)
    rows = [
        DirectoryData(
            rng.choice((*directories(broker_id), LOST, directory_id(9))),
            [
                AssignedTopic(
                    rng.choice((cluster.image.topics[name].topic_id,) * 9 + (bytes(16),)),
                    [AssignedPartition(rng.randrange(PARTITIONS + 1))],
                )
                for name in rng.sample(list(TOPICS), 2)
            ],
        )
        for _ in range(2)
    ]
    epoch = -1 if known is None else known.broker_epoch + _off_by_one(rng)
    cluster.assign_directories(AssignReplicasToDirsRequest(broker_id, epoch, rows))


def _all_beat(cluster: DecidedCluster, rng: random.Random) -> None:
    for broker_id in list(cluster.image.brokers):
        _beat_on(cluster, broker_id)


def _wait(cluster: DecidedCluster, rng: random.Random) -> None:
    cluster.advance(rng.choice((1, 4, 9, 9.001)))
    cluster.elect_unclean()
    cluster.fence_overdue()


def _alter_partition(cluster: DecidedCluster, rng: random.Random) -> None:
    name = rng.choice(list(TOPICS))
    index = rng.randrange(PARTITIONS)
    state = cluster.partition(name, index)
    if state.leader < 0 and rng.random() < 0.9:
        return
    leader = state.leader if state.leader >= 0 and rng.random() < 0.95 else rng.choice(BROKERS)
    members = [one for one in state.replicas if one == leader or rng.random() < 0.7]
    if rng.random() < 0.05:
        members = rng.choices(BROKERS, k=2)
    brokers = cluster.image.brokers
    isr = [BrokerState(one, brokers[one].broker_epoch if one in brokers else -1) for one in members]
    if isr and rng.random() < 0.05:
        isr[-1].broker_epoch = rng.choice((-1, 1))
    version = rng.choice((2, 3, 3, 3))
    row = PartitionData(
        index if rng.random() < 0.97 else PARTITIONS,
        state.leader_epoch + _off_by_one(rng),
        members if version < 3 else [],
        isr if version >= 3 else [],
        leader_recovery_state=int(rng.random() < 0.1),
        partition_epoch=state.partition_epoch + _off_by_one(rng),
    )
    topic_id = cluster.image.topics[name].topic_id if rng.random() < 0.97 else bytes(16)
    known = brokers.get(leader)
    epoch = -1 if known is None else known.broker_epoch + _off_by_one(rng)
    cluster.alter_partition(AlterPartitionRequest(leader, epoch, [TopicData(topic_id, [row])]), version)


def _off_by_one(rng: random.Random) -> int:
    return rng.choice((-1, 1)) if rng.random() < 0.04 else 0


def _elect(cluster: DecidedCluster, rng: random.Random) -> None:
    name = rng.choice((*TOPICS, "nobody's"))
    cluster.elect(name, rng.randrange(-1, PARTITIONS + 1), rng.choice((0, 1)))


def _reassign(cluster: DecidedCluster, rng: random.Random) -> None:
    name = rng.choice((*TOPICS, *TOPICS, "nobody's"))
    index = rng.randrange(PARTITIONS) if rng.random() < 0.95 else rng.choice((-1, PARTITIONS))
    if rng.random() < 0.3:
        cluster.reassign(name, index, None)
        return
    wanted = rng.sample(BROKERS, rng.randint(0, 3))
    if rng.random() < 0.1:
        wanted = rng.choices((*BROKERS, 9), k=rng.randint(1, 3))
    cluster.reassign(name, index, wanted, may_change_count=rng.random() < 0.7)


def _change_config(cluster: DecidedCluster, rng: random.Random) -> None:
    name = rng.choice((*TOPICS, ""))
    if rng.random() < 0.5:
        cluster.set_config(name, MIN_ISR, str(rng.randint(1, 3)))
    else:
        cluster.set_config(name, UNCLEAN_ENABLE, rng.choice(("true", "false", None)))


def _unregister(cluster: DecidedCluster, rng: random.Random) -> None:
    cluster.unregister(rng.choice((*BROKERS, 9)))


WEIGHTS: dict[Callable[[DecidedCluster, random.Random], None], int] = {
    _beat: 30,
    _all_beat: 12,
    _alter_partition: 60,
    _register: 12,
    _register_badly: 2,
    _wait: 8,
    _elect: 12,
    _reassign: 15,
    _change_config: 5,
    _lose_directory: 2,
    _assign_directories: 6,
    _unregister: 1,
    lambda cluster, rng: cluster.balance(): 6,  # type: ignore[dict-item]
    lambda cluster, rng: cluster.elect_unclean(): 6,  # type: ignore[dict-item]
}
