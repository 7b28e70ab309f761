"""No heartbeat holds the loop for long in a large group.

The lines of Python that it executes are counted, which are as many on every machine; bench/reconcile.py has the time.
"""

from __future__ import annotations

from functools import partial

import pytest

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
