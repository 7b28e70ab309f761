"""A disk in memory: see ``broker/seams/files.py`` for what is promised.

It keeps these promises and no more: `MemoryFileSystem.lose_power` takes all bytes that no `fsync` covered and
all names that no `sync_dir` covered. `kill` takes only what belongs to the process: open files and locks.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from itertools import islice
from typing import Literal, TypeAlias, TypeVar

import trio

from oncelog.broker.seams.clock import real_time
from oncelog.broker.seams.files import Buffer, File, without_extra_slashes
from oncelog.broker.seams.memory_disk import Directory, Inode, NameChange

T = TypeVar("T")

Operation: TypeAlias = Literal[
    "open", "read", "write", "truncate", "fsync", "rename", "remove", "makedirs", "sync_dir"
]

UNSYNCED_NAMES_MAX = 10_000
"""A loss of power undoes at most this many changes of names. Older ones count as synced, so that removed files
give their memory back."""

CAPACITY_BYTES = 1 << 40
"""The size of the volume for `disk_space`; half of it is free."""


class ProcessDied(BaseException):  # it must pass every `except Exception`
    """A killed process, most likely its clean-up, tried to use the disk."""


class MemoryFile:
    """An open file of a `MemoryFileSystem`; of no use after the death of the process that opened it."""

    __slots__ = ("_closed", "_files", "_generation", "_holders", "_inode")

    def __init__(self, files: MemoryFileSystem, inode: Inode) -> None:
        self._files = files
        self._inode = inode
        self._generation = files.generation
        self._holders = 0
        self._closed = False
        files.open_files += 1

    @property
    def path(self) -> str:
        return self._inode.path

    def _use(self) -> Inode:
        if self._generation != self._files.generation or (self._closed and not self._holders):
            if self._files.is_dead:
                raise ProcessDied(self.path)
            raise OSError(errno.EBADF, "file is closed", self.path)
        return self._inode

    def append(self, data: Buffer) -> None:
        inode = self._use()
        before = len(inode.content)
        try:
            self._files._write(inode, data, before)
        except OSError:
            del inode.content[before:]
            raise

    def pwrite(self, data: Buffer, offset: int) -> None:
        inode = self._use()
        assert 0 <= offset <= len(inode.content)
        self._files._write(inode, data, offset)

    def pread(self, size: int, offset: int) -> bytes:
        inode = self._use()
        self._files._enter("read", inode)
        return bytes(memoryview(inode.content)[offset : offset + size])

    def size(self) -> int:
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        inode = self._use()
        self._files._enter("truncate", inode)
        inode.truncate(size)

    def fsync(self) -> None:
        inode = self._use()
        self._files._enter("fsync", inode)
        inode.sync()

    def fileno(self) -> int:
        return -1

    def is_cached(self, offset: int, size: int) -> bool:
        return self._files._is_cached(self._use())

    def pread_cached(self, size: int, offset: int) -> bytes | None:
        return self.pread(size, offset) if self.is_cached(offset, size) else None

    def acquire(self) -> None:
        self._use()
        self._holders += 1
        self._files.held += 1

    def release(self) -> None:
        assert self._holders > 0
        self._holders -= 1
        if self._generation == self._files.generation:
            self._files.held -= 1

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._generation == self._files.generation:
                self._files.open_files -= 1


class MemoryLock:
    """See `Lock`."""

    __slots__ = ("_files", "_generation", "_path")

    def __init__(self, files: MemoryFileSystem, path: str) -> None:
        self._files = files
        self._path = path
        self._generation = files.generation

    def release(self) -> None:
        if self._generation == self._files.generation:
            self._files._locked.discard(self._path)


class MemoryFileSystem:
    """A disk in memory, used by one process at a time; it outlives them.

    ``open_files``, ``held``: files that are open, and calls of ``acquire`` that await their ``release``.
    """

    def __init__(
        self, now_ms: Callable[[], int] = real_time.now_ms, *, unsynced_names_max: int = UNSYNCED_NAMES_MAX
    ) -> None:
        """``now_ms``: wall time, for when files were last written."""
        self._now_ms = now_ms
        self._unsynced_names_max = unsynced_names_max
        self._root = Directory()
        self._unsynced_names: dict[NameChange, None] = {}
        """Changes of names that no `sync_dir` covered, oldest first."""
        self._locked: set[str] = set()
        self.is_dead = False
        """Whether the process was killed and the next one has not begun."""
        self.generation = 0
        """Rises with the death of each process."""
        self.open_files = 0
        self.held = 0

    # --- the ends of a process

    def kill(self) -> None:
        """The process dies: its open files and locks are gone. Until `restart`, reads and changes raise
        ProcessDied."""
        self.is_dead = True
        self.generation += 1
        self.open_files = self.held = 0
        self._locked.clear()

    def lose_power(self) -> None:
        """The process dies as by `kill`, and all bytes and names that were not synced are gone."""
        self.kill()
        self._unsynced_names.clear()
        self._lose_names(self._root)

    def restart(self) -> None:
        """A new process begins to use the disk."""
        self.is_dead = False

    def _lose_names(self, directory: Directory) -> None:
        directory.entries = dict(directory.durable)
        directory.unsynced.clear()
        for name, node in directory.entries.items():
            node.parent, node.name = directory, name
            if isinstance(node, Directory):
                self._lose_names(node)
            else:
                self._lose_bytes(node)

    def _lose_bytes(self, inode: Inode) -> None:
        if inode.is_dirty:
            inode.restore(inode.durable)

    # --- what a test that breaks disks overrides

    def _enter(self, operation: Operation, at: str | Inode) -> None:
        """Called before every operation but ``write``, with its path or file."""
        if self.is_dead:
            raise ProcessDied(f"{operation} {at if isinstance(at, str) else at.path}")

    def _write(self, inode: Inode, data: Buffer, offset: int) -> None:
        inode.write(data, offset, self._now_ms())

    def _is_cached(self, inode: Inode) -> bool:
        return True

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
            node.parent, node.name = target
            target[0].entries[target[1]] = node
        change = NameChange(node, source, target)
        self._unsynced_names[change] = None
        for directory in change.directories():
            directory.unsynced[change] = None
        if len(self._unsynced_names) > self._unsynced_names_max:
            for oldest in list(islice(self._unsynced_names, self._unsynced_names_max // 2)):
                self._sync_name(oldest)

    def _sync_name(self, change: NameChange) -> None:
        del self._unsynced_names[change]
        for directory in change.directories():
            directory.unsynced.pop(change, None)
        change.persist()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self._enter("open", path)
        directory, name = self._split(path)
        node = directory.entries.get(name)
        if node is None and create:
            node = self._create(path, directory, name)
        return MemoryFile(self, node if isinstance(node, Inode) else self._inode(path))

    def _create(self, path: str, directory: Directory, name: str) -> Inode:
        inode = Inode()
        inode.modified_ms = self._now_ms()
        self._change(inode, None, (directory, name))
        return inode

    def absolute_path(self, path: str) -> str:
        return without_extra_slashes(path)

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

    def makedirs(self, path: str, *, private: bool = False) -> None:
        above = ""
        for name in path.strip("/").split("/"):
            directory = self._directory(above)
            above = f"{above}/{name}"
            if name not in directory.entries:
                self._enter("makedirs", above)
                self._change(Directory(), None, (directory, name))
        self._directory(path)

    def remove(self, path: str) -> None:
        inode = self._inode(path)
        self._enter("remove", path)
        self._change(inode, self._split(path), None)

    def remove_tree(self, path: str) -> None:
        directory = self._directory(path)
        for name, node in list(directory.entries.items()):
            if isinstance(node, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self._enter("remove", path)
        self._change(directory, self._split(path), None)

    def rename(self, source: str, target: str) -> None:
        node = self._find(source)
        if isinstance(node, Directory) and self.exists(target) and self.listdir(target):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), source, None, target)
        self._enter("rename", source)
        self._change(node, self._split(source), self._split(target))

    def size(self, path: str) -> int:
        return len(self._inode(path).content)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._inode(path).modified_ms = modified_ms

    def disk_space(self, path: str) -> tuple[int, int]:
        self._find(path)
        return CAPACITY_BYTES, CAPACITY_BYTES // 2

    def read_bytes(self, path: str) -> bytes:
        self._enter("read", path)
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
        self._enter("sync_dir", path)
        for change in list(directory.unsynced):
            self._sync_name(change)

    def lock(self, path: str) -> MemoryLock:
        self.open(path, create=True).close()
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "held by another process", path)
        self._locked.add(path)
        return MemoryLock(self, path)

    async def offload(self, call: Callable[[], T]) -> T:
        """At once: nothing here blocks."""
        await trio.lowlevel.checkpoint()
        return call()

    async def sync(self, file: File) -> None:
        file.acquire()
        try:
            await self.offload(file.fsync)
        finally:
            file.release()
