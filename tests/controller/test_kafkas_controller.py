"""Kafka's own controller (ControllerOracle.java) and ours decide on the same random walks: records, responses and
errors must be equal.
"""

from __future__ import annotations

import itertools
import pathlib
import random
import re

import pytest

from tests.controller import walks
from tests.controller.decided_cluster import DecidedCluster, Outcome
from tests.harness.kafka_oracle import ask_oracle

ORACLE = pathlib.Path(__file__).with_name("ControllerOracle.java")
WALKS = 30
STEPS = 400
LAST_KNOWN_LEADER_HAS_MOVED = r"defect Replica \d+ is not assigned to this partition\."
"""In Kafka, a reassignment that takes the last known leader away lets every later election fail. Here nobody leads."""

pytestmark = pytest.mark.slow


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


def compare(clusters: list[DecidedCluster]) -> int:
    """Assert that Kafka says of each step what we say, up to a defect of its own. Returns how many steps brought
    records.
    """
    script = [line for cluster in clusters for line in cluster.script]
    told = iter(ask_oracle(ORACLE, given="\n".join(script).encode()).decode().splitlines())
    changes = 0
    for cluster in clusters:
        steps = cluster.script[1:]
        answers = list(itertools.islice(told, len(steps)))
        for at, (ours, answer) in enumerate(zip(cluster.outcomes, answers, strict=True)):
            if re.fullmatch(LAST_KNOWN_LEADER_HAS_MOVED, answer):
                break
            kafkas = parsed(answer)
            before = "\n".join(steps[max(0, at - 5) : at + 1])
            assert kafkas == ours, f"{before}\n\nKafka:\n{kafkas}\n\nours:\n{ours}"
            changes += bool(ours.records)
    assert next(told, None) is None
    return changes


@pytest.mark.parametrize("elr", [True, False], ids=["with ELR", "without ELR"])
def test_random_walks(elr: bool) -> None:
    clusters = []
    for seed in range(WALKS):
        rng = random.Random(f"{seed} {elr}")
        cluster = walks.begun(rng, elr=elr)
        for _ in itertools.repeat(None, STEPS):
            walks.step(cluster, rng)
        clusters.append(cluster)
    assert compare(clusters) > WALKS * STEPS / 10
