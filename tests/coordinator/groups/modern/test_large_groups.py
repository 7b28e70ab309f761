"""No heartbeat holds the loop for long in a large group.

The lines of Python that it executes are counted, which are as many on every machine; bench/reconcile.py has the time.
"""

from __future__ import annotations

from functools import partial

import pytest

from oncelog.coordinator.groups.group_deadline import GroupDeadline
from oncelog.coordinator.groups.modern.group import ModernGroup
from oncelog.coordinator.groups.modern.timers import COMPUTATION
from tests.harness.consumer_clients import Consumer
from tests.harness.group_shard import GroupShardHarness
from tests.harness.share_clients import ShareConsumer, ShareStates
from tests.harness.steps import count_lines

MEMBERS, PARTITIONS = 500, 1_000
LINES_MAX = 100_000
"""Of a heartbeat that computes the target assignment, 66 for each member and partition: it must not grow with their
product."""
SETTINGS = {
    "group.consumer.assignment.interval.ms": "1000",
    "group.share.assignment.interval.ms": "1000",
    "group.share.max.size": "1000",
}


def beat(member: Consumer | ShareConsumer) -> None:
    if isinstance(member, Consumer):
        member.acknowledge()
        member.settle_down()
    else:
        member.beat()


@pytest.mark.parametrize("kind", ["uniform", "range", "share"])
def test_one_of_many_members_is_replaced(kind: str) -> None:
    harness = GroupShardHarness(SETTINGS)
    harness.topics.create("t", PARTITIONS)
    states = ShareStates(harness)

    def new(number: int) -> Consumer | ShareConsumer:
        if kind == "share":
            return ShareConsumer(states, f"m{number}", ["t"])
        return Consumer(harness, f"m{number}", ["t"], assignor=kind)

    members = [new(number) for number in range(MEMBERS)]
    for member in members:
        member.join()
    states.finish_all()
    for _ in range(5):
        harness.advance(1_000)
        for member in members:
            beat(member)
    harness.advance(1_000)
    lines = [count_lines(members.pop(0).leave)]
    members.append(new(MEMBERS))
    lines.append(count_lines(members[-1].join))
    for _ in range(2):
        harness.advance(1_000)
        lines += [count_lines(partial(beat, member)) for member in members]
    assert PARTITIONS < max(lines) < LINES_MAX, "one of them computes the target assignment"


NAMES, OWN = 200, 30
"""Each of the `NAMES` topics is one that all but a few members read."""


@pytest.mark.parametrize("kind", ["uniform", "range", "share"])
def test_members_of_many_topics_each(kind: str) -> None:
    """Some turns compute the same assignment as one heartbeat does."""
    assigned, lines = _assigned_to_all(kind, offloads="true")
    assert max(lines) < LINES_MAX
    whole, most = _assigned_to_all(kind, offloads="false")
    assert assigned == whole
    assert max(most) > LINES_MAX, "the group is large"


def _assigned_to_all(kind: str, offloads: str) -> tuple[dict[str, object], list[int]]:
    """The target assignment after members with different topics have joined, and the lines of Python that each
    heartbeat and each turn between them took.
    """
    key = "group.share" if kind == "share" else "group.consumer"
    harness = GroupShardHarness({**SETTINGS, f"{key}.assignor.offload.enable": offloads})
    for number in range(NAMES):
        harness.topics.create(f"t{number}", 1)
    states = ShareStates(harness)
    lines = []
    members: list[Consumer | ShareConsumer] = []
    for number in range(OWN):
        names = [f"t{at}" for at in range(NAMES) if at % OWN != number] + [f"missing-{number}"]
        member = (
            ShareConsumer(states, f"m{number}", names)
            if kind == "share"
            else Consumer(harness, f"m{number}", names, assignor=kind)
        )
        members.append(member)
        lines.append(count_lines(member.join))
    states.finish_all()
    group = harness.shard.groups["g"]
    assert isinstance(group, ModernGroup)
    for _ in range(3):
        for member in members:
            lines.append(count_lines(partial(beat, member)))
        while GroupDeadline(harness.shard.partition, "g", COMPUTATION) in harness.deadlines:
            due = harness.deadlines.take_due()
            assert due is not None
            lines.append(count_lines(due[1]))
        harness.advance(1_000)
    assert group.target_epoch == group.epoch
    return dict(group.targets), lines
