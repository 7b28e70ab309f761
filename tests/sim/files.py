"""Files in memory that can be crashed, filled up and broken on purpose.

`SimFileSystem` keeps the promises of ``broker/seams/files.py`` and no more: what was not fsynced may vanish
when the power goes, file by file, torn at any byte and in any order; a name that no `sync_dir` covered may
vanish, and so may a removal or a rename. Every choice comes from one seeded `random.Random`.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Literal, TypeVar

import trio

from oncelog.broker.seams.files import Buffer, File
from tests.sim.disk import Change, Directory, Fault, Inode, Operation, SimulatedCrash

T = TypeVar("T")

__all__ = ["Fault", "SimFile", "SimFileSystem", "SimLock", "SimulatedCrash"]


class SimFile:
    """An open file of a `SimFileSystem`; dead after the crash that ended its process."""

    def __init__(self, files: SimFileSystem, path: str, inode: Inode) -> None:
        self.path = path
        self._files = files
        self._inode = inode
        self._generation = files.generation
        self._holders = 0
        self._closed = False
        files._handles.add(self)

    def _use(self, operation: Operation | None = None) -> Inode:
        if self._generation != self._files.generation or (self._closed and not self._holders):
            raise OSError(errno.EBADF, "file is closed", self.path)
        if operation is not None:
            self._files._step(operation, self.path)
        return self._inode

    def append(self, data: Buffer) -> None:
        inode = self._use()
        before = len(inode.content)
        try:
            self._files._write(inode, self.path, bytes(data), before)
        except OSError:
            del inode.content[before:]
            raise

    def pwrite(self, data: Buffer, offset: int) -> None:
        inode = self._use()
        assert 0 <= offset <= len(inode.content)
        self._files._write(inode, self.path, bytes(data), offset)

    def pread(self, size: int, offset: int) -> bytes:
        inode = self._use()
        self._files._fail("read", self.path)
        return bytes(inode.content[offset : offset + size])

    def size(self) -> int:
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        inode = self._use("truncate")
        inode.dirty(min(size, len(inode.content)))
        del inode.content[size:]
        inode.content.extend(bytes(size - len(inode.content)))

    def fsync(self) -> None:
        self._use("fsync").sync()

    def fileno(self) -> int:
        return -1

    def is_cached(self, offset: int, size: int) -> bool:
        self._use()
        return not self._files.is_cold(self.path)

    def pread_cached(self, size: int, offset: int) -> bytes | None:
        return self.pread(size, offset) if self.is_cached(offset, size) else None

    def acquire(self) -> None:
        self._use()
        self._holders += 1
        self._files.held += 1

    def release(self) -> None:
        assert self._holders > 0
        self._holders -= 1
        self._files.held -= 1

    def close(self) -> None:
        self._closed = True
        self._files._handles.discard(self)


class SimLock:
    def __init__(self, files: SimFileSystem, path: str) -> None:
        self._files = files
        self._path = path
        self._generation = files.generation

    def release(self) -> None:
        if self._generation == self._files.generation:
            self._files._locked.discard(self._path)


class SimFileSystem:
    """A disk in memory.

    ``crash_at``: the number (from 0) of the changing call in which the process dies; see `steps`.
    ``latency_s``: how long an offloaded call takes, in Trio's time. What it did counts from its beginning.
    ``held``: files acquired and not released, over all files. ``counts``: calls by (operation, path).
    """

    def __init__(self, chance: random.Random, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._chance = chance
        self._now_ms = now_ms
        self._root = Directory()
        self._changes: list[Change] = []
        self._locked: set[str] = set()
        self._dead = False
        self._handles: set[SimFile] = set()
        self.generation = 0
        self.faults: list[Fault] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.steps = 0
        self.crash_at: int | None = None
        self.latency_s = 0.0
        self.held = 0
        self.is_cold: Callable[[str], bool] = lambda path: False

    @property
    def open_files(self) -> int:
        return len(self._handles)

    # --- faults and crashes

    @property
    def is_dead(self) -> bool:
        """Whether the process died at ``crash_at``; until `crash` says what is left."""
        return self._dead

    def crash(self, kind: Literal["process", "power"]) -> None:
        """End the process (all that was written stays) or the power; then the disk can be used anew."""
        self.generation += 1
        self.crash_at = None
        self.steps = 0
        self.held = 0
        self._dead = False
        self._locked.clear()
        self._handles.clear()
        if kind == "power":
            # A journal keeps changes in order; without one (or with several) any of them may be missing.
            if self._chance.random() < 0.5:
                kept = self._changes[: self._chance.randint(0, len(self._changes))]
            else:
                odds = self._chance.random()
                kept = [change for change in self._changes if self._chance.random() < odds]
            for change in kept:
                change.persist()
            self._changes.clear()
            self._lose_power(self._root)

    def _lose_power(self, directory: Directory) -> None:
        directory.entries = dict(directory.durable)
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._lose_power(node)
            else:
                node.lose_power(self._chance)

    def _step(self, operation: Operation, path: str) -> None:
        """Before each call that changes something."""
        if self._dead or self.steps == self.crash_at:
            self._dead = True
            raise SimulatedCrash(f"at step {self.steps}: {operation} {path}")
        self.steps += 1
        self._fail(operation, path)

    def _fail(self, operation: Operation, path: str) -> None:
        if self._dead:
            raise SimulatedCrash(f"after the crash: {operation} {path}")
        self.counts[operation, path] += 1
        for fault in self.faults:
            if fault.operation == operation != "write" and fault.times != 0 and fault.when(path):
                fault.times = None if fault.times is None else fault.times - 1
                raise OSError(fault.error, os.strerror(fault.error), path)

    def _write(self, inode: Inode, path: str, data: bytes, offset: int) -> None:
        if self.steps == self.crash_at and not self._dead:
            inode.write(data[: self._chance.randint(0, len(data))], offset, self._now_ms())
        self._step("write", path)
        taken, error = len(data), 0
        for fault in self.faults:
            if fault.operation == "write" and fault.times != 0 and fault.when(path):
                if fault.after_bytes < taken:
                    taken, error = fault.after_bytes, fault.error
                    fault.times = None if fault.times is None else fault.times - 1
                fault.after_bytes -= taken
        inode.write(data[:taken], offset, self._now_ms())
        if error:
            raise OSError(error, os.strerror(error), path)

    # --- names

    def _find(self, path: str) -> Inode | Directory:
        node: Inode | Directory = self._root
        for name in path.split("/"):
            if name:
                if not isinstance(node, Directory):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
                if name not in node.entries:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                node = node.entries[name]
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _split(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def _change(
        self,
        node: Inode | Directory,
        source: tuple[Directory, str] | None,
        target: tuple[Directory, str] | None,
    ) -> None:
        if source is not None:
            del source[0].entries[source[1]]
        if target is not None:
            target[0].entries[target[1]] = node
        self._changes.append(Change(node, source, target))

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self._fail("open", path)
        directory, name = self._split(path)
        if create and name not in directory.entries:
            self._step("open", path)
            self._change(Inode(), None, (directory, name))
        return SimFile(self, path, self._inode(path))

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return self.exists(path) and isinstance(self._find(path), Directory)

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def makedirs(self, path: str) -> None:
        above = ""
        for name in path.strip("/").split("/"):
            directory = self._directory(above)
            above = f"{above}/{name}"
            if name not in directory.entries:
                self._step("makedirs", above)
                self._change(Directory(), None, (directory, name))
        self._directory(path)

    def remove(self, path: str) -> None:
        inode = self._inode(path)
        self._step("remove", path)
        self._change(inode, self._split(path), None)

    def remove_tree(self, path: str) -> None:
        directory = self._directory(path)
        for name, node in list(directory.entries.items()):
            if isinstance(node, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self._step("remove", path)
        self._change(directory, self._split(path), None)

    def rename(self, source: str, target: str) -> None:
        node = self._find(source)
        if isinstance(node, Directory) and self.exists(target) and self.listdir(target):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), source, None, target)
        self._step("rename", source)
        self._change(node, self._split(source), self._split(target))
        self._renamed(source, target)

    def _renamed(self, source: str, target: str) -> None:
        for file in self._handles:
            if file.path == source or file.path.startswith(source + "/"):
                file.path = target + file.path[len(source) :]

    def size(self, path: str) -> int:
        return len(self._inode(path).content)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._inode(path).modified_ms = modified_ms

    def disk_space(self, path: str) -> tuple[int, int]:
        self._find(path)
        return 1 << 40, 1 << 39

    def read_bytes(self, path: str) -> bytes:
        self._fail("read", path)
        return bytes(self._inode(path).content)

    def replace(self, path: str, data: Buffer, *, sync_name: bool = True) -> None:
        beside = self.open(path + ".tmp", create=True)
        beside.truncate(0)
        beside.append(data)
        beside.fsync()
        beside.close()
        self.rename(path + ".tmp", path)
        if sync_name:
            self.sync_dir(path.rpartition("/")[0])

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self._step("sync_dir", path)
        for change in self._changes:
            if change.touches(directory):
                change.persist()
        self._changes = [change for change in self._changes if not change.touches(directory)]

    def lock(self, path: str) -> SimLock:
        self.open(path, create=True).close()
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "held by another process", path)
        self._locked.add(path)
        return SimLock(self, path)

    async def offload(self, call: Callable[[], T]) -> T:
        """At once: simulation has no threads. The call is not cancelled half-way, as in a thread."""
        await trio.lowlevel.checkpoint()
        try:
            return call()
        finally:
            if self.latency_s:
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.latency_s)

    async def sync(self, file: File) -> None:
        file.acquire()
        try:
            await self.offload(file.fsync)
        finally:
            file.release()
