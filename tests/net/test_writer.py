"""`ResponseWriter`: bytes and ranges of files in their order, with and without sendfile."""

from __future__ import annotations

import pathlib

import pytest
import trio

from oncelog.broker.log.results import FileRange
from oncelog.broker.net.held_bytes import HeldBytes
from oncelog.broker.net.writer import ResponseWriter
from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.broker.seams.transport import WOULD_BLOCK, Buffer


class Wire:
    """A transport that accepts a few bytes at a time and blocks in between. The accepted bytes are in `sent`."""

    peer = "peer:1"
    local = ("local", 1)
    connection = None
    has_received = False

    def __init__(self, *, can_send_file: bool) -> None:
        self.can_send_file = can_send_file
        self.sent = bytearray()
        self.files_sent = 0
        self._blocks = False

    def _take(self, data: Buffer) -> int:
        self._blocks = not self._blocks
        if self._blocks:
            return WOULD_BLOCK
        self.sent += data[:7]
        return min(7, len(data))

    def send(self, data: Buffer, *, more: bool = False) -> int:
        return self._take(data)

    def send_file(self, fileno: int, position: int, size: int) -> int:
        import os

        assert self.can_send_file
        self.files_sent += 1
        return self._take(os.pread(fileno, size, position))

    def receive_into(self, buffer: memoryview) -> int:
        raise AssertionError("nothing is read")

    async def wait_readable(self) -> None:
        raise AssertionError("nothing is read")

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("can_send_file", [True, False])
def test_ranges_of_files_leave_between_the_bytes(tmp_path: pathlib.Path, can_send_file: bool) -> None:
    wire = Wire(can_send_file=can_send_file)
    path = tmp_path / "log"
    path.write_bytes(bytes(range(100)))

    async def run() -> None:
        files = OsFileSystem(10)
        file = files.open(str(path))
        writer = ResponseWriter(wire, files, HeldBytes(1000, ""), lambda reason: None)
        writer.out += b"before"
        writer.ranges.append((len(writer.out), FileRange(file, 10, 50)))
        writer.out += b"after"
        writer.ranges.append((len(writer.out), FileRange(file, 90, 10)))
        await writer.flush()
        assert not writer.out
        assert not writer.ranges
        assert writer.blocked_since is None

    trio.run(run)
    assert bytes(wire.sent) == b"before" + bytes(range(10, 60)) + b"after" + bytes(range(90, 100))
    assert (wire.files_sent > 0) == can_send_file
