"""What only the operating system's files do: descriptors, short writes, locks of other processes."""

from __future__ import annotations

import errno
import pathlib
import resource
import subprocess
import sys

import pytest

from oncelog.broker.seams.os_files import OsFileSystem


def test_descriptors_are_bounded(tmp_path: pathlib.Path) -> None:
    files = OsFileSystem(10)
    opened = [files.open(f"{tmp_path}/{number}", create=True) for number in range(50)]
    for _ in range(3):
        for number, file in enumerate(opened):
            file.append(b"%d," % number)
            assert files.open_descriptors <= 10
    assert all(file.pread(99, 0) == b"%d," % number * 3 for number, file in enumerate(opened))
    for file in opened[:20]:
        file.acquire()
    assert files.open_descriptors == 20
    for file in opened:
        file.close()
    assert files.open_descriptors == 20
    for file in opened[:20]:
        file.release()
    assert files.open_descriptors == 0


def test_what_is_used_keeps_its_descriptor(tmp_path: pathlib.Path) -> None:
    files = OsFileSystem(4)
    busy = files.open(f"{tmp_path}/busy", create=True)
    descriptor = busy.fileno()
    for number in range(50):
        files.open(f"{tmp_path}/{number}", create=True)
        busy.append(b"x")
    assert busy.fileno() == descriptor


def test_at_most_half_of_the_process_limit() -> None:
    assert OsFileSystem(1 << 30).open_files_max <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4
    assert OsFileSystem(7).open_files_max == 7


def test_a_short_write_leaves_the_file_as_it_was(tmp_path: pathlib.Path) -> None:
    """A size limit of the process makes the kernel take a part, as a full disk does."""
    program = f"""
import resource, signal
from oncelog.broker.seams.os_files import OsFileSystem
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = OsFileSystem().open({str(tmp_path / "a")!r}, create=True)
file.append(b"x" * 90)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
for size in (20, 11):
    try:
        file.append(b"y" * size)
    except OSError as error:
        print(error.errno, file.size(), file.pread(200, 0) == b"x" * 90)
file.append(b"z" * 10)
print(file.size())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    expected = f"{errno.ENOSPC} 90 True"
    assert ran.stdout.splitlines() == [expected, expected, "100"]
    assert (tmp_path / "a").read_bytes() == b"x" * 90 + b"z" * 10


def test_another_process_holds_the_lock(tmp_path: pathlib.Path) -> None:
    """By a POSIX lock, which is what Java's FileChannel.tryLock takes."""
    path = str(tmp_path / ".lock")
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            OsFileSystem().lock(path)
        other.stdin.close()
        other.wait()
    OsFileSystem().lock(path).release()
