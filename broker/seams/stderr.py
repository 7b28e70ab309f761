"""`StderrSink`: log lines go to standard error and never wait for its reader.

The broker has one thread, so a stopped terminal or a full pipe must not block a log call. A non-blocking
descriptor would be non-blocking for all who share it, the shell included. So it is polled first:
a writable pipe, terminal or socket takes `CHUNK_BYTES` without blocking (POSIX: PIPE_BUF). Other lines wait in
memory for the next call, up to a limit; lines beyond that are lost and counted."""

from __future__ import annotations

import os
import select
from collections import deque

from oncelog.broker.seams.platforms import HERE, Platform, writable_now

CHUNK_BYTES = 512 if not hasattr(select, "PIPE_BUF") else select.PIPE_BUF
"""Bytes that are written at most after one poll."""
WAITING_MAX_BYTES = 256 * 1024
"""Bytes of lines that wait for a reader; further lines are lost."""


class StderrSink:
    """Lines to a file descriptor; a write never blocks."""

    __slots__ = ("_descriptor", "_lost", "_waiting", "_waiting_bytes", "_writable_now")

    def __init__(self, descriptor: int = 2, platform: Platform = HERE) -> None:
        self._descriptor = descriptor
        self._writable_now = writable_now(descriptor, platform)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._lost = 0

    def write(self, line: bytes) -> None:
        """Write a line, or keep it for later, or (see `take_lost`) lose it."""
        self.flush()
        if self._waiting_bytes + len(line) > WAITING_MAX_BYTES:
            self._lost += 1
            return
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        self.flush()

    def flush(self) -> None:
        """Write waiting lines as far as the descriptor takes them now."""
        while self._waiting and self._writable_now():
            line = self._waiting.popleft()
            try:
                written = os.write(self._descriptor, line[:CHUNK_BYTES])
            except BlockingIOError:
                self._waiting.appendleft(line)
                return
            except OSError:
                written = len(line)  # nobody will ever read it: the reader is gone
            self._waiting_bytes -= written
            if written < len(line):
                self._waiting.appendleft(line[written:])

    def take_lost(self) -> int:
        """The number of lines lost since the last call; 0 while lines still wait."""
        if self._waiting:
            return 0
        lost, self._lost = self._lost, 0
        return lost
