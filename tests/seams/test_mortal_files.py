"""What only a `MortalFileSystem` does: its process dies, alone or at a write, and the process around it lives on."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Callable
from functools import partial

import pytest
import trio

from oncelog.broker.seams.files import Buffer
from oncelog.broker.seams.memory_files import MemoryFileSystem, ProcessDied
from oncelog.broker.seams.mortal_files import MortalFileSystem
from oncelog.broker.seams.os_files import OsFileSystem


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> tuple[MortalFileSystem, str]:
    """A mortal file system and an empty directory on it."""
    if request.param == "os":
        return MortalFileSystem(OsFileSystem()), str(tmp_path)
    memory = MemoryFileSystem()
    memory.makedirs("/data")
    return MortalFileSystem(memory), "/data"


def inner_open_files(files: MortalFileSystem) -> int:
    inner = files.inner
    if isinstance(inner, MemoryFileSystem):
        return inner.open_files
    assert isinstance(inner, OsFileSystem)
    return inner.open_descriptors


def test_a_dead_process_does_nothing_more(disk: tuple[MortalFileSystem, str]) -> None:
    files, root = disk
    file = files.open(f"{root}/a", create=True)
    file.append(b"abc")
    files.lock(f"{root}/.lock")
    files.kill()
    assert files.is_dead
    late: list[Callable[[], object]] = [
        lambda: file.append(b"late"),
        lambda: file.pwrite(b"late", 0),
        lambda: file.pread(3, 0),
        lambda: file.truncate(0),
        file.fsync,
        file.fileno,
        file.acquire,
        lambda: file.is_cached(0, 3),
        lambda: file.pread_cached(3, 0),
        lambda: files.open(f"{root}/a"),
        lambda: files.exists(f"{root}/a"),
        lambda: files.is_dir(root),
        lambda: files.listdir(root),
        lambda: files.makedirs(f"{root}/c"),
        lambda: files.remove(f"{root}/a"),
        lambda: files.remove_tree(root),
        lambda: files.rename(f"{root}/a", f"{root}/b"),
        lambda: files.size(f"{root}/a"),
        lambda: files.modified_ms(f"{root}/a"),
        lambda: files.set_modified_ms(f"{root}/a", 0),
        lambda: files.disk_space(root),
        lambda: files.read_bytes(f"{root}/a"),
        lambda: files.replace(f"{root}/a", b"late"),
        lambda: files.sync_dir(root),
        lambda: files.lock(f"{root}/.lock"),
        lambda: trio.run(files.sync, file),
    ]
    for call in late:
        with pytest.raises(ProcessDied):
            call()
    file.close()
    file.release()
    files.restart()
    assert files.listdir(root) == [".lock", "a"]
    assert files.read_bytes(f"{root}/a") == b"abc"
    with pytest.raises(ProcessDied):
        file.append(b"of the process before")
    files.lock(f"{root}/.lock").release()


def test_locks_and_descriptors_are_given_back(disk: tuple[MortalFileSystem, str]) -> None:
    files, root = disk
    opened = [files.open(f"{root}/{name}", create=True) for name in "abc"]
    opened[1].acquire()
    opened[2].acquire()
    files.lock(f"{root}/.lock")
    files.kill()
    files.inner.lock(f"{root}/.lock").release()
    opened[1].release()
    assert files.open_files == 1  # a thread may be using it
    files.restart()
    opened[2].release()
    assert (files.open_files, inner_open_files(files)) == (0, 0)


def test_a_thread_that_syncs_a_file_keeps_its_descriptor(tmp_path: pathlib.Path) -> None:
    """Else it could sync a file that got the same number meanwhile."""
    files = MortalFileSystem(OsFileSystem())
    file = files.open(f"{tmp_path}/a", create=True)
    file.acquire()
    descriptor = file.fileno()
    files.kill()
    os.fstat(descriptor)
    file.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_descriptor_and_threads_are_those_of_the_disk(tmp_path: pathlib.Path) -> None:
    """So sendfile and fdatasync work through it."""
    files = MortalFileSystem(OsFileSystem())
    file = files.open(f"{tmp_path}/a", create=True)
    file.append(b"abc")
    assert os.pread(file.fileno(), 3, 0) == b"abc"

    async def main() -> None:
        await files.sync(file)
        assert await files.offload(partial(file.pread, 3, 0)) == b"abc"
        files.kill()
        with pytest.raises(ProcessDied):
            await files.offload(partial(file.pread, 3, 0))

    trio.run(main)


def test_a_loss_of_power_in_memory_takes_what_was_not_synced() -> None:
    files = MortalFileSystem(MemoryFileSystem())
    files.makedirs("/data")
    files.sync_dir("/")
    files.replace("/data/a", b"abc")
    file = files.open("/data/a")
    file.append(b"def")
    files.kill()
    files.restart()
    assert files.read_bytes("/data/a") == b"abcdef"
    files.lose_power()
    with pytest.raises(ProcessDied):
        files.read_bytes("/data/a")
    files.restart()
    assert files.read_bytes("/data/a") == b"abc"


def test_a_real_disk_refuses_to_lose_power(tmp_path: pathlib.Path) -> None:
    files = MortalFileSystem(OsFileSystem())
    file = files.open(f"{tmp_path}/a", create=True)
    with pytest.raises(OSError, match="cannot lose power") as refused:
        files.lose_power()
    assert refused.value.errno == errno.ENOTSUP
    file.append(b"alive")


class Killer:
    """Kills the process ``before`` or ``after`` the write of ``victim``, and notes all that it saw."""

    def __init__(self, files: MortalFileSystem, victim: bytes, when: str) -> None:
        self._files = files
        self._victim = victim
        self._when = when
        self.seen: list[tuple[str, str, bytes]] = []

    def before_write(self, path: str, data: Buffer) -> None:
        self._see("before", path, data)

    def after_write(self, path: str, data: Buffer) -> None:
        self._see("after", path, data)

    def _see(self, when: str, path: str, data: Buffer) -> None:
        self.seen.append((when, path, bytes(data)))
        if bytes(data) == self._victim and when == self._when:
            self._files.kill()


@pytest.mark.parametrize(("when", "left"), [("before", b"one"), ("after", b"onetwo")])
def test_a_process_dies_at_a_write(disk: tuple[MortalFileSystem, str], when: str, left: bytes) -> None:
    files, root = disk
    earlier = files.open(f"{root}/a", create=True)
    earlier.append(b"one")
    killer = Killer(files, b"two", when)
    files.watch(killer)
    later = files.open(f"{root}/b", create=True)
    later.append(b"three")
    later.pwrite(b"T", 0)
    with pytest.raises(ProcessDied):
        earlier.append(b"two")
    files.watch(None)
    with pytest.raises(ProcessDied):
        earlier.append(b"four")
    files.restart()
    assert files.read_bytes(f"{root}/a") == left
    assert files.read_bytes(f"{root}/b") == b"Three"
    seen = [
        ("before", f"{root}/b", b"three"),
        ("after", f"{root}/b", b"three"),
        ("before", f"{root}/b", b"T"),
        ("after", f"{root}/b", b"T"),
        ("before", f"{root}/a", b"two"),
        ("after", f"{root}/a", b"two"),
    ]
    assert killer.seen == seen[: 5 if when == "before" else 6]


def test_nobody_watches_any_more(disk: tuple[MortalFileSystem, str]) -> None:
    files, root = disk
    file = files.open(f"{root}/a", create=True)
    killer = Killer(files, b"x", "before")
    files.watch(killer)
    files.watch(None)
    file.append(b"x")
    assert not killer.seen
    assert files.read_bytes(f"{root}/a") == b"x"
