"""The operating system's files: see ``broker/seams/files.py`` for what is promised."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

import trio

from oncelog.broker.seams import forks
from oncelog.broker.seams.files import Buffer, File, without_extra_slashes
from oncelog.broker.seams.platforms import HERE, Platform, lock_file, open_files_limit, sync_file

T = TypeVar("T")

OPEN_FILES_DEFAULT = 16384
"""Descriptors that the log store keeps open at most; `SHARE_OF_LIMIT` of the process's limit may be less."""

SHARE_OF_LIMIT = 0.75
"""The log store's share of the descriptors that the process may open."""

OFFLOAD_THREADS = 8
"""Blocking calls (fsync, cold reads) that may run at the same time."""

CACHE_PROBE_STRIDE = 64 * 1024
"""Bytes between two probes of ``is_cached``: half of what Linux reads ahead, so that it misses only small
holes."""


def raise_open_files_limit() -> None:
    """Let this process open as many descriptors as it may: the usual soft limit is 1024, on macOS 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = open_files_limit(soft, hard, resource.RLIM_INFINITY)
    if wanted != soft:
        # If the system refuses, the present limit stays.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class OsFile:
    """A file of the operating system. Its descriptor may be closed between any two calls, and is reopened when
    needed."""

    __slots__ = ("_closed", "_fd", "_files", "_holders", "_size", "_used", "path")

    def __init__(self, files: OsFileSystem, path: str, fd: int, size: int) -> None:
        self.path = path
        self._files = files
        self._fd = fd
        self._size = size
        self._holders = 0
        self._used = True
        self._closed = False

    def append(self, data: Buffer) -> None:
        fd = self._fd
        if fd < 0:
            fd = self._files._reopen(self)
        self._used = True
        size = self._size
        wanted = len(data)
        try:
            if os.pwrite(fd, data, size) != wanted:
                # The kernel writes less than asked only if the disk is full or a size limit is reached.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        except OSError as error:
            try:
                os.ftruncate(fd, size)
            except OSError as second:
                error.add_note(f"and {self.path} could not be cut back to {size} bytes: {second}")
            raise
        self._size = size + wanted

    def pread(self, size: int, offset: int) -> bytes:
        fd = self._fd if self._fd >= 0 else self._files._reopen(self)
        self._used = True
        data = os.pread(fd, size, offset)
        while len(data) < size and offset + len(data) < self._size:
            more = os.pread(fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, data: Buffer, offset: int) -> None:
        assert 0 <= offset <= self._size
        fd = self._fd if self._fd >= 0 else self._files._reopen(self)
        self._used = True
        written = os.pwrite(fd, data, offset)
        self._size = max(self._size, offset + written)
        if written != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def size(self) -> int:
        return self._size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd if self._fd >= 0 else self._files._reopen(self), size)
        self._size = size

    def fsync(self) -> None:
        if self._files.durable:
            fd = self._fd if self._fd >= 0 else self._files._reopen(self)
            sync_file(fd, data_only=True, platform=self._files.platform)

    def fileno(self) -> int:
        self._used = True
        return self._fd if self._fd >= 0 else self._files._reopen(self)

    def is_cached(self, offset: int, size: int) -> bool:
        fd = self._fd if self._fd >= 0 else self._files._reopen(self)
        return _is_cached(fd, offset, min(size, self._size - offset))

    def pread_cached(self, size: int, offset: int) -> bytes | None:
        fd = self._fd if self._fd >= 0 else self._files._reopen(self)
        self._used = True
        if _NOWAIT is None:
            return self.pread(size, offset)
        buffer = bytearray(size)
        try:
            if os.preadv(fd, (buffer,), offset, _NOWAIT) != size:
                return None
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return None
            if error.errno == errno.EOPNOTSUPP:
                return self.pread(size, offset)
            raise
        return bytes(buffer)

    def acquire(self) -> None:
        if self._fd < 0:
            self._files._reopen(self)
        self._holders += 1

    def release(self) -> None:
        assert self._holders > 0
        self._holders -= 1
        if self._closed and not self._holders:
            self._files._forget(self)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if not self._holders:
                self._files._forget(self)


class OsFileSystem:
    """The operating system's files.

    At most ``open_files_max`` of the open files keep their descriptor, and never more than `SHARE_OF_LIMIT` of
    RLIMIT_NOFILE: the rest is for connections. The least recently used descriptors are closed; the file is
    reopened by its path at the next use. The descriptor of a held file (``File.acquire``) is never closed, so
    many holders may exceed the limit.
    """

    def __init__(
        self, open_files_max: int = OPEN_FILES_DEFAULT, *, durable: bool = True, platform: Platform = HERE
    ) -> None:
        """``durable``: False if the directory is removed at the end; then nothing is synced."""
        self.durable = durable
        self.platform = platform
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.open_files_max = open_files_max
        if allowed != resource.RLIM_INFINITY:
            self.open_files_max = max(1, min(open_files_max, int(allowed * SHARE_OF_LIMIT)))
        # In the order of opening. A file that was used since the last look gets a second chance, so that a use
        # sets a flag and moves nothing in a list.
        self._open: OrderedDict[OsFile, None] = OrderedDict()
        self._by_directory: dict[str, set[OsFile]] = {}
        self._limiter = trio.CapacityLimiter(OFFLOAD_THREADS)

    @property
    def open_descriptors(self) -> int:
        return len(self._open)

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC
        fd = os.open(path, flags | os.O_CREAT, _mode(path, 0o644)) if create else os.open(path, flags)
        file = OsFile(self, path, fd, os.fstat(fd).st_size)
        self._by_directory.setdefault(_parent(path), set()).add(file)
        self._make_room()
        self._open[file] = None
        return file

    def _reopen(self, file: OsFile) -> int:
        if file._closed:
            raise OSError(errno.EBADF, "file is closed", file.path)
        self._make_room()
        file._fd = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        file._used = True
        self._open[file] = None
        return file._fd

    def _make_room(self) -> None:
        opened = self._open
        looks = 2 * len(opened)
        while len(opened) >= self.open_files_max and looks:
            looks -= 1
            file = next(iter(opened))
            if file._used or file._holders:
                file._used = False
                opened.move_to_end(file)
            else:
                del opened[file]
                os.close(file._fd)
                file._fd = -1

    def _forget(self, file: OsFile) -> None:
        """Close a file for good."""
        directory = _parent(file.path)
        siblings = self._by_directory[directory]
        siblings.discard(file)
        if not siblings:
            del self._by_directory[directory]
        if file._fd >= 0:
            del self._open[file]
            os.close(file._fd)
            file._fd = -1

    def absolute_path(self, path: str) -> str:
        return without_extra_slashes(path if path.startswith("/") else f"{os.getcwd()}/{path}")

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def makedirs(self, path: str, *, private: bool = False) -> None:
        os.makedirs(path, 0o700 if private else _mode(path, 0o777), exist_ok=True)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        for name in os.listdir(path):
            inside = f"{path}/{name}"
            if os.path.isdir(inside) and not os.path.islink(inside):
                self.remove_tree(inside)
            else:
                os.remove(inside)
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)
        inside = self._by_directory.pop(source, None)
        if inside is not None:
            for file in inside:
                file.path = target + file.path[len(source) :]
            self._by_directory.setdefault(target, set()).update(inside)
            return
        siblings = self._by_directory.get(_parent(source), ())
        for file in [file for file in siblings if file.path == source]:
            self._by_directory[_parent(source)].discard(file)
            file.path = target
            self._by_directory.setdefault(_parent(target), set()).add(file)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def disk_space(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: Buffer, *, sync_name: bool = True) -> None:
        beside = path + ".tmp"
        with open(beside, "wb", buffering=0, opener=_create) as file:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), beside)
            if self.durable:
                sync_file(file.fileno(), platform=self.platform)
        os.rename(beside, path)
        if sync_name:
            self.sync_dir(_parent(path))

    def sync_dir(self, path: str) -> None:
        if not self.durable:
            return
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            sync_file(fd, platform=self.platform)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        with forks.changing:
            lock = OsLock(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, _mode(path, 0o644)))
            forks.note(lock, OsLock.release)
        try:
            lock_file(lock.fileno(), self.platform)
        except OSError as error:
            lock.release()
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise BlockingIOError(error.errno, "held by another process", path) from None
            raise
        return lock

    async def offload(self, call: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(call, limiter=self._limiter)

    async def sync(self, file: File) -> None:
        file.acquire()
        try:
            await self.offload(file.fsync)
        finally:
            file.release()


_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


class OsLock:
    """See `Lock`. The lock belongs to the open file, and ends when the last process that shares it has closed it."""

    __slots__ = ("__weakref__", "_fd")

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def release(self) -> None:
        with forks.changing:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")


def _mode(path: str, most: int) -> int:
    """Return the mode of a new file or directory: ``most``, but nobody gets a right that the parent directory does not
    give. So a data directory that only its user may enter has files that only its user may read, wherever they are
    taken, and one that was shared stays so.
    """
    try:
        return most & (os.stat(_parent(path)).st_mode | stat.S_IRWXU)
    except FileNotFoundError:
        return most


def _create(path: str, flags: int) -> int:
    return os.open(path, flags, _mode(path, 0o666))


def _is_cached(fd: int, offset: int, size: int) -> bool:
    """Probe one byte of every stride, and the last one: a read of the whole range would copy it."""
    if size <= 0 or not hasattr(os, "RWF_NOWAIT"):
        return True
    byte = [bytearray(1)]
    with contextlib.suppress(BlockingIOError):
        try:
            for position in (*range(offset, offset + size - 1, CACHE_PROBE_STRIDE), offset + size - 1):
                os.preadv(fd, byte, position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
        return True
    return False
