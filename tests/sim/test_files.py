"""What only the simulated disk does: deaths at any step, losses of power by chance, faults."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable

import pytest
import trio

from tests.harness.simulation import deterministic
from tests.sim.files import Fault, SimFileSystem, SimulatedCrash


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

    deterministic(main)
    assert files.counts["fsync", "/data/a"] == 1
