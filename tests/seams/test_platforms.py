"""What differs between operating systems. macOS's facts are checked against its documentation; nothing runs on it."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.broker.seams.platforms import (
    HERE,
    MACOS_OPEN_FILES_MAX,
    Platform,
    lock_file,
    open_files_limit,
    platform_of,
    sync_file,
    writable_now,
)
from oncelog.broker.seams.transport import SocketListener

# Of macOS's <sys/fcntl.h>.
MACOS = platform_of("darwin", {"F_OFD_SETLK": 90, "F_FULLFSYNC": 51, "F_WRLCK": 3}.get)
NO_COMMAND = 9999
"""A command that fcntl does not know: EINVAL."""


def test_the_facts_of_macos() -> None:
    start, length, process, kind, whence = struct.unpack("=qqihh", MACOS.lock_request)
    assert (start, length, process, kind, whence) == (0, 0, 0, 3, os.SEEK_SET)
    assert (MACOS.lock_command, MACOS.full_sync_command) == (90, 51)
    assert (MACOS.send_more_flag, MACOS.has_fdatasync, MACOS.polls_terminals) == (0, False, False)
    assert MACOS.pipe_size_command is None


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's facts")
def test_the_facts_of_linux() -> None:
    assert (HERE.lock_command, HERE.full_sync_command, HERE.open_files_max) == (fcntl.F_OFD_SETLK, None, None)
    assert HERE.send_more_flag == socket.MSG_MORE
    assert HERE.pipe_size_command == fcntl.F_SETPIPE_SZ
    assert struct.unpack_from("=hh4xqq", HERE.lock_request) == (fcntl.F_WRLCK, os.SEEK_SET, 0, 0)


@pytest.mark.parametrize("platform", [HERE, HERE._replace(lock_command=None)], ids=["here", "flock"])
def test_a_lock_holds_inside_the_process_and_outside(tmp_path: pathlib.Path, platform: Platform) -> None:
    path = str(tmp_path / "lock")
    held = OsFileSystem(platform=platform).lock(path)
    with open(path, "r+b") as other, pytest.raises(BlockingIOError):
        lock_file(other.fileno(), platform)
    posix = "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    flock = "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    program = f"import fcntl\nfile = open({path!r}, 'r+b')\n{posix if platform is HERE else flock}"
    refused = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr
    held.release()
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture
def pipe() -> Iterator[int]:
    """A descriptor that fsync refuses (EINVAL), and some other commands of fcntl do not."""
    reader, writer = os.pipe()
    yield writer
    os.close(reader)
    os.close(writer)


def test_a_full_sync_is_asked_for_where_there_is_one(pipe: int) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        sync_file(pipe, platform=HERE)
    sync_file(pipe, platform=HERE._replace(full_sync_command=fcntl.F_GETFD))


@pytest.mark.parametrize("data_only", [True, False])
@pytest.mark.parametrize("has_fdatasync", [True, False])
def test_where_the_file_system_has_no_full_sync_there_is_fsync(
    tmp_path: pathlib.Path, pipe: int, data_only: bool, has_fdatasync: bool
) -> None:
    platform = HERE._replace(full_sync_command=NO_COMMAND, has_fdatasync=has_fdatasync)
    with open(tmp_path / "file", "wb") as file:
        sync_file(file.fileno(), data_only=data_only, platform=platform)
    with pytest.raises(OSError, match="Invalid argument"):  # it was tried
        sync_file(pipe, data_only=data_only, platform=platform)


def test_a_full_sync_that_fails_is_an_error() -> None:
    """The bytes may be lost, and an fsync after it would say that they are not."""
    with pytest.raises(OSError, match="Bad file descriptor") as failed:
        sync_file(-1 & 0xFFFF, platform=HERE._replace(full_sync_command=fcntl.F_GETFD))
    assert failed.value.errno == errno.EBADF


def test_all_that_is_written_durably_is_fully_synced(tmp_path: pathlib.Path) -> None:
    """F_SETFD without an argument takes the close-on-exec flag away, which tells that it was called."""
    files = OsFileSystem(platform=HERE._replace(full_sync_command=fcntl.F_SETFD))
    file = files.open(str(tmp_path / "file"), create=True)
    assert not os.get_inheritable(file.fileno())
    file.fsync()
    assert os.get_inheritable(file.fileno())
    files.replace(str(tmp_path / "other"), b"content")
    files.sync_dir(str(tmp_path))
    assert (tmp_path / "other").read_bytes() == b"content"


INFINITE = -1


@pytest.mark.parametrize(
    ("platform", "soft", "hard", "wanted"),
    [
        (HERE, 1024, 524288, 524288),
        (HERE, 1024, 1024, 1024),
        (HERE, 1024, INFINITE, INFINITE),
        (HERE, INFINITE, INFINITE, INFINITE),
        (MACOS, 256, INFINITE, MACOS_OPEN_FILES_MAX),
        (MACOS, 256, 4096, 4096),
        (MACOS, 256, 1_000_000, MACOS_OPEN_FILES_MAX),
        (MACOS, 65536, INFINITE, 65536),
        (MACOS, INFINITE, INFINITE, INFINITE),
    ],
)
def test_how_many_files_may_be_asked_for(platform: Platform, soft: int, hard: int, wanted: int) -> None:
    assert open_files_limit(soft, hard, INFINITE, platform) == wanted


@pytest.mark.parametrize("platform", [HERE, HERE._replace(polls_terminals=False)], ids=["poll", "select"])
def test_whether_a_descriptor_takes_bytes_now(platform: Platform) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    is_writable = writable_now(writer, platform)
    assert is_writable()
    while is_writable():
        os.write(writer, bytes(4096))
    with pytest.raises(BlockingIOError):
        os.write(writer, bytes(4096))
    os.close(reader)
    assert is_writable()  # to fail at once
    os.close(writer)
    assert is_writable()


class GoneSocket:
    """An accepted socket whose peer has gone, as macOS has it."""

    def __init__(self) -> None:
        self.closed = False

    def fileno(self) -> int:
        return 99

    def setblocking(self, blocking: bool) -> None:
        pass

    def setsockopt(self, *option: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    def getsockname(self) -> tuple[str, int]:
        raise OSError(errno.EINVAL, "Invalid argument")

    def close(self) -> None:
        self.closed = True


class ConnectedSocket(GoneSocket):
    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 9092)


def test_a_peer_that_has_gone_before_it_was_accepted_is_passed_over() -> None:
    gone, next_one = GoneSocket(), ConnectedSocket()
    waiting: list[Any] = [gone, next_one]

    class Listening(ConnectedSocket):
        def accept(self) -> tuple[Any, tuple[str, int]]:
            if not waiting:
                raise BlockingIOError
            return waiting.pop(0), ("192.0.2.1", 5000)

    listener = SocketListener(Listening())  # type: ignore[arg-type]
    accepted = listener.accept()
    assert accepted is not None
    assert accepted.local == ("127.0.0.1", 9092)
    assert (gone.closed, next_one.closed) == (True, False)
    assert listener.accept() is None
