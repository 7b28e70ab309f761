"""The targets as fixtures. A test with `target` runs once on oncelog and once on a real Apache Kafka."""

import contextlib
import itertools
import os
from collections.abc import Generator, Iterator, Mapping

import pytest

from compat_tests.brokers import TARGETS, Broker, SharedBrokers, check_after, make_broker
from compat_tests.differential import Pair
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


@pytest.fixture(scope="session")
def brokers() -> Iterator[SharedBrokers]:
    running = SharedBrokers()
    yield running
    running.close()


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    """The name of the target: "oncelog" or "kafka"."""
    return str(request.param)


@pytest.fixture
def broker(brokers: SharedBrokers, target: str) -> Iterator[Broker]:
    """The session's broker of this target; afterwards it must run, and oncelog have logged no traceback."""
    running = brokers[target]
    yield from check_after(running)


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
def pair(brokers: SharedBrokers) -> Iterator[Pair]:
    """Both targets at once, for tests that compare their answers.

    With ONCELOG_SELF_CHECK set a second real Kafka stands in for oncelog: differences are the scenario's.
    """
    kafka = brokers["kafka"]
    for ours in check_after(brokers["kafka-2" if os.environ.get("ONCELOG_SELF_CHECK") else "oncelog"]):
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
    if isinstance(running, SharedBrokers) and "oncelog" in running.started:
        shown.append(running["oncelog"])
    for one in shown:
        report.sections.append((f"the last output of {one.bootstrap}", one.output()[-OUTPUT_SHOWN_CHARS:]))
    return report
