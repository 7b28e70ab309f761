"""Kafka's own controller (ControllerOracle.java) and ours decide on the same random walks: records, responses and
errors must be equal.
"""

from __future__ import annotations

import itertools
import pathlib
import random
import re

import pytest

from oncelog.broker.metadata.image import NO_LEADER
from oncelog.wire.stored.metadata import PartitionChangeRecord
from tests.controller import walks
from tests.controller.decided_cluster import DecidedCluster, Outcome
from tests.harness.kafka_oracle import Oracle

ORACLE = pathlib.Path(__file__).with_name("ControllerOracle.java")
WALKS, RECORDED_WALKS = 30, 4
STEPS = 400
PARTITION_CHANGE = 5
LAST_KNOWN_LEADER_HAS_MOVED = r"defect Replica \d+ is not assigned to this partition\."
"""In Kafka, a reassignment that takes the last known leader away lets every later election fail. Here nobody leads."""

pytestmark = pytest.mark.slow


def keeps_removed_eligible_leader(kafkas: Outcome, ours: Outcome) -> bool:
    """Return whether only the ELRs of records with a new assignment differ: in Kafka, a replica that one removes stays
    eligible (docs/reference/differences.md).
    """
    if len(kafkas.records) != len(ours.records):
        return False
    kept = []
    for of_kafka, own in zip(kafkas.records, ours.records, strict=True):
        if of_kafka != own and of_kafka[0] == own[0] == PARTITION_CHANGE:
            theirs, mine = (PartitionChangeRecord.decode(one[2], one[1]) for one in (of_kafka, own))
            if theirs.replicas is not None:
                theirs.eligible_leader_replicas = mine.eligible_leader_replicas
            if theirs == mine:
                of_kafka = own
        kept.append(of_kafka)
    return ours == kafkas._replace(records=tuple(kept))


def parsed(line: str) -> Outcome:
    kind, *words = line.split(" ")
    if kind == "error":
        text = " ".join(words[1:])
        return Outcome((int(words[0]), "" if text == "null" else text), None, ())
    records = (word.split(":") for word in words[1:])
    return Outcome(
        None,
        None if words[0] == "-" else bytes.fromhex(words[0]),
        tuple(sorted((int(key), int(version), bytes.fromhex(data)) for key, version, data in records)),
    )


def compare(oracle: Oracle, clusters: list[DecidedCluster]) -> int:
    """Assert that Kafka says of each step what we say, up to a defect of its own, or a difference on purpose. Returns
    how many steps brought records.
    """
    script = [line for cluster in clusters for line in cluster.script]
    told = iter(oracle(ORACLE, "\n".join(script).encode()).decode().splitlines())
    changes = 0
    for cluster in clusters:
        steps = cluster.script[1:]
        answers = list(itertools.islice(told, len(steps)))
        for at, (ours, answer) in enumerate(zip(cluster.outcomes, answers, strict=True)):
            if re.fullmatch(LAST_KNOWN_LEADER_HAS_MOVED, answer):
                break
            kafkas = parsed(answer)
            if kafkas != ours and keeps_removed_eligible_leader(kafkas, ours):
                break  # from here on the two have different ELRs
            before = "\n".join(steps[max(0, at - 5) : at + 1])
            assert kafkas == ours, f"{before}\n\nKafka:\n{kafkas}\n\nours:\n{ours}"
            changes += bool(ours.records)
    assert next(told, None) is None
    return changes


@pytest.mark.parametrize("elr", [True, False], ids=["with ELR", "without ELR"])
def test_random_walks(elr: bool, oracle: Oracle) -> None:
    clusters = []
    walks_in_all = WALKS if oracle.is_asked else RECORDED_WALKS
    for seed in range(walks_in_all):
        rng = random.Random(f"{seed} {elr}")
        cluster = walks.begun(rng, elr=elr)
        for _ in itertools.repeat(None, STEPS):
            walks.step(cluster, rng)
        clusters.append(cluster)
    assert compare(oracle, clusters) > walks_in_all * STEPS / 10


def test_a_replica_that_a_cancellation_removed_does_not_lead_when_it_is_added_again(oracle: Oracle) -> None:
    """Kafka's lets it: its log was deleted in between, so the partition begins anew, and records are lost."""
    cluster = DecidedCluster()
    cluster.brokers(1, 2, 3, 4)
    cluster.topic("t", [1, 2], min_insync_replicas="2")
    for isr in ([1, 2, 3], [1]):
        cluster.reassign("t", 0, [3, 4])
        cluster.in_sync(*isr)
    assert cluster.partition().eligible_leader_replicas == [2, 3]
    cluster.reassign("t", 0, None)
    assert cluster.partition().eligible_leader_replicas == [2]
    cluster.reassign("t", 0, [3, 4])
    for broker_id in (2, 1):
        cluster.beat(broker_id, fence=True)
    assert cluster.partition().leader == NO_LEADER

    script = "\n".join(cluster.script).encode()
    kafkas = parsed(oracle(ORACLE, script).decode().splitlines()[-1])
    [(_, version, data)] = [record for record in kafkas.records if record[0] == PARTITION_CHANGE]
    assert PartitionChangeRecord.decode(data, version).leader == 3
