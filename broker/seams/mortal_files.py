"""`MortalFileSystem`: files of a "process" that can die while the process around it lives on.

It stands over another `FileSystem`, on disk or in memory. `MortalFileSystem.kill` is the death of the process: what
was written stays, locks and descriptors are given back, and whatever the dead process still tries raises ProcessDied.
`restart` begins the next process. `watch` lets a test see every write before and after it is done, and let the process
die there.

Each `MortalFile` passes its calls on to what it is now: the file itself, one that tells a watcher, or a dead one. So
nothing is asked on the way while nobody watches.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NoReturn, Protocol, TypeVar

from oncelog.broker.seams.error_groups import only_error
from oncelog.broker.seams.files import Buffer, File, FileSystem, Lock
from oncelog.broker.seams.memory_files import MemoryFileSystem, ProcessDied

T = TypeVar("T")

NO_POWER_LOSS = (
    "a real disk cannot lose power on command; keep the data in memory to lose what was not flushed"
)


class WriteWatcher(Protocol):
    """Sees the writes to open files (`File.append`, `File.pwrite`) in the loop's thread.

    It may call `MortalFileSystem.kill`: after `before_write` the data is then not written, after `after_write` it is,
    and the writer gets ProcessDied.
    """

    def before_write(self, path: str, data: Buffer) -> None:
        """``data`` is about to be written to the file ``path``."""
        ...

    def after_write(self, path: str, data: Buffer) -> None:
        """``data`` was written."""
        ...


class _DeadFile:
    """What a file of a dead process does."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ProcessDied(self.path)

    append = pwrite = pread = truncate = fsync = fileno = is_cached = pread_cached = acquire = _refuse
    size = release = close = _refuse


class _WatchedFile:
    """A file whose writes a watcher sees. `MortalFile` calls only what can write."""

    __slots__ = ("_file", "_files", "_watcher")

    def __init__(self, files: MortalFileSystem, file: File, watcher: WriteWatcher) -> None:
        self._files = files
        self._file = file
        self._watcher = watcher

    def append(self, data: Buffer) -> None:
        path = self._file.path
        self._watcher.before_write(path, data)
        self._files.check_alive(path)
        self._file.append(data)
        self._watcher.after_write(path, data)
        self._files.check_alive(path)

    def pwrite(self, data: Buffer, offset: int) -> None:
        path = self._file.path
        self._watcher.before_write(path, data)
        self._files.check_alive(path)
        self._file.pwrite(data, offset)
        self._watcher.after_write(path, data)
        self._files.check_alive(path)


class MortalFile:
    """An open file of a `MortalFileSystem`."""

    __slots__ = ("_file", "_files", "_holders", "_is_closed", "_now", "_writes")

    def __init__(self, files: MortalFileSystem, file: File) -> None:
        self._files = files
        self._file = file
        self._now: File | _DeadFile = file
        """``_file`` while the process lives, then a dead one."""
        self._writes: File | _WatchedFile | _DeadFile = file
        """Where writes go: as `_now`, but past the watcher if there is one."""
        self._holders = 0
        self._is_closed = False

    @property
    def path(self) -> str:
        return self._file.path

    def append(self, data: Buffer) -> None:
        self._writes.append(data)

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._writes.pwrite(data, offset)

    def pread(self, size: int, offset: int) -> bytes:
        return self._now.pread(size, offset)

    def size(self) -> int:
        return self._file.size()  # it is kept in memory

    def truncate(self, size: int) -> None:
        self._now.truncate(size)

    def fsync(self) -> None:
        self._now.fsync()

    def fileno(self) -> int:
        return self._now.fileno()

    def is_cached(self, offset: int, size: int) -> bool:
        return self._now.is_cached(offset, size)

    def pread_cached(self, size: int, offset: int) -> bytes | None:
        return self._now.pread_cached(size, offset)

    def acquire(self) -> None:
        self._now.acquire()
        self._holders += 1

    def release(self) -> None:
        if not self._holders and isinstance(self._now, _DeadFile):
            return  # the file system has released what the dead process held
        assert self._holders > 0
        self._holders -= 1
        self._file.release()
        self._forget_if_unused()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._file.close()
            self._forget_if_unused()

    def _forget_if_unused(self) -> None:
        if self._is_closed and not self._holders:
            self._files._open.discard(self)

    def _watch(self, watcher: WriteWatcher | None) -> None:
        if not isinstance(self._now, _DeadFile):
            self._writes = self._file if watcher is None else _WatchedFile(self._files, self._file, watcher)

    def _die(self) -> None:
        """A thread in the middle of a call on a held file keeps its descriptor until it releases it."""
        self._now = self._writes = _DeadFile(self._file.path)
        self.close()

    def _release_all(self) -> None:
        while self._holders:
            self.release()


class MortalLock:
    """See `Lock`."""

    __slots__ = ("_files", "_lock")

    def __init__(self, files: MortalFileSystem, lock: Lock) -> None:
        self._files = files
        self._lock = lock

    def release(self) -> None:
        self._files._locks.discard(self)
        self._lock.release()


class MortalFileSystem:
    """``inner`` is the file system that outlives the processes; nobody else may open its files meanwhile."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner
        self.is_dead = False
        """Whether the process was killed and the next one has not begun."""
        self._open: set[MortalFile] = set()
        self._locks: set[MortalLock] = set()
        self._watcher: WriteWatcher | None = None

    @property
    def open_files(self) -> int:
        """Files that are open, or closed and still held."""
        return len(self._open)

    # --- the ends of a process

    def kill(self) -> None:
        """The process dies: its open files and locks are gone. Until `restart`, whatever it tries raises ProcessDied.

        Files that a thread is still using are closed when it lets them go, at the latest at `restart`.
        """
        self.is_dead = True
        for file in list(self._open):
            file._die()
        for lock in list(self._locks):
            lock.release()

    def lose_power(self) -> None:
        """The process dies as by `kill`, and all bytes and names that were not synced are gone. Raises OSError
        (ENOTSUP) where the data is on a real disk; then nothing has changed."""
        if not isinstance(self.inner, MemoryFileSystem):
            raise OSError(errno.ENOTSUP, NO_POWER_LOSS)
        self.kill()
        self.inner.lose_power()
        self.inner.restart()

    def release_all(self) -> None:
        """Give back what the dead process still held. Its tasks and threads have ended."""
        assert self.is_dead
        for file in list(self._open):
            file._release_all()

    def restart(self) -> None:
        """A new process begins to use the files. The tasks and threads of the dead one have ended."""
        if self.is_dead:
            self.release_all()
            self.is_dead = False

    def check_alive(self, path: str) -> None:
        """Raises ProcessDied after `kill`. ``path`` is for its message."""
        if self.is_dead:
            raise ProcessDied(path)

    def watch(self, watcher: WriteWatcher | None) -> None:
        """Show all writes from now on to ``watcher``, or to nobody."""
        self._watcher = watcher
        for file in self._open:
            file._watch(watcher)

    # --- see `FileSystem`

    def _alive(self, path: str) -> FileSystem:
        if self.is_dead:
            raise ProcessDied(path)
        return self.inner

    def open(self, path: str, *, create: bool = False) -> MortalFile:
        file = MortalFile(self, self._alive(path).open(path, create=create))
        if self._watcher is not None:
            file._watch(self._watcher)
        self._open.add(file)
        return file

    def absolute_path(self, path: str) -> str:
        return self.inner.absolute_path(path)

    def exists(self, path: str) -> bool:
        return self._alive(path).exists(path)

    def is_dir(self, path: str) -> bool:
        return self._alive(path).is_dir(path)

    def listdir(self, path: str) -> list[str]:
        return self._alive(path).listdir(path)

    def makedirs(self, path: str, *, private: bool = False) -> None:
        self._alive(path).makedirs(path, private=private)

    def remove(self, path: str) -> None:
        self._alive(path).remove(path)

    def remove_tree(self, path: str) -> None:
        self._alive(path).remove_tree(path)

    def rename(self, source: str, target: str) -> None:
        self._alive(source).rename(source, target)

    def size(self, path: str) -> int:
        return self._alive(path).size(path)

    def modified_ms(self, path: str) -> int:
        return self._alive(path).modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._alive(path).set_modified_ms(path, modified_ms)

    def disk_space(self, path: str) -> tuple[int, int]:
        return self._alive(path).disk_space(path)

    def read_bytes(self, path: str) -> bytes:
        return self._alive(path).read_bytes(path)

    def replace(self, path: str, data: Buffer, *, sync_name: bool = True) -> None:
        self._alive(path).replace(path, data, sync_name=sync_name)

    def sync_dir(self, path: str) -> None:
        self._alive(path).sync_dir(path)

    def lock(self, path: str) -> MortalLock:
        lock = MortalLock(self, self._alive(path).lock(path))
        self._locks.add(lock)
        return lock

    async def offload(self, call: Callable[[], T]) -> T:
        return await self.inner.offload(call)

    async def sync(self, file: File) -> None:
        await self.inner.sync(file)


def without_deaths(error: BaseException) -> BaseException | None:
    """Return the error without the ProcessDied in it, and out of groups that hold nothing else; None if nothing is
    left.
    """
    if isinstance(error, BaseExceptionGroup):
        rest = error.split(ProcessDied)[1]
        return None if rest is None else only_error(rest)
    return None if isinstance(error, ProcessDied) else error
