"""Proxies in one process with other code: they do not affect each other, and leave nothing behind."""

from __future__ import annotations

import gc
import struct
import sys
from pathlib import Path

import pytest
import trio

from oncelog.broker.logging import logs
from oncelog.broker.net.server import BoundListener
from oncelog.broker.proxy.options import parse_proxy_arguments
from oncelog.broker.proxy.proxy import Proxy
from oncelog.broker.proxy.serve import serve_proxy
from oncelog.broker.proxy.settings import proxy_settings
from oncelog.broker.seams.clock import SystemClock
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.harness.log_lines import Lines
from tests.harness.process_state import state_of_the_process
from tests.test_several_nodes import Served, own_objects

STARTS = 30
STARTS_BEFORE_MEASURING = 10
BLOCKS_PER_START_MAX = 60
"""Blocks of memory by which a start may grow the process, as for a node. Trio forgets the time limits of connections
that were opened, six for each start, only when there are 1000. A proxy has some thousands of blocks.
"""


async def metadata(port: int) -> MetadataResponse:
    """The response to a Metadata request for no topics."""
    version = 9
    body = struct.pack(">hhihx", 3, version, 7, -1) + MetadataRequest([]).encode(version)
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(struct.pack(">i", len(body)) + body)
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            more = await stream.receive_some()
            assert more
            received += more
    return MetadataResponse.decode(received[9:], version)


class Proxied:
    """A proxy before one broker, on ports of its own, with its own log lines."""

    def __init__(self) -> None:
        self.sink = Lines()
        self.port = 0
        self.proxy: Proxy

    async def run(self, upstream: int, task_status: trio.TaskStatus[None]) -> None:
        def on_ready(proxy: Proxy, bound: list[BoundListener]) -> None:
            self.proxy = proxy
            self.port = bound[0].port
            task_status.started()

        arguments = ["--upstream", f"127.0.0.1:{upstream}", "--listen", "127.0.0.1:0"]
        settings, _ = proxy_settings(parse_proxy_arguments(arguments), {}, lambda: "localhost")
        with logs.logging_to(logs.LogOutput(self.sink, SystemClock(), level="debug")):
            await serve_proxy(settings, on_ready)


async def use(served: Served, *proxies: Proxied) -> None:
    """Start the proxies, let a client use each of them, and stop them while it is connected."""
    async with trio.open_nursery() as nursery:
        for proxied in proxies:
            await nursery.start(proxied.run, served.port)
        for proxied in proxies:
            [row] = (await metadata(proxied.port)).brokers
            assert row.port == proxied.proxy.node_ports.address("PLAINTEXT", row.node_id)[1]
            assert [one.port for one in (await metadata(row.port)).brokers] == [row.port]
        streams = [await trio.open_tcp_stream("127.0.0.1", proxied.port) for proxied in proxies]
        nursery.cancel_scope.cancel()
    for stream in streams:
        await stream.aclose()


def of_proxies() -> dict[str, int]:
    """The objects that are alive, without those of the broker, which goes on."""
    parts = ("oncelog.broker.proxy.", "oncelog.broker.net.", "oncelog.broker.dispatch.")
    return {kind: count for kind, count in own_objects().items() if kind.startswith(parts)}


@pytest.mark.slow
def test_two_proxies_keep_to_themselves_and_leave_nothing(tmp_path: Path) -> None:
    served = Served(tmp_path)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(served.run)
            await use(served, Proxied(), Proxied())  # the modules that are imported now count as there
            await served.clients_gone()
            gc.collect()  # what other tests left
            before = state_of_the_process()
            await use(served, Proxied(), Proxied())
            await served.clients_gone()
            assert state_of_the_process() == before
            nursery.cancel_scope.cancel()

    trio.run(main)


@pytest.mark.slow
def test_thirty_proxies_one_after_the_other_leave_no_memory_behind(tmp_path: Path) -> None:
    served = Served(tmp_path)

    async def start(times: int) -> None:
        for _ in range(times):
            await use(served, Proxied())
        await served.clients_gone()
        served.sink.lines.clear()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(served.run)
            await start(STARTS_BEFORE_MEASURING)
            objects, blocks = of_proxies(), sys.getallocatedblocks()
            await start(STARTS - STARTS_BEFORE_MEASURING)
            assert of_proxies() == objects
            grown = sys.getallocatedblocks() - blocks
            assert grown < BLOCKS_PER_START_MAX * (STARTS - STARTS_BEFORE_MEASURING)
            nursery.cancel_scope.cancel()

    trio.run(main)
