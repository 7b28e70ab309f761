"""`FileSystem` and `File`: what the broker needs of a disk.

There are the operating system's (``os_files.py``) and a disk in memory (``memory_files.py``); one suite runs over both.
What is promised:

- ``append`` and ``pwrite`` reach the operating system before they return: they survive the death of this
  process.
- Only what ``File.fsync`` covered, under a name that ``sync_dir`` covered, survives a loss of power.
- ``rename`` is atomic: everybody sees the old file or the new one. It is not durable before ``sync_dir``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from oncelog.wire.primitives import Buffer as Buffer

T = TypeVar("T")


class File(Protocol):
    """An open file. Only the loop's thread may use it, but between ``acquire`` and ``release`` a worker thread
    may call ``fsync`` and ``pread``.
    """

    @property
    def path(self) -> str:
        """Its present path, also after ``FileSystem.rename`` of the file or of its directory."""
        ...

    def append(self, data: Buffer) -> None:
        """Write all of ``data`` (bytes) at the end, or raise OSError and leave the file as it was."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """At most ``size`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Overwrite from ``offset``, which is at most ``size()``. After an OSError part of it may be
        overwritten."""
        ...

    def size(self) -> int:
        """In bytes; kept in memory, no system call. Nobody else may write the file while it is open here."""
        ...

    def truncate(self, size: int) -> None:
        """Cut to ``size`` bytes, or fill up with zero bytes."""
        ...

    def fsync(self) -> None:
        """Bring the bytes and the size to the disk. It blocks: see ``FileSystem.sync``. After an OSError it
        must not be tried again: the bytes may be lost, and a second call would succeed all the same."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile between ``acquire`` and ``release``; -1 if there is none (in memory)."""
        ...

    def is_cached(self, offset: int, size: int) -> bool:
        """Whether a read of this range would not wait for the disk; True if that cannot be known."""
        ...

    def pread_cached(self, size: int, offset: int) -> bytes | None:
        """The ``size`` bytes from ``offset``, or None if reading them might wait for the disk."""
        ...

    def acquire(self) -> None:
        """Keep the descriptor open, and the same, until ``release`` was called as often as this, even after
        ``close`` and ``remove``."""
        ...

    def release(self) -> None: ...

    def close(self) -> None:
        """Give the descriptor back, at once or at the last ``release``. A second call does nothing."""
        ...


class Lock(Protocol):
    def release(self) -> None:
        """Give up the lock. A second call does nothing."""
        ...


def without_extra_slashes(path: str) -> str:
    """Return an absolute ``path`` with single slashes and none at its end, as Java's ``File`` has it."""
    return "/" + "/".join(name for name in path.split("/") if name)


class FileSystem(Protocol):
    """Paths are strings with ``/``; the parent directory must exist. All calls raise OSError as the functions
    of ``os`` do."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. With ``create`` a missing file is created, for those who may read its
        directory; without it, that is FileNotFoundError."""
        ...

    def absolute_path(self, path: str) -> str:
        """Return the path from the root; ``.`` and ``..`` stay (Java: ``File.getAbsolutePath``)."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def makedirs(self, path: str, *, private: bool = False) -> None:
        """Create the directory and its missing parents. One that exists is fine, and stays as it is. Nobody but this
        process's user may enter a ``private`` one; any other may be entered by those who may enter its parent."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything in it. Not atomic."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file, which replaces a file ``target``, or a directory. Open files follow."""
        ...

    def size(self, path: str) -> int:
        """In bytes."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds of wall time."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def disk_space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the volume that holds ``path``."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def replace(self, path: str, data: Buffer, *, sync_name: bool = True) -> None:
        """Make ``data`` the content of ``path``, atomically and durably: write ``path.tmp``, fsync, rename,
        fsync the directory. It blocks; a worker thread may call it. Without ``sync_name`` it is durable only
        after the caller has synced the directory."""
        ...

    def sync_dir(self, path: str) -> None:
        """Bring the directory's entries to the disk. It blocks; a worker thread may call it."""
        ...

    def lock(self, path: str) -> Lock:
        """Lock the file ``path``, which is created if it is missing. Raises BlockingIOError if anybody else
        holds the lock, in this process or another, a Java broker included."""
        ...

    async def offload(self, call: Callable[[], T]) -> T:
        """Run a call that blocks in the kernel in a worker thread, or at once if nothing can block. A
        cancellation waits for its end."""
        ...

    async def sync(self, file: File) -> None:
        """Run ``file.fsync()`` in a worker thread."""
        ...
