"""Pipes between memory transports: what `oncelog.broker.seams.pipes` is for sockets."""

from __future__ import annotations

from oncelog.broker.seams.pipes import Pipe
from oncelog.broker.seams.transport import WOULD_BLOCK, Transport


class MemoryPipe:
    """A `Pipe` of a few bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._data = b""

    @property
    def held(self) -> int:
        return len(self._data)

    def fill(self, source: Transport, size: int) -> int:
        assert not self._data
        buffer = memoryview(bytearray(min(size, self._bytes_max)))
        count = source.receive_into(buffer)
        if count != WOULD_BLOCK:
            self._data = bytes(buffer[:count])
        return count

    def drain(self, target: Transport, *, more: bool) -> int:
        count = target.send(self._data, more=more)
        if count != WOULD_BLOCK:
            self._data = self._data[count:]
        return count


class MemoryPipes:
    """`Pipes` that count what they are used for."""

    def __init__(self, bytes_max: int = 100_000, pipes_max: int = 8) -> None:
        self.taken = 0
        self.refused = 0
        self.in_use: list[Pipe] = []
        self._bytes_max = bytes_max
        self._pipes_max = pipes_max

    def can_join(self, source: Transport, target: Transport) -> bool:
        return True

    def take(self) -> MemoryPipe | None:
        if len(self.in_use) == self._pipes_max:
            self.refused += 1
            return None
        self.taken += 1
        pipe = MemoryPipe(self._bytes_max)
        self.in_use.append(pipe)
        return pipe

    def give_back(self, pipe: Pipe) -> None:
        self.in_use.remove(pipe)

    def close(self) -> None:
        assert not self.in_use
