"""Whether a test asks a real Kafka, or takes what Kafka has answered (`--kafka`).

- ``recorded``, the default: only tests ask Kafka that are made of something else now than when it answered.
- ``asked``: every test asks, and Kafka has to answer as is recorded. Tests that are marked `whole_run` run, too.
- ``record``: the tests ask that are made of something else now, and what Kafka answers is written.
- ``record-again``: all tests ask, and what Kafka answers is written.

Two kinds of tests ask Kafka. A half runs on Kafka alone: one of its parameters is "kafka", or it is marked
`asks_kafka`; what is recorded of it is that it passed. A comparison has the fixture `answers`, and holds oncelog
against what Kafka answers.
"""

from __future__ import annotations

import os
import pathlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.common import seeds
from tests.common.jars import RealPartMissing, java, kafka_version, require
from tests.common.recorded.answers import Answers, Entry, Observations, as_lines
from tests.common.recorded.ingredients import ROOT, Ingredients
from tests.common.recorded.witness import Witness

RECORDED, ASKED, RECORD, RECORD_AGAIN = "recorded", "asked", "record", "record-again"
KAFKA = "kafka"
NEW_SEEDS = 2
HAS_ASKED = "has asked Kafka"
"""The property of a report that says so."""


class Recorder:
    """What is recorded of all tests; the fixture `answers`."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.new: dict[str, dict[str, Entry]] = {}
        """What this run has to record, by file and test."""
        self.collected: dict[str, list[str]] = {}
        """The tests that ask Kafka, of each file that was collected whole."""
        self._files: dict[str, Answers] = {}
        self._made_of: dict[tuple[str, str], Ingredients] = {}
        self._witness = Witness() if self.writes else None
        self._test: _Test | None = None

    @property
    def writes(self) -> bool:
        return self.mode in (RECORD, RECORD_AGAIN)

    def entry(self, item: pytest.Item) -> Entry | None:
        """What is recorded of a test, if it is made of the same as then."""
        file, test = _key(item)
        if file not in self._files:
            self._files[file] = Answers(path_of(file), kafka_version())
        entry = self._files[file].entries.get(test)
        return entry if entry is not None and entry.digest == self.made_of(item).digest else None

    def made_of(self, item: pytest.Item) -> Ingredients:
        cls = getattr(item, "cls", None)
        name = getattr(item, "originalname", item.name) if cls is None else cls.__name__
        node = item.path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."), name
        if node not in self._made_of:
            self._made_of[node] = Ingredients(node)
        return self._made_of[node]

    def begin(self, item: pytest.Item) -> None:
        """Take what is recorded of the test that is set up now."""
        self._test = _Test(item, self.entry(item), self.mode)
        if self._witness is not None:
            self._witness.begin()

    def end(self, item: pytest.Item) -> None:
        """Keep what the test, which has passed, has to record. Raises AssertionError if it is made of more than was
        found.
        """
        test, self._test = self._test, None
        assert test is not None
        if self._witness is None:
            return
        unknown = self._witness.end(self.made_of(item))
        assert not unknown, f"ingredients.py does not find these, of which the test is made: {unknown}"
        file, name = _key(item)
        self.new.setdefault(file, {})[name] = Entry(self.made_of(item).digest, test.answered)

    def of_kafka(self, ask: Callable[[], Observations]) -> Observations:
        """What Kafka answers to the next comparison of the running test: as it is recorded, or as `ask` observes."""
        assert self._test is not None, "no test is running that has the fixture `answers`"
        return self._test.of_kafka(ask)

    def value(self, ask: Callable[[], Any]) -> Any:
        """`of_kafka` of one value."""
        return self.of_kafka(lambda: [ask()])[0]

    def both(self, observe: Callable[[str], Any]) -> dict[str, Any]:
        """What `observe(target)` gives of "kafka", as `value`, and of "oncelog"."""
        return {KAFKA: self.value(lambda: observe(KAFKA)), "oncelog": observe("oncelog")}


class _Test:
    """The comparisons of the test that runs."""

    def __init__(self, item: pytest.Item, entry: Entry | None, mode: str) -> None:
        self.answered: list[list[str]] = []
        self._item = item
        self._entry = entry
        self._mode = mode
        self._number = 0

    def of_kafka(self, ask: Callable[[], Observations]) -> Observations:
        recorded = None if self._entry is None else self._entry.observations(self._number)
        self._number += 1
        if self._mode == RECORDED:
            if recorded is not None:
                return recorded
            check_may_ask(self._item)
        answered = ask()
        if self._mode in (RECORD, RECORD_AGAIN):
            self.answered.append(as_lines(answered))
        elif recorded is not None:
            assert answered == recorded, _no_longer(answered, recorded)
        return answered


def _no_longer(answered: Observations, recorded: Observations) -> str:
    pairs = [f"{old!r}\n  now {new!r}" for old, new in zip(recorded, answered, strict=False) if old != new]
    shown = "\n".join(pairs[:10]) or f"{len(recorded)} observations, now {len(answered)}"
    return f"Kafka no longer gives the recorded answer (make record writes the new one):\n{shown}"


def check_may_ask(item: pytest.Item) -> None:
    """Let the report say that the test asks Kafka; skip it on a machine that has none."""
    if (HAS_ASKED, True) not in item.user_properties:
        item.user_properties.append((HAS_ASKED, True))
    try:
        java()
    except RealPartMissing as missing:
        require(f"what Kafka answered is recorded of another state of this test, and there is {missing}")


def path_of(file: str) -> pathlib.Path:
    """The file with what Kafka answered to a file of tests such as "compat_tests/logs/test_cleanup.py"."""
    suite, _, inner = file.partition("/")
    return ROOT / suite / "recorded" / pathlib.PurePath(inner).with_suffix(".txt")


def _key(item: pytest.Item) -> tuple[str, str]:
    file, _, test = item.nodeid.partition("::")
    return file, test


def is_half(item: pytest.Item) -> bool:
    """Whether a test runs on Kafka alone."""
    callspec = getattr(item, "callspec", None)
    given = () if callspec is None else callspec.params.values()
    return any(isinstance(one, str) and one == KAFKA for one in given) or "asks_kafka" in item.keywords


def asks(item: pytest.Item) -> bool:
    """Whether a test shows something of Kafka: a half, or a comparison."""
    return is_half(item) or "answers" in getattr(item, "fixturenames", ())


_RECORDER = pytest.StashKey[Recorder]()


def recorder_of(config: pytest.Config) -> Recorder:
    return config.stash[_RECORDER]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("a real Kafka")
    group.addoption(
        "--kafka",
        choices=(RECORDED, ASKED, RECORD, RECORD_AGAIN),
        default=RECORDED,
        help="whether tests take what Kafka has answered, ask it, or write what it answers",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "asks_kafka: shows something of Kafka alone (tests/common/recorded)")
    config.addinivalue_line("markers", "whole_run(reason): only with --kafka=asked, for this reason")
    mode = config.getoption("--kafka")
    config.stash[_RECORDER] = Recorder(mode)
    if mode == ASKED and seeds.NEW not in os.environ:  # workers of xdist have it from the controller
        os.environ[seeds.NEW] = ",".join(str(random.randrange(1000, 1 << 30)) for _ in range(NEW_SEEDS))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    recorder = recorder_of(config)
    if recorder.writes and not any("::" in one for one in config.args):
        for item in filter(asks, items):
            file, test = _key(item)
            recorder.collected.setdefault(file, []).append(test)
    if left_out := [item for item in items if not _runs(recorder, item)]:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _runs(recorder: Recorder, item: pytest.Item) -> bool:
    match recorder.mode:
        case "asked":
            return True
        case "recorded":
            return "whole_run" not in item.keywords and not (is_half(item) and recorder.entry(item))
        case "record":
            return asks(item) and recorder.entry(item) is None
        case _:
            return asks(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    recorder = recorder_of(item.config)
    if asks(item):
        recorder.begin(item)
    if is_half(item) and recorder.mode == RECORDED:
        check_may_ask(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    yield
    if asks(item):
        recorder_of(item.config).end(item)


@pytest.fixture(scope="session")
def answers(pytestconfig: pytest.Config) -> Recorder:
    """`answers.of_kafka(ask)`: what Kafka answers to a comparison."""
    return recorder_of(pytestconfig)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was recorded; a worker of xdist gives it to the controller."""
    recorder = recorder_of(session.config)
    output = getattr(session.config, "workeroutput", None)
    if output is None:
        write(recorder.new, recorder.collected)
        return
    output["recorded"] = {
        file: {test: [entry.digest, entry.comparisons] for test, entry in entries.items()}
        for file, entries in recorder.new.items()
    }
    output["collected"] = recorder.collected


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    new = {
        file: {test: Entry(digest, comparisons) for test, (digest, comparisons) in entries.items()}
        for file, entries in output.get("recorded", {}).items()
    }
    write(new, output.get("collected", {}))


def write(new: dict[str, dict[str, Entry]], collected: dict[str, list[str]]) -> None:
    """Write what was recorded, and forget what was recorded of tests that are no more."""
    for file in {*new, *collected}:
        answers = Answers(path_of(file), kafka_version())
        before = dict(answers.entries)
        answers.entries.update(new.get(file, {}))
        if file in collected:
            answers.entries = {test: one for test, one in answers.entries.items() if test in collected[file]}
        if answers.entries != before:
            answers.write()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the files whose tests have asked Kafka without having been told to."""
    files: dict[str, int] = {}
    for kind in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(kind):
            if (HAS_ASKED, True) in map(tuple, report.user_properties) and report.when == "call":
                file = report.nodeid.partition("::")[0]
                files[file] = files.get(file, 0) + 1
    if files and config.getoption("--kafka") == RECORDED:
        terminalreporter.section("Kafka was asked: what is recorded is of another state of these tests")
        for file, count in sorted(files.items()):
            terminalreporter.write_line(f"make record T={file}  # {count}")
