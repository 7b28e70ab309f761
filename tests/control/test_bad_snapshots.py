"""Damaged and foreign files are refused as snapshots, and directories that cannot take one."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile

import pytest

import oncelog
from oncelog.broker.control import snapshots
from tests.control.snapshot_files import rewritten


def without(content: bytes, name: str) -> bytes:
    with ZipFile(BytesIO(content)) as archive:
        kept = {entry: archive.read(entry) for entry in archive.namelist() if entry != name}
    return zipped(kept)


def zipped(entries: dict[str, bytes]) -> bytes:
    content = BytesIO()
    with ZipFile(content, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return content.getvalue()


def newer(content: bytes) -> bytes:
    manifest = {"format_version": snapshots.FORMAT_VERSION + 1, "oncelog_version": "9.9"}
    return zipped({snapshots.MANIFEST: json.dumps(manifest).encode()})


def flipped(content: bytes) -> bytes:
    """One bit of the data is another."""
    middle = len(content) // 3
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "is not a snapshot of oncelog"),
        (lambda content: b"no snapshot at all", "is not a snapshot of oncelog"),
        (lambda content: content[: len(content) // 2], "is damaged, or was cut"),
        (lambda content: content[:-1], "is damaged, or was cut"),
        (flipped, "is damaged, or was cut"),
        (lambda content: zipped({"a": b"b"}), "a zip file, but not a snapshot"),
        (
            newer,
            r"has format 3, which oncelog 9\.9 wrote; this oncelog, .*, reads formats up to 2: install a newer one",
        ),
        (
            lambda content: rewritten(content, config={"no.such\nkey": "1", "num.partitions": "x"}),
            "num.partitions",
        ),
        (lambda content: without(content, "data/meta.properties"), "it holds no meta.properties"),
        (lambda content: zipped({snapshots.MANIFEST: b"{"}), "is damaged: oncelog-snapshot.json"),
        (lambda content: zipped({snapshots.MANIFEST: b"[]"}), "is damaged: oncelog-snapshot.json"),
        (
            lambda content: zipped({snapshots.MANIFEST: b'{"format_version": 1}'}),
            "is damaged: oncelog-snapshot.json",
        ),
    ],
)
def test_what_is_no_snapshot_is_refused(
    damage: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        seed = kafka.snapshot_bytes()
    path = tmp_path / "seed"
    path.write_bytes(damage(seed))
    kafka = oncelog.Broker(from_snapshot=path, data_dir=tmp_path / "data")
    with pytest.raises(oncelog.SnapshotError, match=message) as refused:
        kafka.start()
    assert "seed" in str(refused.value) or "configuration" in str(refused.value)
    assert sorted(os.listdir(tmp_path)) == ["seed"]
    path.write_bytes(seed)
    kafka.start()
    assert kafka.topics == ["orders"]
    kafka.close()


LARGE = 64 * 1024 * 1024


def seed_with(data: bytes, method: int = ZIP_DEFLATED) -> bytes:
    """A snapshot with a file more."""
    with oncelog.Broker() as kafka:
        content = BytesIO(kafka.snapshot_bytes())
    with ZipFile(content, "a") as archive:
        archive.writestr("data/t-0/more", data, method)
    return content.getvalue()


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_much_is_refused_by_its_sizes() -> None:
    seed = seed_with(bytes(LARGE))
    assert len(seed) < LARGE // 500
    tracemalloc.start()
    try:
        told = (
            r"^the snapshot given as bytes unpacks to 67\d+ bytes; the limit is 10000000 "
            r"\(snapshot_bytes_max, --snapshot-bytes-max\)$"
        )
        with pytest.raises(oncelog.SnapshotError, match=told):
            oncelog.Broker(from_snapshot=seed, snapshot_bytes_max=10_000_000).start()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LARGE // 4
    with oncelog.Broker(from_snapshot=seed, snapshot_bytes_max=2 * LARGE) as kafka:
        assert kafka.topics == []


def test_a_gigabyte_in_a_megabyte_is_too_much_by_default() -> None:
    seed = seed_with(b"x")
    declared = seed[: seed.rindex(b"PK\1\2") + 24] + struct.pack("<I", 1 << 30)
    with pytest.raises(oncelog.SnapshotError, match=r"unpacks to 10737\d+ bytes; the limit is 536870912"):
        snapshots.decode(declared + seed[len(declared) :], "it")


def test_no_more_is_unpacked_than_the_sizes_say() -> None:
    seed = seed_with(bytes(LARGE))
    for size in (0, 10, 5000):
        at = seed.rindex(b"PK\1\2") + 24
        changed = seed[:at] + struct.pack("<I", size) + seed[at + 4 :]
        tracemalloc.start()
        try:
            with pytest.raises(oncelog.SnapshotError, match="is damaged, or was cut"):
                snapshots.decode(changed, "it")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < LARGE // 4


def test_files_that_are_compressed_in_another_way_are_refused() -> None:
    with pytest.raises(oncelog.SnapshotError, match="'data/t-0/more' compressed in another way than by def"):
        snapshots.decode(seed_with(bytes(1000), ZIP_BZIP2), "it")


@pytest.mark.parametrize("bad", [0, -1, "1GB"])
def test_the_limit_is_a_number_of_bytes(bad: Any) -> None:
    with pytest.raises(
        oncelog.InvalidArgumentError, match=r"snapshot_bytes_max=.*: expected a number of byt"
    ):
        oncelog.Broker(snapshot_bytes_max=bad)


def test_every_byte_that_is_cut_is_noticed() -> None:
    with oncelog.Broker() as kafka:
        seed = kafka.snapshot_bytes()
    for size in range(0, len(seed), 7):
        with pytest.raises(oncelog.SnapshotError):
            snapshots.decode(seed[:size], "it")


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", "t-0/../../outside", "t-0//x", "a\\b"])
def test_a_snapshot_writes_nothing_outside_of_the_data_directory(path: str) -> None:
    with oncelog.Broker() as kafka:
        snapshot = snapshots.decode(kafka.snapshot_bytes(), "it")
    content = snapshots.encode(replace(snapshot, files={**snapshot.files, path: b"x"}))
    with pytest.raises(oncelog.SnapshotError, match="a file with the path"):
        oncelog.Broker(from_snapshot=content).start()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(oncelog.SnapshotError, match=rf"{tmp_path}/none cannot be read: No such file"):
        oncelog.Broker(from_snapshot=tmp_path / "none").start()


def test_a_directory_with_data_stays_as_it_is(tmp_path: Path) -> None:
    with oncelog.Broker(topics=["mine"], data_dir=tmp_path / "data") as kafka:
        seed = kafka.snapshot_bytes()
    with pytest.raises(oncelog.SnapshotError, match=r"data: the directory is not empty, it holds .kafka"):
        oncelog.Broker(from_snapshot=seed, data_dir=tmp_path / "data").start()
    with oncelog.Broker(data_dir=tmp_path / "data") as kafka:
        assert kafka.topics == ["mine"]


def test_a_file_that_cannot_be_written_stays_as_it_is(tmp_path: Path) -> None:
    with oncelog.Broker() as kafka:
        with pytest.raises(
            oncelog.SnapshotError, match="no/seed cannot be written: No such file or directory"
        ):
            kafka.snapshot(tmp_path / "no" / "seed")
        with pytest.raises(oncelog.SnapshotError, match="there is a directory in its place"):
            kafka.snapshot(tmp_path)
        kafka.snapshot(tmp_path / "seed")
        kafka.snapshot(tmp_path / "seed")
    assert os.listdir(tmp_path) == ["seed"]


def test_a_directory_that_another_process_uses_is_not_read(tmp_path: Path) -> None:
    with oncelog.Broker(data_dir=tmp_path) as kafka:
        kafka.kill()
        with (
            oncelog.Broker(data_dir=tmp_path),
            pytest.raises(oncelog.SnapshotError, match="another process uses"),
        ):
            kafka.snapshot_bytes()
        kafka.snapshot_bytes()
