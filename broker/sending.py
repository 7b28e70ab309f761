"""What a connection sends: answers encoded one behind the other, and between their bytes ranges of log files.

They are gathered until there is nothing left to read, and leave in one send. Nothing here knows of requests.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.request import CloseConnection
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK

if TYPE_CHECKING:
    from oncelog.broker.log.results import FileRange
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.seams.transport import Transport

SEND_SOON_BYTES = 64 * 1024
"""Answers are gathered up to about this size before they are sent."""
FILE_CHUNK_BYTES = 1024 * 1024
"""How much of a file one sendfile moves, so that a fast reader starves nobody."""


class Sending:
    """The outgoing side of one connection."""

    __slots__ = ("_files", "_out", "_ranges", "blocked", "idle_since", "transport")

    def __init__(self, transport: Transport, files: FileSystem) -> None:
        self.transport = transport
        self._files = files
        self._out = bytearray()
        self._ranges: list[tuple[int, FileRange]] = []
        """Where in `_out` which part of a file goes."""
        self.idle_since = real_time.monotonic()
        """When the peer was last heard or written to, in seconds of real time."""
        self.blocked = False
        """Whether answers wait for the peer to read."""

    def release(self) -> None:
        """Let go of the files whose parts will not be sent."""
        for _, file_range in self._ranges:
            file_range.release()

    async def _flush(self) -> None:
        """Send all that is ready: bytes from memory, and between them ranges of files."""
        out = self._out
        if not self._ranges:
            sent = self.transport.send(out)
            if sent == len(out):
                out.clear()
                return
            if sent > 0:
                del out[:sent]
        await self._flush_slowly()

    async def _flush_slowly(self) -> None:
        out, self._out = self._out, bytearray()
        ranges, self._ranges = self._ranges, []
        position = 0
        try:
            with memoryview(out) as whole:
                for at, file_range in ranges:
                    await self._send_all(whole[position:at], more=True)
                    await self._send_range(file_range)
                    position = at
                await self._send_all(whole[position:])
        finally:
            for _, file_range in ranges:
                file_range.release()

    async def _send_all(self, view: memoryview, *, more: bool = False) -> None:
        while view:
            sent = self.transport.send(view, more=more)
            if sent == WOULD_BLOCK:
                await self._wait_writable()
            else:
                view = view[sent:]

    async def _wait_writable(self) -> None:
        self.idle_since = real_time.monotonic()
        self.blocked = True
        await self.transport.wait_writable()
        self.blocked = False

    async def _send_range(self, file_range: FileRange) -> None:
        """Send a part of a file, from the page cache where it is there, else read into it by a thread first."""
        file = file_range.file
        position, end = file_range.position, file_range.position + file_range.size
        while position < end:
            size = min(FILE_CHUNK_BYTES, end - position)
            try:
                if not file.is_cached(position, size):
                    await self._files.offload(partial(file.pread, size, position))
                fileno = file.fileno()
                data = file.pread(size, position) if fileno < 0 else b""
            except OSError as error:
                raise CloseConnection(f"a log file cannot be read: {error}") from error
            if fileno >= 0:
                await self._send_file(fileno, position, size)
            else:
                await self._send_all(memoryview(data), more=True)
            position += size

    async def _send_file(self, fileno: int, position: int, size: int) -> None:
        while size:
            sent = self.transport.send_file(fileno, position, size)
            if sent == WOULD_BLOCK:
                await self._wait_writable()
            elif sent == 0:
                raise CloseConnection("a log file is shorter than what was promised of it")
            else:
                position += sent
                size -= sent
