"""Files: what the broker asks of a disk.

There are the operating system's (``os_files.py``) and a disk in memory (``memory_files.py``); one suite runs over both.
What is promised:

- ``append`` and ``pwrite`` reach the operating system before they return: they survive the death of this
  process.
- Only what ``File.fsync`` covered, under a name that ``sync_dir`` covered, survives a loss of power. A name
  and the bytes it leads to are two things: a new file needs both.
- ``rename`` is atomic for those who look (the old file or the new one), but not durable before ``sync_dir``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class File(Protocol):
    """An open file. Reading and writing it belong to the loop's thread, with one exception: between
    ``acquire`` and ``release`` a worker thread may call ``fsync`` and ``pread``.
    """

    @property
    def path(self) -> str:
        """Where it is now: it follows ``FileSystem.rename`` of the file and of its directory."""
        ...

    def append(self, data: Buffer) -> None:
        """Write all of ``data`` (bytes) at the end, or raise OSError and leave the file as it was."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """At most ``size`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Overwrite from ``offset``, which is at most ``size()``. On OSError what was there may be half
        overwritten."""
        ...

    def size(self) -> int:
        """In bytes; kept in memory, no system call. Nobody else may write the file while it is open here."""
        ...

    def truncate(self, size: int) -> None:
        """Cut to ``size`` bytes, or fill up with zero bytes."""
        ...

    def fsync(self) -> None:
        """The bytes (and the size) to the disk. It blocks: see ``FileSystem.sync``. After an OSError the
        pages are lost or not, and a second call would say yes to both: it must not be tried again."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile between ``acquire`` and ``release``; -1 where there is none
        (in memory)."""
        ...

    def is_cached(self, offset: int, size: int) -> bool:
        """Whether a read of this range would not wait for the disk; True where that cannot be known."""
        ...

    def pread_cached(self, size: int, offset: int) -> bytes | None:
        """The ``size`` bytes from ``offset``, or None where reading them might wait for the disk."""
        ...

    def acquire(self) -> None:
        """Keep the descriptor open (and the same) until as many ``release`` calls, even over ``close`` and
        ``remove``."""
        ...

    def release(self) -> None: ...

    def close(self) -> None:
        """Give the descriptor back, at once or with the last ``release``. A second call does nothing."""
        ...


class Lock(Protocol):
    def release(self) -> None:
        """Let others have the directory. A second call does nothing."""
        ...


def without_extra_slashes(path: str) -> str:
    """Return an absolute ``path`` with single slashes and none at its end, as Java's ``File`` has it."""
    return "/" + "/".join(name for name in path.split("/") if name)


class FileSystem(Protocol):
    """Paths are strings with ``/``; the parent directory must exist. All calls raise OSError as the os
    module's do."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Without ``create`` a missing file is FileNotFoundError; with it an
        existing file is opened as it is."""
        ...

    def absolute_path(self, path: str) -> str:
        """Return the path from the root; ``.`` and ``..`` stay (Java: ``File.getAbsolutePath``)."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def makedirs(self, path: str) -> None:
        """Make the directory and what is missing above it; one that exists is fine."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it. Not atomic."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Of a file (replacing a file ``target``) or of a directory; open files of it follow."""
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
        """Make ``path`` hold ``data``, durably, and never anything in between: write ``path.tmp``, fsync,
        rename over, fsync the directory. It blocks; a worker thread may call it. Without ``sync_name`` it is durable
        only once the caller has synced the directory."""
        ...

    def sync_dir(self, path: str) -> None:
        """The directory's entries to the disk. It blocks; a worker thread may call it."""
        ...

    def lock(self, path: str) -> Lock:
        """Make the file ``path`` if need be and hold its lock. BlockingIOError where anybody else holds it,
        in this process or another (a Java broker's lock counts)."""
        ...

    async def offload(self, call: Callable[[], T]) -> T:
        """Run a call that blocks in the kernel, in a worker thread; at once where nothing can block. Not cancelled
        half-way."""
        ...

    async def sync(self, file: File) -> None:
        """``file.fsync()`` in a worker thread."""
        ...
