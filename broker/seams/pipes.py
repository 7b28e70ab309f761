"""Kernel pipes through which bytes go from one socket to another without a copy in this process (splice(2), Linux).

A pipe takes the pages that the bytes arrived in. It pays for large pieces: two system calls move up to a megabyte.
"""

from __future__ import annotations

import fcntl
import os
from typing import Protocol

from oncelog.broker.seams import forks
from oncelog.broker.seams.platforms import HERE, Platform
from oncelog.broker.seams.transport import WOULD_BLOCK, SocketTransport, Transport

PIPE_BYTES = 1024 * 1024
"""The size that is asked for; Linux grants it to everybody (``fs.pipe-max-size``) while few are used."""
PIPES_MAX = 8
"""How many may be in use at once: each that waits for a slow reader keeps one."""
_MOVE, _NONBLOCK, _MORE = 1, 2, 4
"""``SPLICE_F_MOVE``, ``SPLICE_F_NONBLOCK``, ``SPLICE_F_MORE``."""


class Pipe(Protocol):
    """One pipe. It is filled when it is empty, and then drained."""

    @property
    def held(self) -> int:
        """Bytes in it."""

    def fill(self, source: Transport, size: int) -> int:
        """Move up to ``size`` bytes into it. Returns how many, 0 at the end of the stream, or WOULD_BLOCK. Raises
        OSError."""

    def drain(self, target: Transport, *, more: bool) -> int:
        """Move bytes out of it. Returns how many, or WOULD_BLOCK. ``more``: others follow. Raises OSError."""


class Pipes(Protocol):
    """The pipes of one proxy."""

    def can_join(self, source: Transport, target: Transport) -> bool:
        """Whether bytes can go from one to the other through a pipe."""

    def take(self) -> Pipe | None:
        """Return an empty pipe, which `give_back` ends the use of; None if too many are in use."""

    def give_back(self, pipe: Pipe) -> None:
        """Keep it for the next one if it is empty; close it otherwise."""

    def close(self) -> None:
        """Close the pipes that nobody uses. Those in use are closed when they are given back."""


class SocketPipe:
    """A `Pipe` between sockets. Raises OSError where this process or user can have no further one of that size."""

    __slots__ = ("__weakref__", "_held", "_read_end", "_write_end")

    def __init__(self, size_command: int) -> None:
        """``size_command``: fcntl's, that sets the size."""
        with forks.changing:
            self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            forks.note(self, SocketPipe.close)
        self._held = 0
        try:
            fcntl.fcntl(self._write_end, size_command, PIPE_BYTES)
        except OSError:
            self.close()
            raise

    @property
    def held(self) -> int:
        return self._held

    def fill(self, source: Transport, size: int) -> int:
        assert isinstance(source, SocketTransport), "can_join says so"
        assert not self._held, "a full pipe would look like a source without bytes"
        try:
            count = os.splice(source.fileno(), self._write_end, size, flags=_MOVE | _NONBLOCK)
        except BlockingIOError:
            return WOULD_BLOCK
        self._held = count
        return count

    def drain(self, target: Transport, *, more: bool) -> int:
        assert isinstance(target, SocketTransport), "can_join says so"
        flags = _MOVE | _NONBLOCK | _MORE if more else _MOVE | _NONBLOCK
        try:
            count = os.splice(self._read_end, target.fileno(), self._held, flags=flags)
        except BlockingIOError:
            return WOULD_BLOCK
        self._held -= count
        return count

    def close(self) -> None:
        """Close both ends. A second call does nothing."""
        with forks.changing:
            if self._read_end != -1:
                os.close(self._read_end)
                os.close(self._write_end)
                self._read_end = self._write_end = -1


class SocketPipes:
    """The `Pipes` of a proxy on the operating system's sockets."""

    def __init__(self, pipes_max: int = PIPES_MAX, platform: Platform = HERE) -> None:
        self._size_command = platform.pipe_size_command
        self._spare: list[SocketPipe] = []
        self._left = pipes_max
        self._is_closed = False

    def can_join(self, source: Transport, target: Transport) -> bool:
        if self._size_command is None:
            return False
        return isinstance(source, SocketTransport) and isinstance(target, SocketTransport)

    def take(self) -> SocketPipe | None:
        if not self._left or self._is_closed or self._size_command is None:
            return None
        try:
            pipe = self._spare.pop() if self._spare else SocketPipe(self._size_command)
        except OSError:  # no descriptor left, or too many pipes of this user: the bytes are copied then
            return None
        self._left -= 1
        return pipe

    def give_back(self, pipe: Pipe) -> None:
        assert isinstance(pipe, SocketPipe), "it was taken here"
        self._left += 1
        if pipe.held or self._is_closed:
            pipe.close()
        else:
            self._spare.append(pipe)

    def close(self) -> None:
        self._is_closed = True
        while self._spare:
            self._spare.pop().close()
