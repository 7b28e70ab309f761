"""The targets as fixtures. A test with the fixture `target` runs once on oncelog and once on a real Apache Kafka.

One that is marked `also_on` runs on those targets of brokers.py, too, such as a real Kafka through `oncelog proxy`.
"""

import contextlib
import hashlib
import os
from collections.abc import Generator, Iterator, Mapping

import pytest

from compat_tests import matrices, targets
from compat_tests.brokers import WITHOUT_SHORTCUTS, Broker, SharedBrokers, check_after, checked, make_broker
from compat_tests.differential import Pair
from compat_tests.nodes.kafka_cluster import KafkaCluster
from compat_tests.nodes.oncelog_cluster import OncelogCluster
from compat_tests.on_demand import OnDemand
from compat_tests.proxied import BEFORE_ONCELOG, OF_PAIR, PROXY, Proxied
from tests.common.jars import RealPartMissing, require
from tests.common.recorded.recorder import ASKED, Recorder
from tests.common.scheduling import longest_first

OUTPUT_SHOWN_CHARS = 6000
LONGEST = (
    "compat_tests/prove/",
    "nodes/test_coordinators",
    "test_exactly_once",
    "test_transactional_clients",
    "groups/test_group_restart",
    "pages/test_testing_page",
    "streams/",
    "nodes/",
    "restarts/test_restart",
    "groups/",
    "transactions/",
    "restarts/test_crash",
    "clients/test_tools",
    "proxy/",
    "security/",
    "share/",
)


@pytest.fixture(scope="session")
def brokers() -> Iterator[SharedBrokers]:
    running = SharedBrokers()
    yield running
    running.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    targets.parametrize(metafunc)


@pytest.fixture
def target(request: pytest.FixtureRequest) -> str:
    """The name of the target: one of TARGETS, or one that the test is also on."""
    return str(request.param)


@pytest.fixture(scope="session")
def upstream(pytestconfig: pytest.Config) -> str:
    """The target before which a proxy, a prover or a client of ours stands: Kafka where Kafka is asked, else oncelog,
    which answers as Kafka does.
    """
    return targets.upstream(pytestconfig)


@pytest.fixture
def broker(brokers: SharedBrokers, target: str) -> Iterator[Broker]:
    """The session's broker of this target; `check_after` checks it after the test."""
    running = brokers[target]
    yield from check_after(running)


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


class OwnBrokers:
    """Starts brokers of one target for one test."""

    def __init__(self, target: str, stack: contextlib.ExitStack) -> None:
        self.started: list[Broker] = []
        self._target = target
        self._stack = stack

    def __call__(self, properties: Mapping[str, str] | None = None) -> Broker:
        try:
            self.started.append(self._stack.enter_context(make_broker(self._target, properties)))
        except RealPartMissing as missing:
            require(str(missing))
        return self.started[-1]


@pytest.fixture
def own_broker(target: str) -> Iterator[OwnBrokers]:
    """`own_broker(properties)` starts a broker of this target for this test alone."""
    with contextlib.ExitStack() as stack:
        own = OwnBrokers(target, stack)
        yield own
        for one in own.started:
            if isinstance(one, Proxied):
                assert not one.tracebacks, f"the proxy logged a traceback:\n{one.output()[-3000:]}"
                assert one.running, f"the proxy ended:\n{one.output()}"


@pytest.fixture
def pair(answers: Recorder, brokers: SharedBrokers, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both targets at once, for tests that compare their responses; and, in a test that is also on "proxy", a proxy.

    With ONCELOG_SELF_CHECK a second real Kafka takes oncelog's place: any difference is then the scenario's fault.
    """
    ours = ["oncelog", WITHOUT_SHORTCUTS]
    if os.environ.get("ONCELOG_SELF_CHECK"):
        ours = ["kafka-2"]
    if PROXY in (mark.args[0] for mark in request.node.iter_markers("also_on")):
        ours.append(OF_PAIR if answers.mode == ASKED else BEFORE_ONCELOG[OF_PAIR])
    with contextlib.ExitStack() as stack:
        for target in ours:
            stack.enter_context(checked(brokers[target]))
        yield Pair(answers, lambda target: brokers[target].bootstrap, ours)


@pytest.fixture(scope="module")
def cluster(upstream: str) -> Iterator[KafkaCluster | OncelogCluster]:
    """Three nodes of `upstream`, which run as long as their module's tests: three idle JVMs cost CPU time."""
    try:
        with (KafkaCluster if upstream == "kafka" else OncelogCluster)() as started:
            yield started
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses, and that a test has in every run: what is recorded may show it."""
    return f"topic-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin a test that runs once more with new brokers: on the old ones is what it has made."""
    if getattr(item, "execution_count", 1) > 1:
        OnDemand.close_all()


def pytest_configure(config: pytest.Config) -> None:
    """Ignore a warning of kafka-python's own code; every other warning stays an error."""
    targets.register(config)
    matrices.configure(config)
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_report_header() -> str:
    return f"tests in turn: {matrices.DAY}={os.environ[matrices.DAY]}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    matrices.deselect(config, items)
    longest_first(items, LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last output of the test's brokers to the report of a failed test."""
    report = yield
    if not report.failed:
        return report
    fixtures = getattr(item, "funcargs", {})
    own, running = fixtures.get("own_broker"), fixtures.get("brokers")
    shown = list(own.started) if isinstance(own, OwnBrokers) else []
    if isinstance(running, SharedBrokers) and "oncelog" in running.made:
        shown.append(running["oncelog"])
    for one in shown:
        report.sections.append((f"the last output of {one.bootstrap}", one.output()[-OUTPUT_SHOWN_CHARS:]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print why tests were run once more: after a second run that passes, pytest says nothing of the first one."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"run once more: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext[-OUTPUT_SHOWN_CHARS:])
