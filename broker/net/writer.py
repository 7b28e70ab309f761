"""Sends responses: encoded one behind the other, with ranges of log files between their bytes.

They are gathered until the connection has handled all that it has read, and leave in one send. Nothing here knows of
requests.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from oncelog.broker.net.held_bytes import HeldBytes
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.transport import WOULD_BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.log.results import FileRange
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.seams.transport import Transport

SEND_SOON_BYTES = 64 * 1024
"""Responses are gathered up to about this size before they are sent."""
FILE_CHUNK_BYTES = 1024 * 1024
"""Bytes of a file that one sendfile moves, so that a fast reader starves nobody."""
TRUNCATED = "a log file is shorter than its range in a response"
"""Why a connection is closed whose response holds records that were truncated."""


class ResponseWriter:
    """The outgoing side of one connection. ``unsent`` counts what the peers of all connections do not read, and
    ``close`` closes this one, with a reason.
    """

    __slots__ = ("_close", "_files", "_transport", "blocked_since", "out", "ranges", "unsent")

    def __init__(
        self,
        transport: Transport,
        files: FileSystem,
        unsent: HeldBytes,
        close: Callable[[str], None],
    ) -> None:
        self._transport = transport
        self._files = files
        self._close = close
        self.unsent = unsent
        self.out = bytearray()
        """Encoded responses that are not sent yet. `flush` may replace the buffer."""
        self.ranges: list[tuple[int, FileRange]] = []
        """Where in `out` which range of a file goes."""
        self.blocked_since: float | None = None
        """Since when the peer has read nothing while responses wait for it (real time, seconds)."""

    def discard(self) -> None:
        """Drop the unsent bytes, and release their files."""
        self.out.clear()
        for _, file_range in self.ranges:
            file_range.release()
        self.ranges.clear()

    def send_now(self) -> None:
        """Send what needs no waiting and no file; `flush` sends the rest and raises any error."""
        if self.ranges:
            return
        try:
            sent = self._transport.send(self.out)
        except (OSError, trio.ClosedResourceError):
            return
        if sent > 0:
            del self.out[:sent]

    async def flush(self) -> None:
        """Send everything. Raises OSError and trio.ClosedResourceError where the peer is lost, CloseConnection where a
        file cannot be read.
        """
        out = self.out
        if not self.ranges:
            sent = self._transport.send(out)
            if sent == len(out):
                out.clear()
                return
            if sent > 0:
                del out[:sent]
        await self._flush_slowly()

    async def _flush_slowly(self) -> None:
        """As `flush`, and wait for the peer and for files."""
        out, self.out = self.out, bytearray()
        ranges, self.ranges = self.ranges, []
        position = 0
        self.hold(len(out))
        try:
            with memoryview(out) as whole:
                for at, file_range in ranges:
                    await self._send_all(whole[position:at], more=True)
                    await self._send_range(file_range)
                    position = at
                await self._send_all(whole[position:])
        finally:
            self.release()
            for _, file_range in ranges:
                file_range.release()

    async def flush_if_full(self) -> None:
        """Flush if there are at least `SEND_SOON_BYTES`."""
        if len(self.out) >= SEND_SOON_BYTES:
            await self.flush()

    def hold(self, size: int) -> None:
        """Count so many bytes as held for a peer that does not read. The connection with most of them may be closed."""
        self.unsent.hold(self._close, size)

    def release(self) -> None:
        """Count no bytes of this connection as held any more. So a `flush` that waits ends earlier counts, too."""
        self.unsent.release(self._close)

    async def _send_all(self, view: memoryview, *, more: bool = False) -> None:
        while view:
            sent = self._transport.send(view, more=more)
            if sent == WOULD_BLOCK:
                await self._wait_writable()
            else:
                view = view[sent:]

    async def _wait_writable(self) -> None:
        self.blocked_since = real_time.monotonic()
        await self._transport.wait_writable()
        self.blocked_since = None

    async def _send_range(self, file_range: FileRange) -> None:
        """Send a range of a file from the page cache; a thread first reads what is not there into it.

        If file or transport cannot sendfile (in simulation, under TLS), the bytes pass through a bounded buffer.
        """
        file = file_range.file
        position, end = file_range.position, file_range.position + file_range.size
        while position < end:
            size = min(FILE_CHUNK_BYTES, end - position)
            try:
                if not file.is_cached(position, size):
                    await self._files.offload(partial(file.pread, size, position))
                fileno = file.fileno() if self._transport.can_send_file else -1
                data = file.pread(size, position) if fileno < 0 else b""
            except OSError as error:
                raise CloseConnection(f"a log file cannot be read: {error}") from error
            if fileno >= 0:
                await self._send_file(fileno, position, size)
            elif len(data) < size:
                raise CloseConnection(TRUNCATED)
            else:
                await self._send_all(memoryview(data), more=True)
            position += size

    async def _send_file(self, fileno: int, position: int, size: int) -> None:
        while size:
            sent = self._transport.send_file(fileno, position, size)
            if sent == WOULD_BLOCK:
                await self._wait_writable()
            elif sent == 0:
                raise CloseConnection(TRUNCATED)
            else:
                position += sent
                size -= sent
