"""A node in a process that it does not end with, behind real sockets: it serves, dies, loses power, and leaves no open
file. Its data is in memory, or on the disk."""

from __future__ import annotations

import pathlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import pytest
import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.routes import LeaderOf, Retry
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.log.data_directory import DataDirectoryError
from oncelog.broker.net.server import BoundListener
from oncelog.broker.node.node import Node, open_node
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.seams.files import FileSystem
from oncelog.broker.seams.memory_files import MemoryFileSystem
from oncelog.broker.seams.mortal_files import MortalFileSystem, without_deaths
from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.broker.seams.transport import SocketListener, connect
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.common.batches import batch, read_batches, record
from tests.harness.requests import bytes_of

VALUE = bytes(range(256)) * 4_000
"""A megabyte: a response is sent in many pieces, none of them by sendfile."""
VALUES = 3


class MortalNode:
    """Nodes on one disk, one after the other. ``parent``: a directory on a real disk; None: all is in memory."""

    def __init__(self, parent: pathlib.Path | None = None, **texts: str) -> None:
        texts = {key.replace("_", "."): value for key, value in texts.items()}
        self.clock = MovableClock()
        self.disk = MemoryFileSystem(self.clock.now_ms) if parent is None else OsFileSystem()
        self.files = MortalFileSystem(self.disk)
        self.directory = "/data" if parent is None else f"{parent}/data"
        self.files.makedirs(self.directory)
        self.files.sync_dir(self.directory.rpartition("/")[0] or "/")
        self.config = BrokerConfig({"log.dirs": self.directory, "message.max.bytes": "5000000", **texts})
        self.process: trio.CancelScope
        self.node: Node

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ClusterClient]:
        """A client of a node that runs meanwhile and, unless it is killed, is stopped cleanly."""
        listener = SocketListener.bind("127.0.0.1", 0, 50)
        bound = [BoundListener("PLAINTEXT", listener, *listener.address)]
        try:
            with open_node(
                self.config, bound, files=self.files, clock=self.clock, rng=random.Random(1)
            ) as self.node:
                self.node.host.fail_on_internal_errors = True
                async with trio.open_nursery() as nursery:
                    self.process = nursery.cancel_scope
                    await nursery.start(self.node.run)
                    with ClusterClient([listener.address], connect) as client:
                        yield client
                    nursery.cancel_scope.cancel()
        except BaseException as error:
            if not self.files.is_dead or without_deaths(error) is not None:
                raise
        if self.files.is_dead:
            self.files.restart()
        assert self.files.open_files == 0


async def produce(client: ClusterClient) -> None:
    await client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000), retry=Retry(10))
    for _ in range(VALUES):
        data = batch([record(None, VALUE)])
        rows = [TopicProduceData("t", partition_data=[PartitionProduceData(0, data)])]
        response = await client.call(ProduceRequest(None, -1, 30_000, rows), LeaderOf("t", 0), version=9)
        assert response.responses[0].partition_responses[0].error_code == 0


async def fetch(client: ClusterClient) -> int:
    """How many of the values are there."""
    topics = [FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 24)])]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=topics)
    response = await client.call(request, LeaderOf("t", 0), version=12, retry=Retry(10))
    data = bytes_of(response.responses[0].partitions[0].records)
    batches = list(read_batches(data))
    assert data.count(VALUE) == len(batches)
    return len(batches)


@pytest.fixture(params=["memory", "disk"])
def node(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> MortalNode:
    return MortalNode(None if request.param == "memory" else tmp_path)


def test_it_serves_and_stops(node: MortalNode) -> None:
    async def main() -> None:
        for life in range(3):
            async with node.running() as client:
                if not life:
                    await produce(client)
                assert await fetch(client) == VALUES
            assert node.files.exists(f"{node.directory}/.kafka_cleanshutdown")
            assert open_files(node.disk) == (0, 0)

    trio.run(main)


def test_a_node_whose_data_nobody_keeps_writes_nothing_at_its_end(node: MortalNode) -> None:
    def content() -> tuple[list[str], dict[str, int]]:
        partition = f"{node.directory}/t-0"
        sizes = {name: node.files.size(f"{partition}/{name}") for name in node.files.listdir(partition)}
        return node.files.listdir(node.directory), sizes

    async def main() -> None:
        async with node.running() as client:
            await produce(client)
            before = content()
            node.node.logs.keeps_data = False
        assert content() == before
        assert ".kafka_cleanshutdown" not in before[0]
        assert open_files(node.disk) == (0, 0)
        async with node.running() as client:  # the directory is not locked
            assert await fetch(client) == VALUES

    trio.run(main)


def open_files(disk: FileSystem) -> tuple[int, int]:
    """Open files, and those that somebody holds."""
    if isinstance(disk, MemoryFileSystem):
        return disk.open_files, disk.held
    assert isinstance(disk, OsFileSystem)
    return disk.open_descriptors, 0


def test_acknowledged_records_survive_the_process(node: MortalNode) -> None:
    async def main() -> None:
        async with node.running() as client:
            await produce(client)
            node.files.kill()
        assert not node.files.exists(f"{node.directory}/.kafka_cleanshutdown")
        assert open_files(node.disk) == (0, 0)
        async with node.running() as client:
            assert await fetch(client) == VALUES

    trio.run(main)


@pytest.mark.parametrize("flush_messages", ["1", "1000"])
def test_flushed_records_survive_a_loss_of_power(flush_messages: str) -> None:
    async def main() -> None:
        node = MortalNode(log_flush_interval_messages=flush_messages)
        async with node.running() as client:
            await produce(client)
            node.files.lose_power()
        async with node.running() as client:
            if flush_messages == "1":
                assert await fetch(client) == VALUES
            else:
                # Not even the topic was flushed: make it anew, or find it empty.
                await client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000))
                assert await fetch(client) == 0

    trio.run(main)


def test_a_stage_that_fails_closes_what_the_stages_before_it_have_opened(node: MortalNode) -> None:
    def open_one(on_loaded: Callable[[Node], None] = lambda node: None) -> None:
        with open_node(
            node.config, [], files=node.files, clock=node.clock, rng=random.Random(1), on_loaded=on_loaded
        ):
            pass

    def fail(_: Node) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        metadata = f"{node.directory}/__cluster_metadata-0"
        node.files.replace(metadata, b"")
        with pytest.raises(DataDirectoryError):
            open_one()
        assert open_files(node.disk) == (0, 0)
        node.files.remove(metadata)
        with pytest.raises(ZeroDivisionError):
            open_one(fail)
        assert open_files(node.disk) == (0, 0)
        open_one()  # the directory is not locked

    trio.run(main)


def test_nodes_of_one_process_share_disk_clock_and_random_numbers() -> None:
    async def main() -> None:
        node = MortalNode()
        rng = random.Random(1)
        clusters = set()
        with ExitStack() as opened:
            async with trio.open_nursery() as nursery:
                for place in range(3):
                    listener = SocketListener.bind("127.0.0.1", 0, 50)
                    one = opened.enter_context(
                        open_node(
                            BrokerConfig({"log.dirs": f"/data/{place}"}),
                            [BoundListener("PLAINTEXT", listener, *listener.address)],
                            files=node.files,
                            clock=node.clock,
                            rng=rng,
                        )
                    )
                    one.host.fail_on_internal_errors = True
                    await nursery.start(one.run)
                    clusters.add(one.cluster.cluster_id)
                    with ClusterClient([listener.address], connect) as client:
                        await produce(client)
                        assert await fetch(client) == VALUES
                nursery.cancel_scope.cancel()
        assert len(clusters) == 3
        assert open_files(node.disk) == (0, 0)

    trio.run(main)
