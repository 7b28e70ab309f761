"""The exactly-once sink's task without Spark: stopped, raced and fenced after each of its steps."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import KafkaException

from oncelog.spark.control import Settings, claim_sink, make_control_topic, read_claim, read_control
from oncelog.spark.errors import SinkError
from oncelog.spark.once import abort_sink
from oncelog.spark.rows import Digest, SinkRow
from oncelog.spark.task import Batch, TaskWrite, Written
from spark_it.tests.topics import Topics, wait_until

STEPS = ("initialised", "checked", "begun", "produced", "recorded", "offset sent", "committed")
THREADS = 8


@pytest.fixture
def settings(topics: Topics, name: str) -> Settings:
    """A sink of two tasks whose topic is `name`."""
    topics.make(name)
    kafka = {"bootstrap.servers": topics.bootstrap}
    settings = Settings(
        f"{name}sink", 2, ("key",), kafka, control=f"{name}control", token="t1", driver="driver-1"
    )
    make_control_topic(settings)
    return settings


def rows(name: str, count: int, start: int = 0, task: int = 0) -> list[SinkRow]:
    numbers = range(start, start + count)
    return [SinkRow(task, b"k", b"%d" % one, [("h", None)], name, None) for one in numbers]


def values(topics: Topics, name: str) -> list[int]:
    return [int(value or b"") for value in topics.values(name)]


def run_to_step(write: TaskWrite, rows: list[SinkRow], step: str) -> Iterator[str]:
    """Run up to and including `step`; returns the remaining steps."""
    steps = write.steps(rows)
    if step != "nothing":
        for done in steps:
            if done == step:
                break
    return steps


def finish(steps: Iterator[str]) -> str:
    """Run the remaining steps; returns the outcome."""
    try:
        for _ in steps:
            pass
        return "done"
    except KafkaException:
        return "failed"
    except SinkError:
        return "refused"


def failing_rows(name: str) -> Iterator[SinkRow]:
    yield from rows(name, 2, 5)
    raise ZeroDivisionError


def test_batches_follow_one_another(topics: Topics, settings: Settings, name: str) -> None:
    first = TaskWrite(settings, Batch("q", 0, 0)).run(rows(name, 3))
    assert first == Written(3, False)
    assert TaskWrite(settings, Batch("q", 0, 0)).run(reversed(rows(name, 3))) == Written(3, True)
    assert TaskWrite(settings, Batch("q", 1, 0)).run([]) == Written(0, False)
    assert TaskWrite(settings, Batch("q", 2, 0)).run(rows(name, 2, 3)) == Written(2, False)
    assert values(topics, name) == [0, 1, 2, 3, 4]
    assert [one.headers() for one in topics.read(name)] == [[("h", None)]] * 5
    with pytest.raises(SinkError, match=r"batch 1, task 0: batch 2 is already written"):
        TaskWrite(settings, Batch("q", 1, 0)).run(rows(name, 1))
    with pytest.raises(SinkError, match=r"batch 2, task 0: the rows differ .* \(2 rows now, 2 then\)"):
        TaskWrite(settings, Batch("q", 2, 0)).run(rows(name, 2, 4))
    with pytest.raises(SinkError, match="a row of task 1: rows were moved"):
        TaskWrite(settings, Batch("q", 3, 0)).run(rows(name, 2, 5, task=1))
    with pytest.raises(ZeroDivisionError):
        TaskWrite(settings, Batch("q", 3, 0)).run(failing_rows(name))
    adopting = settings._replace(adopt=True)
    assert TaskWrite(adopting, Batch("q", 1, 0)).run(rows(name, 1, 9)) == Written(1, False)
    assert values(topics, name) == [0, 1, 2, 3, 4, 9]


def test_two_attempts_at_every_pair_of_steps(topics: Topics, settings: Settings, name: str) -> None:
    """Two attempts run up to a step each, then the first finishes, then the second: each row is written once.

    If both fail, a third attempt writes. Each pair of steps has its own task.
    """
    pairs = list(itertools.product(("nothing", *STEPS), repeat=2))
    # A fenced attempt waits for the other's pending offset, which does not end here: a short timeout.
    wide = settings._replace(tasks=len(pairs), timeout_s=5)

    def begin(task: int) -> None:
        TaskWrite(wide, Batch("q", 0, task)).run([])

    def race(task: int) -> tuple[str, ...]:
        task_rows = rows(name, 2, 2 * task, task)
        batch = Batch("q", 1, task)
        attempts = [run_to_step(TaskWrite(wide, batch), task_rows, step) for step in pairs[task]]
        outcomes = [finish(attempt) for attempt in attempts]
        if "done" not in outcomes:
            TaskWrite(wide, batch).run(task_rows)
        return (*pairs[task], *outcomes)

    begin(0)
    with ThreadPoolExecutor(THREADS) as pool:  # nearly all of the time is librdkafka's waits
        list(pool.map(begin, range(1, len(pairs))))
        races = list(pool.map(race, range(len(pairs))))
    found = sorted(values(topics, name))
    wrong = {races[number // 2] for number in range(2 * len(pairs)) if found.count(number) != 1}
    assert not wrong
    assert len(found) == 2 * len(pairs)


@pytest.mark.parametrize("step", ["nothing", *STEPS])
def test_a_zombie_wakes_after_the_next_batch(
    topics: Topics, settings: Settings, name: str, step: str
) -> None:
    zombie = run_to_step(TaskWrite(settings, Batch("q", 4, 0)), rows(name, 2), step)
    TaskWrite(settings, Batch("q", 4, 0)).run(rows(name, 2))
    TaskWrite(settings, Batch("q", 5, 0)).run(rows(name, 2, 2))
    ends = {"nothing": "refused", "initialised": "refused", "committed": "done"}
    assert finish(zombie) == ends.get(step, "failed")
    TaskWrite(settings, Batch("q", 6, 0)).run(rows(name, 2, 4))
    assert values(topics, name) == [0, 1, 2, 3, 4, 5]


def test_deleted_group_offsets(topics: Topics, settings: Settings, name: str) -> None:
    """The group's offsets are deleted between a crash and the restart: the control topic has a copy."""
    TaskWrite(settings, Batch("q", 0, 0)).run(rows(name, 2))
    with topics.transactional(f"{name}somebody") as other_producer:
        other_producer.begin_transaction()
        other_producer.produce(settings.control, b"x", b"y")
        other_producer.flush(60)
        TaskWrite(settings, Batch("q", 1, 0)).run(rows(name, 2, 2))
        topics.admin.delete_consumer_groups([settings.transactional_id(0)])[
            settings.transactional_id(0)
        ].result(60)
        other_producer.abort_transaction(60)
    assert TaskWrite(settings, Batch("q", 1, 0)).run(rows(name, 2, 2)) == Written(2, True)
    assert values(topics, name) == [0, 1, 2, 3]


def test_the_owner_of_a_sink(topics: Topics, settings: Settings, name: str) -> None:
    claim_sink(settings, None)
    TaskWrite(settings, Batch("q", 0, 0)).run(rows(name, 1))
    claim = read_claim(settings)
    assert claim is not None
    assert (claim.query, claim.tasks, claim.by, claim.driver) == ("q", 2, ("key",), "driver-1")
    with pytest.raises(SinkError, match=r"laid out as tasks=2, by=\['key'\]; tasks=3"):
        claim_sink(settings._replace(tasks=3), "q")
    stranger = settings._replace(token="t2", driver="driver-2")
    with pytest.raises(SinkError, match=r"belongs to query q \(driver-1\), this is query other"):
        TaskWrite(stranger, Batch("other", 0, 0)).run(rows(name, 1, 1))
    # A restart of the same query takes over; the old driver fails at its next batch, with the new one's name.
    TaskWrite(stranger, Batch("q", 1, 0)).run([])
    with pytest.raises(SinkError, match=r"was taken over from driver-1 by driver-2 \(query q\)"):
        TaskWrite(settings, Batch("q", 2, 0)).run(rows(name, 1, 1))
    adopted = settings._replace(token="t3", driver="driver-3", adopt=True)
    assert TaskWrite(adopted, Batch("new", 0, 0)).run(rows(name, 1, 2)).rows == 1
    with pytest.raises(SinkError, match=r"taken over from driver-2 by driver-3 \(query new\)"):
        TaskWrite(stranger, Batch("q", 2, 0)).run(rows(name, 1, 3))
    assert values(topics, name) == [0, 2]
    assert {"sink:" + settings.sink_id, "task:" + settings.transactional_id(0)} == set(read_control(settings))


def test_open_transactions_are_ended(topics: Topics, settings: Settings, name: str) -> None:
    """`abort_sink` ends them at once; otherwise the timeout does, and a task that outlives it fails with that."""
    claim_sink(settings, None)
    left = run_to_step(TaskWrite(settings, Batch("q", 0, 1)), rows(name, 2, task=1), "offset sent")
    wait_until(lambda: topics.ends(name, committed=False)[1] == 2, "its rows are there")
    assert abort_sink(settings) == 2
    assert finish(left) == "failed"
    wait_until(
        lambda: values(topics, name) == [] and topics.ends(name)[1] == 3, "the aborted transaction's marker"
    )
    short = settings._replace(transaction_timeout_ms=1000)
    slow = TaskWrite(short, Batch("q", 0, 0))

    def slow_rows() -> Iterator[SinkRow]:
        end = topics.ends(name)[1]
        yield from rows(name, 1)
        assert slow._producer is not None
        slow._producer.flush(60)
        wait_until(lambda: topics.ends(name)[1] == end + 2, "the broker aborts it")
        yield from rows(name, 1, 1)

    with pytest.raises(SinkError, match=r"batch 0, task 0: .*, or its transaction outlived 1000 ms$"):
        slow.run(slow_rows())
    assert values(topics, name) == []
    assert TaskWrite(short, Batch("q", 0, 0)).run(rows(name, 2)).rows == 2
    with pytest.raises(SinkError, match="is not known in"):
        abort_sink(settings._replace(sink_id="nobody"))


def test_digests() -> None:
    """Digests are equal for the same rows in any order, and differ if a field or the number of copies differs."""
    row = SinkRow(0, b"k", b"v", [("h", b"x")], "t", 1)
    other: list[Any] = [
        row._replace(key=None),
        row._replace(key=b""),
        row._replace(value=None),
        row._replace(value=b"v\0"),
        row._replace(headers=None),
        row._replace(headers=[]),
        row._replace(headers=[("h", None)]),
        row._replace(topic="u"),
        row._replace(partition=None),
        row._replace(key=b"kv", value=b""),
    ]

    def digest(*rows: SinkRow) -> str:
        total = Digest()
        for row in rows:
            total.add(row)
        return total.text()

    assert len({digest(one) for one in [row, *other]}) == 1 + len(other)
    assert digest(*other) == digest(*reversed(other))
    assert len({digest(*[row] * count) for count in range(5)}) == 5
    assert digest(row) == digest(row._replace(bucket=3))
