"""Log lines, for people and as JSON, and the sink that never waits."""

import json
import os
import threading
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from oncelog.broker.logging import logs
from oncelog.broker.seams import stderr
from oncelog.broker.seams.platforms import HERE
from oncelog.broker.seams.stderr import StderrSink
from tests.harness.clocks import FixedClock
from tests.harness.log_lines import NOW_MS, Lines

STALLED_S = 60
"""Seconds after which a write that must not block is considered stuck."""


@pytest.fixture
def sink() -> Iterator[Lines]:
    lines = Lines()
    with logs.logging_to(logs.LogOutput(lines, FixedClock(NOW_MS), level="debug")):
        yield lines


log = logs.get_logger("broker.some")


def test_human(sink: Lines) -> None:
    log.warning("connection closed", peer="127.0.0.1:5", reason="too large", size=7, client_id=None)
    assert sink.lines == [
        "2023-11-14T22:13:20.123Z WARNING broker.some: connection closed "
        "peer=127.0.0.1:5 reason='too large' size=7 client_id=None\n"
    ]


def test_json(sink: Lines) -> None:
    with logs.logging_to(logs.LogOutput(sink, FixedClock(NOW_MS), style="json")):
        log.error("bad", client_id="é\n", size=7, done=True, what=None, key=b"x", level="mine")
    assert json.loads(sink.lines[0]) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "error",
        "logger": "broker.some",
        "message": "bad",
        "client_id": "é\n",
        "size": 7,
        "done": True,
        "what": None,
        "key": "b'x'",
    }
    assert sink.lines[0].endswith("}\n")
    assert sink.lines[0].count("\n") == 1


@pytest.mark.parametrize("hostile", ["a\nb", "a\x1b[2Jb", "a b=c", "", "'", "\u202e", "\ud800"])
def test_text_of_a_client_cannot_break_a_line(sink: Lines, hostile: str) -> None:
    log.info("hello", client_id=hostile, after=1)
    line = sink.lines[0]
    assert line.count("\n") == 1
    assert line[:-1].isprintable()
    assert line.endswith(f"client_id={hostile!r} after=1\n")


def test_long_fields_are_shortened(sink: Lines) -> None:
    log.info("hello", client_id="x" * 100_000)
    assert len(sink.lines[0]) < logs.FIELD_MAX_CHARS + 100


def test_levels(sink: Lines) -> None:
    for level, written in (("debug", 4), ("info", 3), ("warning", 2), ("error", 1)):
        sink.lines.clear()
        with logs.logging_to(logs.LogOutput(sink, FixedClock(NOW_MS), level=level)):
            for write in (log.debug, log.info, log.warning, log.error):
                write("x")
        assert len(sink.lines) == written


def test_a_traceback_follows_its_line(sink: Lines) -> None:
    try:
        raise ValueError("see \x1b[2J")
    except ValueError:
        log.exception("failed", api="Fetch")
    head, *trace = sink.lines[0].splitlines()
    assert head.endswith("broker.some: failed api=Fetch")
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-1] == "ValueError: see \\x1b[2J"


def test_without_an_output_nothing_is_written(sink: Lines) -> None:
    with logs.logging_to(None):
        log.error("x")
    assert sink.lines == []
    log.error("x")
    assert len(sink.lines) == 1


def test_tasks_and_worker_threads_write_where_the_task_writes_that_started_them() -> None:
    one, other = Lines(), Lines()

    async def write(sink: Lines) -> None:
        with logs.logging_to(logs.LogOutput(sink, FixedClock(NOW_MS))):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(to_the_other_side_of_a_checkpoint)
                await trio.to_thread.run_sync(log.info, "thread")

    async def to_the_other_side_of_a_checkpoint() -> None:
        await trio.testing.wait_all_tasks_blocked()
        log.info("task")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, one)
            nursery.start_soon(write, other)
        log.info("nobody's")

    trio.run(main)
    assert sorted(line.split()[-1] for line in one.lines) == ["task", "thread"]
    assert sorted(line.split()[-1] for line in other.lines) == ["task", "thread"]


def test_lost_lines_are_counted_in_a_line(sink: Lines) -> None:
    sink.lost = 3
    log.info("x")
    assert sink.lines[1].endswith(
        "WARNING oncelog.broker.logging.logs: log lines were lost, nobody read them lines=3\n"
    )


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def write_all(sink: StderrSink, count: int, line: bytes) -> None:
    """Write in a thread, so that a sink that blocks fails the test instead of hanging it."""

    def write() -> None:
        for _ in range(count):
            sink.write(line)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(STALLED_S)
    assert not thread.is_alive(), "a write waited for the reader"


def read_for_now(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except BlockingIOError:
            part = b""
        if not part:
            return b"".join(parts)
        parts.append(part)


@pytest.mark.parametrize("polls_terminals", [True, False])
def test_a_reader_that_stalls_does_not_stall_the_broker(pipe: tuple[int, int], polls_terminals: bool) -> None:
    reader, writer = pipe
    sink = StderrSink(writer, HERE._replace(polls_terminals=polls_terminals))
    line = b"x" * 999 + b"\n"
    write_all(sink, 1000, line)
    assert sink.take_lost() == 0  # not yet: lines still wait

    arrived = b""
    while part := read_for_now(reader):
        arrived += part
        sink.flush()
    lost = sink.take_lost()
    assert arrived == line * (1000 - lost)
    assert len(arrived) > stderr.WAITING_MAX_BYTES
    assert lost > 0
    sink.write(b"again\n")
    assert read_for_now(reader) == b"again\n"


def test_a_line_longer_than_a_pipe_arrives_whole(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    sink = StderrSink(writer)
    line = bytes(range(256)) * 900
    write_all(sink, 1, line)
    arrived = b""
    while part := read_for_now(reader):
        arrived += part
        sink.flush()
    assert arrived == line


@pytest.mark.parametrize("polls_terminals", [True, False])
def test_a_reader_that_is_gone_is_no_error(polls_terminals: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        sink = StderrSink(writer, HERE._replace(polls_terminals=polls_terminals))
        write_all(sink, 1000, b"x" * 1000)
        assert sink.take_lost() == 0
    finally:
        os.close(writer)


def test_levels_of_single_loggers() -> None:
    lines = Lines()
    output = logs.LogOutput(lines, FixedClock(NOW_MS), level="info")
    one, other = logs.get_logger("oncelog.tests.one"), logs.get_logger("oncelog.tests.other")
    with logs.logging_to(output):
        output.set_level("oncelog.tests.one", "DEBUG")
        one.debug("shown")
        other.debug("not shown")
        output.set_level("oncelog", "ERROR")
        one.info("shown, too")
        other.warning("not shown")
        output.set_level("oncelog.tests.one", None)
        one.warning("not shown")
        output.set_level("root", "FATAL")
        one.error("shown at last")
        output.set_level("oncelog", None)
        one.error("not shown")
    assert output.level_name("oncelog.tests.one") == "FATAL"
    assert [line.split(": ", 1)[1].strip() for line in lines.lines] == [
        "shown",
        "shown, too",
        "shown at last",
    ]
