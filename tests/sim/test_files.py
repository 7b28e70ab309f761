"""One contract over both file systems, the operating system's and the simulated one; then each one's own."""

from __future__ import annotations

import errno
import os
import pathlib
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import trio
import trio.testing

from oncelog.broker.seams.files import FileSystem
from oncelog.broker.seams.os_files import OsFileSystem
from tests.sim.files import Fault, SimFileSystem, SimulatedCrash


@pytest.fixture(params=["os", "os-one-descriptor", "sim"])
def disk(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[tuple[FileSystem, str]]:
    """A file system and an empty directory on it."""
    if request.param == "sim":
        sim = SimFileSystem(random.Random(0))
        sim.makedirs("/data")
        yield sim, "/data"
        assert sim.held == 0
    else:
        files = OsFileSystem(1) if request.param == "os-one-descriptor" else OsFileSystem()
        yield files, str(tmp_path)


def test_appended_bytes_are_read_back(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    file = files.open(f"{root}/a", create=True)
    other = files.open(f"{root}/b", create=True)
    file.append(b"one")
    other.append(b"other")
    for chunk in (b"two", memoryview(b"three"), bytearray(b"!"), b""):
        file.append(chunk)
    assert file.size() == 12
    assert file.pread(100, 0) == b"onetwothree!"
    assert file.pread(3, 3) == b"two"
    assert file.pread(10, 12) == b""
    assert file.size() == 12
    file.close()
    assert files.read_bytes(f"{root}/a") == b"onetwothree!"
    assert files.size(f"{root}/a") == 12
    again = files.open(f"{root}/a")
    assert again.size() == 12
    again.append(b"+")
    assert again.pread(2, 11) == b"!+"


def test_overwrite_and_truncate(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    file = files.open(f"{root}/a", create=True)
    file.append(b"0123456789")
    file.pwrite(b"AB", 2)
    file.pwrite(b"CDE", 9)
    assert file.pread(20, 0) == b"01AB45678CDE"
    assert file.size() == 12
    file.truncate(4)
    assert (file.size(), file.pread(20, 0)) == (4, b"01AB")
    file.append(b"x")
    file.truncate(7)
    assert file.pread(20, 0) == b"01ABx\0\0"
    file.fsync()
    file.close()
    assert files.size(f"{root}/a") == 7


def test_names(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/missing")
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/no/parent", create=True)
    files.makedirs(f"{root}/d/e")
    files.makedirs(f"{root}/d/e")
    files.open(f"{root}/d/z", create=True).close()
    files.open(f"{root}/d/b", create=True).close()
    assert files.listdir(f"{root}/d") == ["b", "e", "z"]
    assert files.is_dir(f"{root}/d/e")
    assert not files.is_dir(f"{root}/d/z")
    assert not files.is_dir(f"{root}/d/nothing")
    assert files.exists(f"{root}/d/z")
    assert files.exists(f"{root}/d/e")
    files.remove(f"{root}/d/z")
    assert not files.exists(f"{root}/d/z")
    with pytest.raises(FileNotFoundError):
        files.remove(f"{root}/d/z")
    with pytest.raises(FileNotFoundError):
        files.listdir(f"{root}/nothing")
    with pytest.raises(FileNotFoundError):
        files.read_bytes(f"{root}/nothing")
    files.sync_dir(f"{root}/d")
    files.remove_tree(f"{root}/d")
    assert files.listdir(root) == []


def test_an_open_file_follows_its_names(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    files.makedirs(f"{root}/t-0")
    file = files.open(f"{root}/t-0/x", create=True)
    file.append(b"abc")
    files.rename(f"{root}/t-0/x", f"{root}/t-0/x.deleted")
    assert file.path == f"{root}/t-0/x.deleted"
    other = files.open(f"{root}/other", create=True)  # takes the one descriptor
    other.append(b"o")
    files.rename(f"{root}/t-0", f"{root}/t-0-delete")
    assert file.path == f"{root}/t-0-delete/x.deleted"
    file.append(b"def")
    other.append(b"o")
    assert file.pread(6, 0) == b"abcdef"
    assert files.listdir(f"{root}/t-0-delete") == ["x.deleted"]
    assert not files.exists(f"{root}/t-0")
    files.rename(f"{root}/t-0-delete/x.deleted", f"{root}/other2")
    other.append(b"o")
    assert file.pread(6, 0) == b"abcdef"
    assert file.path == f"{root}/other2"


def test_rename_replaces(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    for name in ("a", "b"):
        file = files.open(f"{root}/{name}", create=True)
        file.append(name.encode())
        file.close()
    files.rename(f"{root}/a", f"{root}/b")
    assert files.listdir(root) == ["b"]
    assert files.read_bytes(f"{root}/b") == b"a"


def test_replace(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    files.replace(f"{root}/c", b"first, and longer")
    files.replace(f"{root}/c", b"second")
    assert files.read_bytes(f"{root}/c") == b"second"
    assert files.listdir(root) == ["c"]


def test_a_held_file_outlives_its_name_and_its_close(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    file = files.open(f"{root}/a", create=True)
    file.append(b"abc")
    file.acquire()
    file.acquire()
    descriptor = file.fileno()
    other = files.open(f"{root}/b", create=True)
    other.append(b"b")
    files.remove(f"{root}/a")
    file.close()
    file.close()
    file.release()
    assert file.fileno() == descriptor
    assert file.pread(3, 0) == b"abc"
    assert file.is_cached(0, 3)
    file.release()
    with pytest.raises(OSError, match="closed"):
        file.pread(3, 0)
    other.append(b"b")
    assert other.pread(2, 0) == b"bb"


def test_the_lock_is_exclusive(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    files.lock(f"{root}/.lock").release()


def test_offload_and_sync(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    file = files.open(f"{root}/a", create=True)
    file.append(b"abc")

    def fails() -> None:
        raise OSError(errno.EIO, "no")

    async def main() -> None:
        await files.sync(file)
        assert await files.offload(partial(files.read_bytes, f"{root}/a")) == b"abc"
        with pytest.raises(OSError, match="no"):
            await files.offload(fails)

    trio.run(main)


def test_volume_and_times(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    total, usable = files.disk_space(root)
    assert total >= usable > 0
    files.open(f"{root}/a", create=True).close()
    assert files.modified_ms(f"{root}/a") >= 0
    files.set_modified_ms(f"{root}/a", 1_234_567_890_123)
    assert files.modified_ms(f"{root}/a") == 1_234_567_890_123


# --- the operating system's only


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


# --- the simulated one only


def sim_disk(seed: int = 0) -> SimFileSystem:
    files = SimFileSystem(random.Random(seed))
    files.makedirs("/data")
    files.sync_dir("/")
    return files


def test_process_death_keeps_all_that_was_written() -> None:
    files = sim_disk()
    file = files.open("/data/a", create=True)
    file.append(b"abc")
    files.rename("/data/a", "/data/b")
    lock = files.lock("/data/.lock")
    files.crash("process")
    assert files.read_bytes("/data/b") == b"abc"
    with pytest.raises(OSError, match="closed"):
        file.append(b"from beyond")
    with pytest.raises(OSError, match="closed"):
        file.fsync()
    files.lock("/data/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        files.lock("/data/.lock")


def outcomes(
    prepare: Callable[[SimFileSystem], None], look: Callable[[SimFileSystem], object]
) -> set[object]:
    """What a power loss can leave, over many seeds."""
    seen = set()
    for seed in range(300):
        files = sim_disk(seed)
        prepare(files)
        files.crash("power")
        seen.add(look(files))
    return seen


def read_or_none(path: str) -> Callable[[SimFileSystem], object]:
    return lambda files: files.read_bytes(path) if files.exists(path) else None


def test_power_loss_spares_what_was_synced_and_may_take_the_rest() -> None:
    def prepare(files: SimFileSystem) -> None:
        file = files.open("/data/a", create=True)
        file.append(b"abc")
        file.fsync()
        files.sync_dir("/data")
        file.append(b"def")

    seen = outcomes(prepare, read_or_none("/data/a"))
    assert {b"abc", b"abcd\0", b"abcde", b"abcdef", b"abcd\0\0"} <= seen
    assert all(isinstance(content, bytes) and content.startswith(b"abc") for content in seen)


def test_power_loss_takes_names_without_sync_dir() -> None:
    def prepare(files: SimFileSystem) -> None:
        file = files.open("/data/a", create=True)
        file.append(b"abc")
        file.fsync()

    assert outcomes(prepare, read_or_none("/data/a")) == {None, b"abc"}


def test_power_loss_takes_renames_and_removals_in_any_order() -> None:
    def prepare(files: SimFileSystem) -> None:
        for name in ("a", "b"):
            files.replace(f"/data/{name}", name.encode())
        files.rename("/data/a", "/data/c")
        files.remove("/data/b")

    seen = outcomes(prepare, lambda files: tuple(files.listdir("/data")))
    assert seen == {("a", "b"), ("b", "c"), ("c",), ("a",)}


def test_power_loss_takes_sectors_in_any_order_but_never_synced_ones() -> None:
    def prepare(files: SimFileSystem) -> None:
        files.replace("/data/a", b"o" * 2048)
        file = files.open("/data/a")
        file.pwrite(b"n" * 1536, 512)

    def look(files: SimFileSystem) -> str:
        content = files.read_bytes("/data/a")
        assert len(content) == 2048
        assert content[:512] == b"o" * 512
        return "".join(chr(content[place]) for place in (512, 1024, 1536))

    assert {"ono", "oon", "nno", "onn", "ooo", "nnn"} <= outcomes(prepare, look)


def test_power_loss_and_truncation() -> None:
    def prepare(files: SimFileSystem) -> None:
        files.replace("/data/a", b"o" * 8)
        files.open("/data/a").truncate(4)

    seen = outcomes(prepare, read_or_none("/data/a"))
    assert {b"oooo", b"oooooooo"} <= seen
    assert all(set(content) == {ord("o")} for content in seen if isinstance(content, bytes))


def test_replace_survives_a_crash_at_every_step() -> None:
    for kind in ("process", "power"):
        for step in range(6):
            for seed in range(20):
                files = sim_disk(seed)
                files.replace("/data/c", b"old")
                files.crash_at = files.steps + step
                done = False
                try:
                    files.replace("/data/c", b"new")
                    done = True
                except SimulatedCrash:
                    with pytest.raises(SimulatedCrash):
                        files.listdir("/data") and files.open("/data/c")
                files.crash(kind)
                content = files.read_bytes("/data/c")
                assert content == b"new" or (content == b"old" and not done), (kind, step, seed)


def test_faults() -> None:
    files = sim_disk()
    file = files.open("/data/a", create=True)
    files.faults.append(Fault("write", errno.ENOSPC, lambda path: path.endswith("a"), after_bytes=5))
    files.open("/data/b", create=True).append(b"not meant")
    file.append(b"abc")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.append(b"def")
    assert file.pread(9, 0) == b"abc"
    files.faults[:] = [Fault("fsync", errno.EIO, times=1)]
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.fsync()
    file.fsync()
    files.faults[:] = [Fault("read", errno.EIO)]
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.pread(1, 0)
    files.is_cold = lambda path: True
    assert not file.is_cached(0, 1)


def test_an_offloaded_call_takes_virtual_time_and_is_not_cancelled() -> None:
    files = sim_disk()
    file = files.open("/data/a", create=True)
    file.append(b"abc")
    files.latency_s = 2.0

    async def main() -> None:
        start = trio.current_time()
        with trio.move_on_after(1):
            await files.sync(file)
        assert trio.current_time() - start == 2.0

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert files.counts["fsync", "/data/a"] == 1
