"""The targets as fixtures. A test with `target` runs once on oncelog and once on a real Apache Kafka."""

import contextlib
import itertools
import os
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pytest

from compat_tests.brokers import TARGETS, Broker, make_broker
from compat_tests.differential import Pair
from compat_tests.oncelog_server import Oncelog
from compat_tests.order import longest_first
from compat_tests.real_kafka import RealPartMissing, require

OUTPUT_SHOWN_CHARS = 6000
LONGEST = (
    "test_exactly_once",
    "test_transactional_clients",
    "groups/test_group_restart",
    "streams/",
    "compat_tests/test_restart",
    "groups/",
    "transactions/",
    "compat_tests/test_crash",
    "compat_tests/test_tools",
)
_names = itertools.count()


# A session's brokers live for minutes beside other load. Records with times of the past are not to be deleted under
# a test by the retention check of the fifth minute, nor elections held because a busy Kafka missed its heartbeats; and
# a controller with nothing to write is not to write that, and fsync it, twice a second.
UNDISTURBED = {"log.initial.task.delay.ms": "86400000", "log.retention.check.interval.ms": "86400000"}
UNDISTURBED_KAFKA = {"broker.session.timeout.ms": "120000", "metadata.max.idle.interval.ms": "0"}


class Brokers:
    """One broker per target for the whole session, started when first asked for."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._properties = {**UNDISTURBED, **(properties or {})}
        self._running: dict[str, Broker] = {}
        self._missing = ""
        self._stack = contextlib.ExitStack()

    def __getitem__(self, target: str) -> Broker:
        if target not in self._running:
            self._running[target] = self._start(target)
        return self._running[target]

    def _start(self, target: str) -> Broker:
        if target.startswith("kafka") and self._missing:
            require(self._missing)
        try:
            kafkas = UNDISTURBED_KAFKA if target.startswith("kafka") else {}
            return self._stack.enter_context(make_broker(target, {**kafkas, **self._properties}))
        except RealPartMissing as missing:
            self._missing = str(missing)
            require(self._missing)

    @property
    def started(self) -> Mapping[str, Broker]:
        return self._running

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    running = Brokers()
    yield running
    running.close()


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    """The name of the target: "oncelog" or "kafka"."""
    return str(request.param)


@pytest.fixture
def broker(brokers: Brokers, target: str) -> Iterator[Broker]:
    """The session's broker of this target; afterwards it must run, and oncelog have logged no traceback."""
    running = brokers[target]
    yield from _watched(running)


def _watched(running: Broker) -> Iterator[Any]:
    before = running.tracebacks if isinstance(running, Oncelog) else 0
    yield running
    if isinstance(running, Oncelog):
        assert running.tracebacks == before, f"oncelog logged a traceback:\n{running.output()[-3000:]}"
        assert running.process is None or running.process.running, f"oncelog ended:\n{running.output()}"


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


class OwnBrokers:
    """Makes, and starts, brokers of one target, for one test."""

    def __init__(self, target: str, stack: contextlib.ExitStack) -> None:
        self.made: list[Broker] = []
        self._target = target
        self._stack = stack

    def __call__(self, properties: Mapping[str, str] | None = None) -> Broker:
        try:
            self.made.append(self._stack.enter_context(make_broker(self._target, properties)))
        except RealPartMissing as missing:
            require(str(missing))
        return self.made[-1]


@pytest.fixture
def own_broker(target: str) -> Iterator[OwnBrokers]:
    """Make (and start) brokers of this target for this test alone: `own_broker(properties)`."""
    with contextlib.ExitStack() as stack:
        yield OwnBrokers(target, stack)


@pytest.fixture
def pair(brokers: Brokers) -> Iterator[Pair]:
    """Both targets at once, for tests that compare their answers.

    With ONCELOG_SELF_CHECK set a second real Kafka stands in for oncelog: differences are the scenario's.
    """
    kafka = brokers["kafka"]
    for ours in _watched(brokers["kafka-2" if os.environ.get("ONCELOG_SELF_CHECK") else "oncelog"]):
        yield Pair(kafka.bootstrap, ours.bootstrap)


@pytest.fixture
def name() -> str:
    """A topic name that no other test of the session uses."""
    return f"topic-{next(_names)}"


def pytest_configure(config: pytest.Config) -> None:
    """What clients' own code warns of is theirs; everything else stays an error."""
    config.addinivalue_line(
        "filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning"
    )  # kafka-python


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items, LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what the broker said last."""
    report = yield
    if not report.failed:
        return report
    fixtures = getattr(item, "funcargs", {})
    own, running = fixtures.get("own_broker"), fixtures.get("brokers")
    shown = list(own.made) if isinstance(own, OwnBrokers) else []
    if isinstance(running, Brokers) and "oncelog" in running.started:
        shown.append(running["oncelog"])
    for one in shown:
        report.sections.append((f"the last output of {one.bootstrap}", one.output()[-OUTPUT_SHOWN_CHARS:]))
    return report
