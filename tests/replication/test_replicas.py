"""Replicated partitions on three nodes: what is acknowledged, what may be read, what stays when a leader is lost."""

from __future__ import annotations

import pytest

from tests.harness.replicated_nodes import running_nodes
from tests.harness.simulation import simulated


@pytest.mark.parametrize("encodes", [False, True])
@simulated
async def test_what_acks_all_acknowledged_survives_the_leader(encodes: bool) -> None:
    async with running_nodes(encodes=encodes) as nodes:
        nodes.create(min_insync_replicas="2")
        row = await nodes[1].produce(b"a", b"b")
        assert (row.error_code, row.base_offset) == (0, 0)
        nodes[1].kill()
        nodes.elect(2, isr=[2, 3])
        row = await nodes[2].produce(b"c")
        assert (row.error_code, row.base_offset) == (0, 2)
        assert nodes[2].values() == [b"a", b"b", b"c"]
        assert nodes[3].values() == [b"a", b"b", b"c"]
