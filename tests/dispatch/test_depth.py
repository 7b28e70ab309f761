"""How many functions a reader follows from the socket to the file."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from oncelog.broker.log.segment import Segment
from oncelog.broker.net.connection import Connection
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import WITHOUT_SHORTCUTS, SimBroker
from tests.harness.simulation import simulated

SOCKET, FILE = Connection._serve.__code__, Segment.append.__code__


class Path:
    """The functions of the last Produce, from the one that reads the socket to the one that writes the file."""

    def __init__(self) -> None:
        self.functions: list[str] = []

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """See `sys.setprofile`."""
        if event != "call" or frame.f_code is not FILE:
            return
        self.functions = []
        above: FrameType | None = frame
        while above is not None:
            self.functions.insert(0, above.f_code.co_qualname)
            if above.f_code is SOCKET:
                return
            above = above.f_back
        self.functions = []  # not of a request


@pytest.mark.parametrize(
    ("config", "functions"),
    [
        (
            WITHOUT_SHORTCUTS,
            [
                "Connection._serve",
                "Connection._handle_frames",
                "Dispatcher.dispatch",
                "handle",
                "Appends.append",
                "PartitionLog.append",
                "Segment.append",
            ],
        ),
        (
            {},
            [
                "Connection._serve",
                "Connection._handle_frames",
                "Dispatcher.dispatch",
                "FastProduce.append",
                "PartitionLog.append",
                "Segment.append",
            ],
        ),
    ],
    ids=["plain", "fast"],
)
def test_the_functions_from_the_socket_to_the_file(config: dict[str, str], functions: list[str]) -> None:
    path = Path()

    @simulated
    async def run() -> None:
        async with SimBroker(config=config) as broker:
            client = broker.connect()
            await create_topic(client, "t")
            for _ in range(2):
                await produce(client, "t")
            before = sys.getprofile()
            sys.setprofile(path)
            try:
                await produce(client, "t")
            finally:
                sys.setprofile(before)

    run()
    assert path.functions == functions
