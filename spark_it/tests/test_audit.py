"""audit: it finds the faults of a damaged lake, and none in an intact one."""

import pathlib
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from spark_it.pipeline.audit import PartitionAudit, audit
from spark_it.pipeline.kafka import Bound, Cluster
from spark_it.pipeline.lake import Lake
from spark_it.pipeline.load import Loader, Request
from spark_it.tests.topics import Record, Topics, numbered, wait_until


@pytest.fixture
def pipeline(spark: Any, topics: Topics, tmp_path: pathlib.Path) -> Loader:
    options = {"kafka.bootstrap.servers": topics.bootstrap}
    cluster = Cluster({"bootstrap.servers": topics.bootstrap})
    return Loader(spark, cluster, Lake(spark, str(tmp_path / "lake")), options)


def run_audit(loader: Loader, name: str) -> dict[int, PartitionAudit]:
    report = audit(loader.spark, loader.cluster, loader.lake, loader.kafka, [name])
    return {one.tp.partition: one for one in report}


def test_gaps_are_no_loss_and_faults_are_found(topics: Topics, name: str, pipeline: Loader) -> None:
    topics.make(name, 4)
    # Partition 0 is complete; 1 has an aborted transaction between others; in 2 records expire before the load, in 3
    # after it.
    topics.produce(name, numbered(6), 0)
    for commit in (True, False, True):
        topics.transaction(name, numbered(2), commit=commit, partition=1)
    for partition in (2, 3):
        topics.produce(name, numbered(6), partition)
    topics.delete_records(name, 2, 4)
    pipeline.run(Request([name]))
    topics.delete_records(name, 3, 5)
    found = run_audit(pipeline, name)
    assert all(one.good for one in found.values()), found
    counted = {
        number: (one.readable, one.in_lake, one.gaps, one.expired, one.gone) for number, one in found.items()
    }
    assert counted == {0: (6, 6, 0, 0, 0), 1: (4, 4, 5, 0, 0), 2: (2, 2, 0, 4, 0), 3: (1, 6, 0, 0, 0)}

    # Another writer damages the table: it removes rows, duplicates one, and writes some in reverse order.
    table = DeltaTable(pipeline.lake.path)
    rows = table.to_pyarrow_table()
    table.delete("partition = 0 AND offset IN (2, 3)")
    copy = rows.filter([part == 1 and offset == 0 for part, offset in _places(rows)])
    write_deltalake(table, copy, mode="append")
    backwards = rows.filter([part == 2 for part, _ in _places(rows)]).sort_by([("offset", "descending")])
    table.delete("partition = 2")
    write_deltalake(table, backwards, mode="append")
    topics.produce(name, numbered(1, 6), 3)  # not loaded yet
    found = run_audit(pipeline, name)
    faults = {
        number: {fault: count for fault, count in one.faults.items() if count}
        for number, one in found.items()
    }
    assert faults == {0: {"missing": 2}, 1: {"doubled": 1}, 2: {"out of order": 1}, 3: {"missing": 1}}
    examples = {number: dict(one.examples) for number, one in found.items()}
    assert examples == {
        0: {"missing": [2, 3]},
        1: {"doubled": [0]},
        2: {"out of order": [4]},
        3: {"missing": [6]},
    }
    assert "2 missing (offsets 2, 3), 0 doubled" in str(found[0])
    # The lake's state survives commits of other writers, and back-fill still works.
    assert pipeline.run(Request([name], Bound("offset", 6))).offsets == 1


def test_compaction(topics: Topics, name: str, pipeline: Loader) -> None:
    """Records compacted before the load are gaps, those compacted later are no longer in the topic; neither is a
    fault."""
    configs = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    topics.make(name, 1, configs)

    def produce_and_compact(offset: int, total: int) -> None:
        """Produce the same three keys, and a new key that rolls their segment; wait until `total` records are left."""
        now_ms = 1_790_000_000_000 + 1000 * offset
        topics.produce(name, [Record(b"k%d" % key, b"v", timestamp=now_ms) for key in range(3)])
        topics.produce(name, [Record(b"r%d" % offset, b"v", timestamp=now_ms + 500)])
        wait_until(lambda: len(topics.read(name)) == total, f"{total} records are left")

    produce_and_compact(0, 4)  # offsets 0-2, 3
    produce_and_compact(4, 5)  # 4-6, 7: what is at 0-2 goes
    pipeline.run(Request([name]))
    (found,) = run_audit(pipeline, name).values()
    assert (found.readable, found.in_lake, found.gaps, found.gone, found.good) == (5, 5, 3, 0, True)
    produce_and_compact(8, 6)  # 8-10, 11: what is at 4-6 goes
    (found,) = run_audit(pipeline, name).values()
    assert (found.readable, found.in_lake, found.gaps, found.gone) == (6, 5, 3, 3)
    assert dict(found.faults) == {"missing": 4, "doubled": 0, "out of order": 0}  # not loaded yet
    pipeline.run(Request([name]))
    (found,) = run_audit(pipeline, name).values()
    assert (found.readable, found.in_lake, found.gaps, found.gone, found.good) == (6, 9, 3, 3, True)


def _places(rows: Any) -> list[tuple[int, int]]:
    return list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
