"""One suite for every file system of the broker."""

from __future__ import annotations

import errno
import pathlib
import random
from collections.abc import Iterator
from functools import partial

import pytest
import trio

from oncelog.broker.seams.files import Buffer, FileSystem
from oncelog.broker.seams.memory_files import MemoryFileSystem
from oncelog.broker.seams.mortal_files import MortalFileSystem
from oncelog.broker.seams.os_files import OsFileSystem
from tests.sim.files import SimFileSystem


class Onlooker:
    """A `WriteWatcher` that does nothing."""

    def before_write(self, path: str, data: Buffer) -> None:
        pass

    def after_write(self, path: str, data: Buffer) -> None:
        pass


@pytest.fixture(
    params=["os", "os-one-descriptor", "memory", "simulated", "mortal-os", "mortal-memory", "watched-os"]
)
def disk(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[tuple[FileSystem, str]]:
    """A file system and an empty directory on it."""
    if request.param in ("memory", "simulated", "mortal-memory"):
        memory = SimFileSystem(random.Random(0)) if request.param == "simulated" else MemoryFileSystem()
        memory.makedirs("/data")
        yield MortalFileSystem(memory) if request.param == "mortal-memory" else memory, "/data"
        assert memory.held == 0
        return
    files = OsFileSystem(1) if request.param == "os-one-descriptor" else OsFileSystem()
    if request.param in ("mortal-os", "watched-os"):
        mortal = MortalFileSystem(files)
        mortal.watch(Onlooker() if request.param == "watched-os" else None)
        yield mortal, str(tmp_path)
    else:
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


def test_absolute_paths(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    assert files.absolute_path(root) == files.absolute_path(f"/{root}//") == root
    assert files.absolute_path(f"{root}/./a/../b") == f"{root}/./a/../b"
    assert files.absolute_path("/") == "/"
    here = files.absolute_path("")
    assert files.absolute_path("a//b/") == files.absolute_path(f"{here}/a/b")
    on_disk = isinstance(files.inner if isinstance(files, MortalFileSystem) else files, OsFileSystem)
    assert here == (str(pathlib.Path.cwd()) if on_disk else "/")


def test_volume_and_times(disk: tuple[FileSystem, str]) -> None:
    files, root = disk
    total, usable = files.disk_space(root)
    assert total >= usable > 0
    files.open(f"{root}/a", create=True).close()
    assert files.modified_ms(f"{root}/a") >= 0
    files.set_modified_ms(f"{root}/a", 1_234_567_890_123)
    assert files.modified_ms(f"{root}/a") == 1_234_567_890_123
