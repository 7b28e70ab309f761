"""Whether a test asks a real Kafka, or takes what Kafka has answered (`--kafka`).

- ``recorded``, the default: only tests ask Kafka that are made of something else now than when it answered.
- ``asked``: every test asks, and Kafka has to answer as is recorded. Tests that are marked `whole_run` run, too.
- ``record``: the tests ask that are made of something else now, and what Kafka answers is written.
- ``record-again``: all tests ask, and what Kafka answers is written.

Two kinds of tests ask Kafka. A half runs on Kafka alone: one of its parameters is "kafka", or it is marked
`asks_kafka`; what is recorded of it is that it passed. So is a test that is marked `exchanges`, in which Kafka reads
what oncelog has written: it runs again when the product's folders that write it have changed. A comparison has the
fixture `answers`, and holds oncelog against what Kafka answers.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from tests.common import seeds
from tests.common.recorded.recorder import (
    ASKED,
    HAS_ASKED,
    RECORD,
    RECORD_AGAIN,
    RECORDED,
    Recorder,
    asks,
    check_may_ask,
    is_half,
    key_of,
    uses_oracle,
)

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
    config.addinivalue_line(
        "markers",
        "exchanges(*folders): Kafka reads what these folders of the product write (tests/common/recorded)",
    )
    config.addinivalue_line("markers", "whole_run(reason): only with --kafka=asked, for this reason")
    mode = config.getoption("--kafka")
    config.stash[_RECORDER] = Recorder(mode, config.rootpath)
    if mode == ASKED and seeds.NEW not in os.environ:  # workers of xdist have it from the controller
        os.environ[seeds.NEW] = str(random.randrange(1000, 1 << 30))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    recorder = recorder_of(config)
    recorder.is_whole = not any("::" in one for one in config.args) and not config.option.keyword
    for item in filter(asks, items):
        recorder.note_there(*key_of(item))
    if left_out := [item for item in items if not _runs(recorder, item)]:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _runs(recorder: Recorder, item: pytest.Item) -> bool:
    if recorder.mode == ASKED:
        return True
    if "whole_run" in item.keywords:
        return False
    if recorder.mode == RECORDED:
        return not (is_half(item) and recorder.entry(item))
    return uses_oracle(item) or (
        asks(item) and (recorder.mode == RECORD_AGAIN or recorder.entry(item) is None)
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    recorder = recorder_of(item.config)
    if asks(item) or uses_oracle(item):
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
    """A worker of xdist gives the controller what it has to record. A run with nothing to record succeeds."""
    if (
        session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
        and recorder_of(session.config).mode == RECORD
    ):
        session.exitstatus = pytest.ExitCode.OK
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["recorded"] = recorder_of(session.config).for_controller()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    recorder_of(node.config).add_of_worker(getattr(node, "workeroutput", {}).get("recorded", ({}, {})))


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        recorder_of(config).write()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the files whose tests have asked Kafka without having been told to."""
    files: dict[str, int] = {}
    for kind in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(kind):
            if (HAS_ASKED, True) in map(
                tuple, getattr(report, "user_properties", ())
            ) and report.when == "call":
                file = report.nodeid.partition("::")[0]
                files[file] = files.get(file, 0) + 1
    if files and config.getoption("--kafka") == RECORDED:
        terminalreporter.section("Kafka was asked: what is recorded is of another state of these tests")
        for file, count in sorted(files.items()):
            terminalreporter.write_line(f"make record T={file}  # {count}")
