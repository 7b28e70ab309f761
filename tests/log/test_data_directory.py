"""The data directory's own files, as Kafka writes and reads them."""

from __future__ import annotations

import random
import re

import pytest
import trio

from oncelog.broker.log.checkpoints import (
    MalformedCheckpointError,
    OffsetCheckpoint,
    format_offsets,
    parse_offsets,
)
from oncelog.broker.log.data_directory import (
    PROXY_NODE_ID,
    DataDirectory,
    DataDirectoryError,
    parse_properties,
    partition_of,
    random_uuid,
    set_aside_name,
)
from oncelog.wire.schema import uuid_from_text, uuid_to_text
from tests.harness.log_manager import DATA, run
from tests.sim.files import SimFileSystem

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
# Written by kafka-storage 4.3.1.
KAFKAS_META_PROPERTIES = b"""#
#Sat Nov 21 11:02:17 UTC 2026
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
directory.id=Bdlr4bDtB0ftzFqTwkqoqg
node.id=1
version=1
"""


def disk() -> SimFileSystem:
    files = SimFileSystem(random.Random(0))
    files.makedirs(DATA)
    return files


def opened(files: SimFileSystem, node_id: int = 1, cluster_id: str | None = None) -> DataDirectory:
    directory = DataDirectory(files, DATA)
    directory.open(node_id, cluster_id, random.Random(1))
    return directory


def test_a_new_directory_gets_an_identity_that_stays() -> None:
    files = SimFileSystem(random.Random(0))
    first = opened(files)
    found = parse_properties(files.read_bytes(f"{DATA}/meta.properties"))
    assert found["version"] == "1"
    assert found["node.id"] == "1"
    assert uuid_from_text(found["directory.id"]) == first.directory_id
    assert len(uuid_from_text(found["cluster.id"])) == 16
    first.release()
    second = opened(files)
    assert (second.cluster_id, second.directory_id) == (first.cluster_id, first.directory_id)
    second.release()
    assert opened(SimFileSystem(random.Random(0)), cluster_id=CLUSTER_ID).cluster_id == CLUSTER_ID


def test_a_proxys_belongs_to_the_cluster_that_it_is_told() -> None:
    files = disk()
    first = opened(files, PROXY_NODE_ID)
    assert first.cluster_id == ""
    first.set_cluster_id(CLUSTER_ID)
    assert first.cluster_id == CLUSTER_ID
    first.release()
    found = parse_properties(files.read_bytes(f"{DATA}/meta.properties"))
    second = opened(files, PROXY_NODE_ID)
    assert (second.cluster_id, second.directory_id) == (CLUSTER_ID, first.directory_id)
    assert found == {
        "cluster.id": CLUSTER_ID,
        "directory.id": uuid_to_text(first.directory_id),
        "node.id": "-1",
        "version": "1",
    }


@pytest.mark.parametrize(
    ("made_by", "taken_by", "why"),
    [
        (PROXY_NODE_ID, 1, "is of a proxy: a broker needs a data directory of its own"),
        (1, PROXY_NODE_ID, "is of a broker: a proxy needs a data directory of its own"),
    ],
)
def test_a_broker_and_a_proxy_take_nothing_from_each_other(made_by: int, taken_by: int, why: str) -> None:
    files = disk()
    opened(files, made_by).release()
    before = files.read_bytes(f"{DATA}/meta.properties")
    with pytest.raises(DataDirectoryError) as caught:
        opened(files, taken_by)
    assert str(caught.value) == f"{DATA}/meta.properties {why}"
    assert files.read_bytes(f"{DATA}/meta.properties") == before
    opened(files, made_by).release()


def test_kafkas_own_file_is_taken_as_it_is() -> None:
    files = disk()
    files.replace(f"{DATA}/meta.properties", KAFKAS_META_PROPERTIES)
    directory = opened(files)
    assert directory.cluster_id == CLUSTER_ID
    assert uuid_to_text(directory.directory_id) == "Bdlr4bDtB0ftzFqTwkqoqg"
    assert files.read_bytes(f"{DATA}/meta.properties") == KAFKAS_META_PROPERTIES


def test_a_directory_without_an_id_gets_one_and_loses_nothing() -> None:
    files = disk()
    content = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\nmore=x\n"
    files.replace(f"{DATA}/meta.properties", content.encode())
    directory = opened(files)
    found = parse_properties(files.read_bytes(f"{DATA}/meta.properties"))
    assert found["directory.id"] == uuid_to_text(directory.directory_id)
    assert found["more"] == "x"
    assert found["cluster.id"] == CLUSTER_ID


@pytest.mark.parametrize(
    ("content", "node_id", "cluster_id", "message"),
    [
        (b"version=0\nbroker.id=1\n", 1, None, "version 0"),
        (b"version=1\nnode.id=1\n", 1, None, "cluster.id was not found"),
        (b"version=1\ncluster.id=x\n", 1, None, "node.id was not found"),
        (KAFKAS_META_PROPERTIES, 2, None, "stored node id 1 .* node.id 2"),
        (KAFKAS_META_PROPERTIES, 1, "other", "expected other, but read " + CLUSTER_ID),
        (KAFKAS_META_PROPERTIES.replace(b"Bdlr", b"B?"), 1, None, "directory.id"),
    ],
)
def test_anothers_directory_is_refused(
    content: bytes, node_id: int, cluster_id: str | None, message: str
) -> None:
    files = disk()
    files.replace(f"{DATA}/meta.properties", content)
    with pytest.raises(DataDirectoryError, match=message):
        opened(files, node_id, cluster_id)
    assert files.read_bytes(f"{DATA}/meta.properties") == content
    files.lock(f"{DATA}/.lock")  # and the lock is given back


def test_names() -> None:
    assert partition_of("topic-0") == ("topic", 0)
    assert partition_of("a-b.c_d-12") == ("a-b.c_d", 12)
    assert partition_of("topic-3.0123456789abcdef0123456789abcdef-delete") == ("topic", 3)
    assert partition_of("a.b-3.0123456789abcdef0123456789abcdef-stray") == ("a.b", 3)
    for name in ("topic", "-0", "topic-", "topic-x", "topic-1-delete", "meta.properties", ".lock", "topic-²"):
        assert partition_of(name) is None


def test_names_of_what_is_set_aside_fit() -> None:
    chance = random.Random(2)
    assert re.fullmatch(r"topic-7\.[0-9a-f]{32}-delete", set_aside_name("topic", 7, "-delete", chance))
    longest = set_aside_name("t" * 249, 123456, "-delete", chance)
    assert len(longest) == 255
    assert partition_of(longest) == ("t" * (255 - len("-123456.-delete") - 32), 123456)


def test_random_uuids_are_what_kafka_makes() -> None:
    chance = random.Random(3)
    for _ in range(2000):
        drawn = random_uuid(chance)
        assert drawn[6] >> 4 == 4
        assert drawn[8] >> 6 == 2
        assert not uuid_to_text(drawn).startswith("-")


def test_a_checkpoint_is_written_as_kafka_does() -> None:
    text = b"0\n3\na-topic 0 12\na-topic 11 0\nother 2 9223372036854775807\n"
    offsets = {("other", 2): 2**63 - 1, ("a-topic", 11): 0, ("a-topic", 0): 12}
    assert format_offsets(offsets) == text
    assert parse_offsets(text, "x") == offsets
    assert parse_offsets(b"0\n2\nb  1\t5\na 0 1\n", "x") == {("b", 1): 5, ("a", 0): 1}
    assert parse_offsets(b"", "x") == parse_offsets(b"0\n", "x") == parse_offsets(b"0\n0\n", "x") == {}


@pytest.mark.parametrize(
    "text",
    [
        b"1\n0\n",
        b"x\n0\n",
        b"0\n1\n",
        b"0\n1\na 0 1\nb 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na x 1\n",
        b"\xff\n",
    ],
)
def test_a_malformed_checkpoint(text: bytes) -> None:
    with pytest.raises(MalformedCheckpointError, match="the-path"):
        parse_offsets(text, "the-path")


@pytest.mark.parametrize("at_s", [0.5, 1.5])
def test_a_write_that_must_be_durable_at_once_overtakes_one_in_a_thread(at_s: float) -> None:
    """Whether the thread writes the new file or syncs its name. What it was to write besides comes, too."""
    files = disk()
    checkpoint = OffsetCheckpoint(files, f"{DATA}/c")
    now = {("t", 0): 1}

    async def main() -> None:
        files.latency_s = 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checkpoint.save, lambda: {("other", 0): 7, **now})
            await trio.sleep(at_s)
            now["t", 0] = 2
            checkpoint.save_now({**checkpoint.known, **now})

    run(main)
    assert OffsetCheckpoint(files, f"{DATA}/c").read() == checkpoint.known == {("other", 0): 7, ("t", 0): 2}


@pytest.mark.parametrize("at_s", [0.5, 1.5])
@pytest.mark.parametrize("seed", range(10))
def test_what_was_written_at_once_survives_a_loss_of_power_while_a_thread_writes(
    seed: int, at_s: float
) -> None:
    files = SimFileSystem(random.Random(seed))
    files.makedirs(DATA)
    files.sync_dir("/")
    checkpoint = OffsetCheckpoint(files, f"{DATA}/c")

    async def main() -> None:
        files.latency_s = 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checkpoint.save, lambda: {("t", 0): 1})
            await trio.sleep(at_s)
            checkpoint.save_now({("t", 0): 2})
            files.crash("power")
            nursery.cancel_scope.cancel()

    run(main)
    assert OffsetCheckpoint(files, f"{DATA}/c").read() == {("t", 0): 2}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["notes.txt"], "notes.txt"),
        ([".git", "README.md", "src"], ".git, README.md, src"),
        ([".bashrc", "Desktop", "a", "b", "c"], ".bashrc, Desktop, a and 2 more"),
        # A name like a partition's: it would be moved aside as the partition of an unknown topic.
        (["backup-1"], "backup-1"),
        (["lost+found", "notes.txt"], "notes.txt"),
        (["__cluster_metadata-0", "t-0"], "__cluster_metadata-0, t-0"),
    ],
)
def test_a_folder_with_other_files_is_not_taken_and_nothing_is_left_in_it(
    names: list[str], said: str
) -> None:
    files = disk()
    for name in names:
        files.makedirs(f"{DATA}/{name}")
    with pytest.raises(DataDirectoryError) as refused:
        opened(files)
    assert str(refused.value) == (
        f"{DATA} is not empty and not a data directory: it holds {said}, but no meta.properties"
    )
    assert files.listdir(DATA) == sorted(names)


@pytest.mark.parametrize(
    "names",
    [[], ["lost+found"], [".lock", "meta.properties.tmp"], [".gitkeep"], ["meta.properties", "notes.txt", "t-0"]],
)  # fmt: skip
def test_a_new_folder_or_a_formatted_one_is_taken(names: list[str]) -> None:
    files = disk()
    for name in names:
        if name == "meta.properties":
            files.replace(f"{DATA}/meta.properties", KAFKAS_META_PROPERTIES)
        else:
            files.makedirs(f"{DATA}/{name}") if name == "lost+found" else files.open(
                f"{DATA}/{name}", create=True
            )
    assert opened(files).node_id == 1
