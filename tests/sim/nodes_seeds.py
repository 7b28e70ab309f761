"""What a seed stands for in the random lives of three nodes."""

from __future__ import annotations

from tests.sim.nodes_clients import TRANSACTIONAL, Kind, Plan, World
from tests.sim.nodes_exactly_once import transform
from tests.sim.nodes_run import run, write_and_read

KINDS: tuple[Kind, ...] = ("kills", "cuts", "power", "unflushed", "all")


def run_seed(seed: int, steps: int = 8) -> World:
    """Live the life of a seed: one of four has transactions; each kind of faults, and both forms of messages."""
    kind = KINDS[seed % len(KINDS)]
    encodes = bool(seed // len(KINDS) % 2)
    if seed // len(KINDS) % 4 == 3:
        plan = Plan(seed, kind, steps, encodes=encodes, topics=(TRANSACTIONAL,), partitions=2)
        return run(plan, transform)
    return run(Plan(seed, kind, steps, encodes=encodes), write_and_read)
