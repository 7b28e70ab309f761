"""The first ShareFetch of share partitions: each that is loaded may complete it. compat_tests/share/test_first_read.py
compares with Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.share_fetch import PartitionData
from tests.common.batches import batch
from tests.harness.requests import create_topic, produce
from tests.harness.share_readers import ShareReader, serve_share_groups
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import deterministic

FLUSHED = {"log.flush.interval.messages": "1"}


async def begin(filled: Sequence[int], *, min_bytes: int = 1, is_flushed: bool = False) -> list[list[int]]:
    """Let a member read four partitions, of which ``filled`` have a record, until all have come. Returns the partitions
    of each response. ``is_flushed``: the state of each has to be flushed first, which takes 0.1 s.
    """
    config = {"share.coordinator.state.topic.num.partitions": "1"}
    async with SimBroker(config=config | FLUSHED if is_flushed else config) as broker:
        client = broker.connect()
        topic_id = await create_topic(client, "a", 4)
        for partition in filled:
            await produce(client, "a", batch(1), partition)
        await serve_share_groups(broker, topic_id, 4)
        if is_flushed:  # a new leader epoch is stored
            await broker.crash("process")
            await broker.start()
            await broker.node.logs.recovered()
            await broker.node.share_coordinator.runtime.wait_loaded()
            broker.files.latency_s = 0.1
        member = ShareReader(broker.connect(), topic_id, partitions=4)
        responses: list[list[int]] = []
        began = trio.current_time()
        while sum(map(len, responses)) < len(filled):
            rows = await member.fetch(wait_ms=700, min_bytes=min_bytes)
            responses.append(sorted(row.partition_index for row in rows if row.records))
        took = trio.current_time() - began
        assert took == pytest.approx(0.2 if is_flushed else 0.7 if min_bytes > 1 else 0)
        broker.files.latency_s = 0
        return responses


@pytest.mark.parametrize("seed", range(6))
def test_the_partition_that_is_loaded_first_answers(seed: int) -> None:
    """Whatever the order of Trio's tasks."""
    assert deterministic(lambda: begin([0, 1, 2, 3]), seed) == [[0], [1, 2, 3]]
    assert deterministic(lambda: begin([2, 3]), seed) == [[2], [3]]


def test_the_others_share_a_flush() -> None:
    """The first one's flush is under way when they are loaded."""
    assert deterministic(lambda: begin([0, 1, 2, 3], is_flushed=True))[0] == [0]


def test_several_partitions_make_min_bytes() -> None:
    assert deterministic(lambda: begin([0, 2, 3], min_bytes=100)) == [[0, 2], [3]]
    assert deterministic(lambda: begin([0, 2, 3], min_bytes=100_000)) == [[0, 2, 3]]


def test_partitions_that_cannot_be_loaded_do_not_answer_alone() -> None:
    """Their errors come with the records of the one that can."""

    async def run() -> None:
        async with SimBroker() as broker:
            client = broker.connect()
            topic_id = await create_topic(client, "a", 4)
            await produce(client, "a", batch(1), 3)
            await serve_share_groups(broker, topic_id, 4)
            for partition in range(3):
                await broker.node.share_persister.delete("g", topic_id, partition)
            member = ShareReader(client, topic_id, partitions=4)
            rows: list[PartitionData] = await member.fetch(wait_ms=60_000)
            codes = {row.partition_index: row.error_code for row in rows}
            assert codes == {0: ErrorCode.UNKNOWN_SERVER_ERROR, 1: -1, 2: -1, 3: 0}

    deterministic(run)
