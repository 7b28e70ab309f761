"""The differences between operating systems, as facts: Linux, and macOS by its documentation (it was never run there).

Everything else in the seams asks for a fact (`HERE`, or another platform's that a test passes) and not for a name.
Sources for macOS: fcntl(2), setrlimit(2) under COMPATIBILITY, poll(2) under BUGS; the constants' values are those that
Python's modules have.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

MACOS_OPEN_FILES_MAX = 10240
"""``OPEN_MAX`` of macOS's <sys/syslimits.h>: setrlimit refuses a higher soft limit, an infinite one too."""

_NO_FULL_FSYNC = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY)
"""The errors of F_FULLFSYNC on a file system that has none (a network's, for one): then fsync is all there is."""


class Platform(NamedTuple):
    """The facts about an operating system. A command or flag is None where there is none such."""

    lock_command: int | None
    """fcntl's, for a lock that belongs to the open file (an open file description lock)."""
    lock_request: bytes
    """``struct flock`` for an exclusive lock on a whole file."""
    full_sync_command: int | None
    """fcntl's, that also makes the drive write out what it holds, as fsync does elsewhere."""
    has_fdatasync: bool
    send_more_flag: int
    """send's, that says that more follows at once; 0 where it cannot be said: then packets may be smaller."""
    open_files_max: int | None
    """The highest soft limit of open files that can be asked for; None: the hard limit."""
    polls_terminals: bool
    """Whether poll works for a terminal, as select does."""
    keeps_bound_ports: bool
    """Whether a second socket, which listens, may be bound to the port of one that does not."""
    user_timeout_option: int | None
    """TCP's, for how long (ms) a peer may leave what was sent to it untaken."""
    pipe_size_command: int | None
    """fcntl's, that sets the size of a pipe; None where no bytes go from a socket to another through pipes (splice)."""
    has_epoll: bool


def platform_of(name: str, constant: Callable[[str], int | None]) -> Platform:
    """The facts of the platform that ``sys.platform`` calls ``name``; ``constant`` gives the value of a C constant."""
    macos = name == "darwin"
    write_lock = constant("F_WRLCK")
    if macos:  # off_t start, off_t len, pid_t pid, short type, short whence
        request = struct.pack("qqihh", 0, 0, 0, write_lock, os.SEEK_SET)
    else:  # short type, short whence, off_t start, off_t len, pid_t pid
        request = struct.pack("hhqqi4x", write_lock, os.SEEK_SET, 0, 0, 0)
    return Platform(
        lock_command=constant("F_OFD_SETLK"),
        lock_request=request,
        full_sync_command=constant("F_FULLFSYNC"),
        has_fdatasync=not macos,
        send_more_flag=constant("MSG_MORE") or 0,
        open_files_max=MACOS_OPEN_FILES_MAX if macos else None,
        polls_terminals=not macos,
        keeps_bound_ports=not macos,
        user_timeout_option=constant("TCP_USER_TIMEOUT"),
        pipe_size_command=constant("F_SETPIPE_SZ"),
        has_epoll=not macos,
    )


def _constant(name: str) -> int | None:
    for module in (fcntl, socket):
        value = getattr(module, name, None)
        if value is not None:
            return int(value)
    return None


HERE = platform_of(sys.platform, _constant)


def lock_file(fd: int, platform: Platform = HERE) -> None:
    """Lock the whole file exclusively. Raises OSError (EAGAIN, EACCES) where anybody else holds it.

    The lock belongs to the open file: unlike flock's on Linux it conflicts with the POSIX locks that Java takes, and
    unlike those it conflicts inside one process and is not lost when another descriptor of the file is closed."""
    if platform.lock_command is None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        fcntl.fcntl(fd, platform.lock_command, platform.lock_request)


def sync_file(fd: int, *, data_only: bool = False, platform: Platform = HERE) -> None:
    """Bring a file or directory to the disk. Raises OSError.

    ``data_only``: its size too where that grew, but not its times: one journal commit less, where there is a choice.
    """
    if platform.full_sync_command is not None:
        try:
            fcntl.fcntl(fd, platform.full_sync_command)
            return
        except OSError as error:
            if error.errno not in _NO_FULL_FSYNC:
                raise
    if data_only and platform.has_fdatasync:
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def open_files_limit(soft: int, hard: int, infinite: int, platform: Platform = HERE) -> int:
    """The soft limit to ask for where these are the process's: as high as it goes, and never lower than it is.

    ``infinite`` is what stands for no limit."""
    highest = platform.open_files_max
    if highest is None or soft == infinite:
        return hard if soft != infinite else soft
    allowed = highest if hard == infinite else min(highest, hard)
    return max(soft, allowed)


def writable_now(fd: int, platform: Platform = HERE) -> Callable[[], bool]:
    """A question: would a write of a few bytes to ``fd`` be taken at once? Yes also where it would fail at once."""
    if platform.polls_terminals:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return lambda: bool(poll.poll(0))

    def ask() -> bool:
        try:
            return bool(select.select((), (fd,), (), 0)[1])
        except (OSError, ValueError):  # it is closed, or beyond what select can be asked about
            return True

    return ask
