"""The package's disk in memory, crashed, filled up and broken on purpose.

What was not synced may vanish when the power goes, file by file, torn at any byte and in any order; a name that no
`sync_dir` covered may vanish, and so may a removal or a rename. Every choice comes from one seeded `random.Random`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Literal, TypeVar

import trio

from oncelog.broker.seams.files import Buffer
from oncelog.broker.seams.memory_disk import Directory, Inode
from oncelog.broker.seams.memory_files import MemoryFileSystem, Operation
from tests.sim.disk import Fault, SimulatedCrash, lose_power

T = TypeVar("T")

__all__ = ["Fault", "SimFileSystem", "SimulatedCrash"]

CHANGES = {"write", "truncate", "fsync", "rename", "remove", "makedirs", "sync_dir"}
"""Operations that a process may die in; so it may in the creation of a file."""


class SimFileSystem(MemoryFileSystem):
    """``crash_at``: the number (from 0) of the changing call in which the process dies; see `steps`.
    ``latency_s``: how long an offloaded call takes, in Trio's time. What it did counts from its beginning.
    ``counts``: calls by (operation, path).
    """

    def __init__(self, chance: random.Random, now_ms: Callable[[], int] = lambda: 0) -> None:
        super().__init__(now_ms)
        self._chance = chance
        self.faults: list[Fault] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.steps = 0
        self.crash_at: int | None = None
        self.latency_s = 0.0
        self.is_cold: Callable[[str], bool] = lambda path: False

    def crash(self, kind: Literal["process", "power"]) -> None:
        """End the process (all that was written stays) or the power; then the next one may use the disk."""
        if kind == "power":
            self.lose_power()
        else:
            self.kill()
        self.crash_at = None
        self.steps = 0
        self.restart()

    def lose_power(self) -> None:
        # A journal keeps changes in order; without one (or with several) any of them may be missing.
        changes = list(self._unsynced_names)
        if self._chance.random() < 0.5:
            kept = changes[: self._chance.randint(0, len(changes))]
        else:
            odds = self._chance.random()
            kept = [change for change in changes if self._chance.random() < odds]
        for change in kept:
            change.persist()
        super().lose_power()

    def _lose_bytes(self, inode: Inode) -> None:
        lose_power(inode, self._chance)

    def _enter(self, operation: Operation, at: str | Inode) -> None:
        path = at if isinstance(at, str) else at.path
        if operation in CHANGES:
            self._step(operation, path)
        else:
            self._fail(operation, path)

    def _step(self, operation: Operation, path: str) -> None:
        """Before each call that changes something."""
        if self.is_dead or self.steps == self.crash_at:
            self.is_dead = True
            raise SimulatedCrash(f"at step {self.steps}: {operation} {path}")
        self.steps += 1
        self._fail(operation, path)

    def _fail(self, operation: Operation, path: str) -> None:
        if self.is_dead:
            raise SimulatedCrash(f"after the crash: {operation} {path}")
        self.counts[operation, path] += 1
        for fault in self.faults:
            if fault.operation == operation != "write" and fault.times != 0 and fault.when(path):
                fault.times = None if fault.times is None else fault.times - 1
                raise OSError(fault.error, os.strerror(fault.error), path)

    def _create(self, path: str, directory: Directory, name: str) -> Inode:
        self._step("open", path)
        return super()._create(path, directory, name)

    def _write(self, inode: Inode, data: Buffer, offset: int) -> None:
        path, data = inode.path, bytes(data)
        if self.steps == self.crash_at and not self.is_dead:
            super()._write(inode, data[: self._chance.randint(0, len(data))], offset)
        self._step("write", path)
        taken, error = len(data), 0
        for fault in self.faults:
            if fault.operation == "write" and fault.times != 0 and fault.when(path):
                if fault.after_bytes < taken:
                    taken, error = fault.after_bytes, fault.error
                    fault.times = None if fault.times is None else fault.times - 1
                fault.after_bytes -= taken
        super()._write(inode, data[:taken], offset)
        if error:
            raise OSError(error, os.strerror(error), path)

    def _is_cached(self, inode: Inode) -> bool:
        return not self.is_cold(inode.path)

    async def offload(self, call: Callable[[], T]) -> T:
        """At once: simulation has no threads. The call is not cancelled half-way, as in a thread."""
        await trio.lowlevel.checkpoint()
        try:
            return call()
        finally:
            if self.latency_s:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.latency_s)
