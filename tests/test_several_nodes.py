"""Several nodes in one process with other code: they do not affect each other, and leave nothing behind."""

from __future__ import annotations

import gc
import struct
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio
import trio.testing

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.listeners import resolve_listeners
from oncelog.broker.logging import logs
from oncelog.broker.net.server import BoundListener
from oncelog.broker.node.node import Node
from oncelog.broker.node.serve import serve
from oncelog.broker.seams.clock import SystemClock
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.harness.log_lines import Lines
from tests.harness.process_state import state_of_the_process

PATIENCE_S = 60
STARTS = 50
STARTS_BEFORE_MEASURING = 10
BLOCKS_PER_START_MAX = 10
"""Blocks of memory by which a start may grow the process: caches of the interpreter fill, and in Python 3.11
splitting an exception group, as Trio does when it cancels, leaves about four. A node has some ten thousand.
"""


class Served:
    """A node on a directory and a port of its own, with its own log lines."""

    def __init__(self, data_dir: Path, **texts: str) -> None:
        texts = {key.replace("_", "."): value for key, value in texts.items()}
        self.config = BrokerConfig(
            {"log.dirs": str(data_dir), "listeners": "PLAINTEXT://127.0.0.1:0", **texts}
        )
        self.sink = Lines()
        self.node: Node
        self.port = 0

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        def on_ready(node: Node, bound: list[BoundListener]) -> None:
            self.node = node
            self.port = bound[0].port
            task_status.started()

        listeners, _ = resolve_listeners(self.config, lambda: "localhost")
        with logs.logging_to(logs.LogOutput(self.sink, SystemClock(), level="debug")):
            await serve(self.config, listeners, on_ready)

    async def metadata(self) -> MetadataResponse:
        """The response to a Metadata request for no topics."""
        version = 1
        body = struct.pack(">hhih", 3, version, 7, -1) + MetadataRequest([]).encode(version)
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            await stream.send_all(struct.pack(">i", len(body)) + body)
            received = b""
            while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
                more = await stream.receive_some()
                assert more
                received += more
        return MetadataResponse.decode(received[8:], version)

    async def clients_gone(self) -> None:
        """Wait until the node has noticed that all of its clients are gone."""
        with trio.fail_after(PATIENCE_S):
            while True:
                await trio.testing.wait_all_tasks_blocked(0.02)
                if not self.node.server.connections:
                    return

    async def be_closed(self) -> None:
        """Send a frame that no client means, upon which the node logs why it closes the connection."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            await stream.send_all(struct.pack(">i", -9))
            assert await stream.receive_some() == b""


@pytest.mark.slow
def test_two_nodes_keep_to_themselves_and_leave_nothing(tmp_path: Path) -> None:
    one = Served(tmp_path / "one", node_id="1", num_partitions="3")
    other = Served(tmp_path / "other", node_id="2", num_partitions="5")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(one.run)
            await nursery.start(other.run)
            assert (await one.metadata()).brokers[0].node_id == 1
            assert (await other.metadata()).brokers[0].node_id == 2
            assert (one.node.config.current.num_partitions, other.node.config.current.num_partitions) == (
                3,
                5,
            )
            await one.be_closed()
            nursery.cancel_scope.cancel()

    trio.run(main)  # the modules that are imported now count as there
    gc.collect()  # what other tests left
    before = state_of_the_process()
    closed = [line for line in one.sink.lines if "a frame of -9 bytes" in line]
    assert len(closed) == 1
    assert not [line for line in other.sink.lines if "a frame of -9 bytes" in line]
    trio.run(main)
    assert state_of_the_process() == before
    for served in (one, other):
        assert (Path(served.config.data_dir) / ".kafka_cleanshutdown").exists()


def own_objects() -> Counter[str]:
    """The objects of our classes that are alive, by class. Classes themselves and what modules keep are among them."""
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if str(kind.__module__).startswith("oncelog.")
    )


@pytest.mark.slow
def test_fifty_nodes_one_after_the_other_leave_no_memory_behind(tmp_path: Path) -> None:
    numbers = iter(range(STARTS))

    def start() -> None:
        served = Served(tmp_path / str(next(numbers)))

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                await nursery.start(served.run)
                await served.metadata()
                nursery.cancel_scope.cancel()

        trio.run(main)

    for _ in range(STARTS_BEFORE_MEASURING):
        start()
    objects, state, blocks = own_objects(), state_of_the_process(), sys.getallocatedblocks()
    for _ in range(STARTS - STARTS_BEFORE_MEASURING):
        start()
    assert own_objects() == objects
    assert sys.getallocatedblocks() - blocks < BLOCKS_PER_START_MAX * (STARTS - STARTS_BEFORE_MEASURING)
    assert state_of_the_process() == state
