"""What only the disk in memory does: deaths of its process, losses of power that take all they can."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from oncelog.broker.seams.memory_files import UNSYNCED_NAMES_MAX, MemoryFile, MemoryFileSystem, ProcessDied


def disk(unsynced_names_max: int = UNSYNCED_NAMES_MAX) -> MemoryFileSystem:
    files = MemoryFileSystem(unsynced_names_max=unsynced_names_max)
    files.makedirs("/data")
    files.sync_dir("/")
    return files


def after_power_loss(files: MemoryFileSystem, path: str = "/data/a") -> bytes | None:
    files.lose_power()
    files.restart()
    return files.read_bytes(path) if files.exists(path) else None


def synced(files: MemoryFileSystem, content: bytes) -> MemoryFile:
    files.replace("/data/a", content)
    return files.open("/data/a")


def test_a_dead_process_writes_no_more() -> None:
    files = disk()
    file = files.open("/data/a", create=True)
    file.append(b"abc")
    files.lock("/data/.lock")
    files.kill()
    for late in (
        lambda: file.append(b"late"),
        file.fsync,
        lambda: files.open("/data/b", create=True),
        lambda: files.replace("/data/a", b"late"),
        lambda: files.remove("/data/a"),
        lambda: files.rename("/data/a", "/data/b"),
        lambda: files.makedirs("/data/c"),
        lambda: files.sync_dir("/data"),
        lambda: files.lock("/data/.lock"),
    ):
        with pytest.raises(ProcessDied):
            late()
    file.close()
    files.restart()
    assert files.listdir("/data") == [".lock", "a"]
    assert files.read_bytes("/data/a") == b"abc"
    assert files.open_files == 0
    files.lock("/data/.lock")


def test_an_old_processs_file_is_closed_for_the_next() -> None:
    files = disk()
    file = files.open("/data/a", create=True)
    file.acquire()
    files.kill()
    files.restart()
    with pytest.raises(OSError, match="closed"):
        file.append(b"late")
    file.release()
    file.close()
    assert (files.open_files, files.held) == (0, 0)


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda file: file.append(b"def"), b"abc"),
        (lambda file: file.pwrite(b"X", 1), b"abc"),
        (lambda file: file.truncate(1), b"abc"),
        (lambda file: (file.truncate(1), file.append(b"xyz")), b"abc"),
        (lambda file: (file.truncate(1), file.fsync(), file.append(b"xyz")), b"a"),
        (lambda file: (file.append(b"def"), file.fsync(), file.append(b"ghi")), b"abcdef"),
        (lambda file: (file.pwrite(b"X", 2), file.pwrite(b"Y", 0), file.append(b"d")), b"abc"),
        (lambda file: (file.pwrite(b"X", 0), file.append(b"d"), file.fsync()), b"Xbcd"),
        (lambda file: (file.truncate(5), file.fsync()), b"abc\0\0"),
    ],
)
def test_a_loss_of_power_takes_what_was_not_synced(
    change: Callable[[MemoryFile], object], left: bytes
) -> None:
    files = disk()
    change(synced(files, b"abc"))
    assert after_power_loss(files) == left


def test_a_loss_of_power_undoes_changes_of_names() -> None:
    files = disk()
    synced(files, b"abc")
    files.replace("/data/b", b"b")
    file = files.open("/data/new", create=True)
    file.append(b"new")
    file.fsync()
    files.rename("/data/a", "/data/c")
    files.remove("/data/b")
    files.makedirs("/data/d/e")
    files.lose_power()
    files.restart()
    assert files.listdir("/data") == ["a", "b"]
    assert files.read_bytes("/data/b") == b"b"
    assert files.open("/data/a").path == "/data/a"
    files.rename("/data/a", "/data/c")
    files.sync_dir("/data")
    assert after_power_loss(files, "/data/c") == b"abc"
    assert files.listdir("/data") == ["b", "c"]


def test_what_was_written_last_is_known() -> None:
    now = 1_000
    files = MemoryFileSystem(lambda: now)
    file = files.open("/a", create=True)
    assert files.modified_ms("/a") == 1_000
    now = 2_000
    file.append(b"x")
    assert files.modified_ms("/a") == 2_000


def test_removed_files_are_given_back_though_nobody_syncs() -> None:
    files = disk(unsynced_names_max=10)
    tracemalloc.start()
    try:
        for number in range(50):
            file = files.open(f"/data/{number}", create=True)
            file.append(bytes(1 << 20))
            file.close()
            files.remove(f"/data/{number}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 12 << 20
