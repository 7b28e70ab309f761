"""Brokers with short session timeouts, worker processes, and groups whose members are closed after their test."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Mapping

import pytest

from compat_tests.brokers import Broker, SharedBrokers, check_after, make_broker
from compat_tests.groups.group import Group
from compat_tests.groups.settings import BROKER_PROPERTIES, KINDS, PYTHON_KINDS
from compat_tests.groups.workers import JAVA_SOURCES, PYTHON_COMMAND, Worker, java_command
from tests.common.jars import RealPartMissing, compile_java, require


@pytest.fixture(scope="package")
def group_brokers() -> Iterator[SharedBrokers]:
    """One broker per target with short group timeouts. It ends with the package: an idle Kafka costs CPU time."""
    running = SharedBrokers(BROKER_PROPERTIES)
    yield running
    running.close()


@pytest.fixture
def group_broker(group_brokers: SharedBrokers, target: str) -> Iterator[Broker]:
    yield from check_after(group_brokers[target])


@pytest.fixture(scope="session")
def java_classes(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder with the compiled Java worker."""
    try:
        return compile_java(JAVA_SOURCES, tmp_path_factory.mktemp("classes"))
    except RealPartMissing as missing:
        require(str(missing))


class Workers(dict[str, Worker]):
    """A worker per kind of client, started when first asked for."""

    def __init__(self, spawn: Callable[[str], Worker]) -> None:
        super().__init__()
        self._spawn = spawn

    def __missing__(self, kind: str) -> Worker:
        self[kind] = worker = self._spawn(kind)
        return worker


@pytest.fixture(scope="session")
def spawn(request: pytest.FixtureRequest) -> Callable[[str], Worker]:
    """`spawn(kind)` starts a worker, which the caller must close."""

    def start(kind: str) -> Worker:
        assert kind in KINDS
        if kind in PYTHON_KINDS:
            return Worker(kind, PYTHON_COMMAND)
        return Worker(kind, java_command(request.getfixturevalue("java_classes")))

    return start


@pytest.fixture(scope="package")
def workers(spawn: Callable[[str], Worker]) -> Iterator[Mapping[str, Worker]]:
    """The shared worker of each kind of client."""
    running = Workers(spawn)
    yield running
    for worker in running.values():
        worker.close()


@pytest.fixture
def own_worker(spawn: Callable[[str], Worker]) -> Iterator[Callable[[str], Worker]]:
    """`own_worker(kind)` starts a worker for this test alone, which the test may kill."""
    started: list[Worker] = []

    def start(kind: str) -> Worker:
        started.append(spawn(kind))
        return started[-1]

    yield start
    for worker in started:
        worker.close()


@pytest.fixture
def make_group(name: str, workers: Mapping[str, Worker]) -> Iterator[Callable[..., Group]]:
    """`make_group(bootstrap, partitions)`: a group with its own topic, whose members are closed after the test."""
    groups: list[Group] = []

    def make(bootstrap: str, partitions: int = 4) -> Group:
        group = Group(bootstrap, f"{name}-{len(groups)}", workers)
        group.make_topic(partitions)
        groups.append(group)
        return group

    yield make
    with contextlib.ExitStack() as stack:
        for group in groups:
            stack.callback(group.close)


@pytest.fixture
def group(group_broker: Broker, make_group: Callable[..., Group]) -> Group:
    """A group on the session's broker whose topic has six partitions."""
    return make_group(group_broker.bootstrap, 6)


@pytest.fixture
def restartable(target: str) -> Iterator[Broker]:
    """A broker with short timeouts for this test alone, which the test may stop and kill."""
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(make_broker(target, BROKER_PROPERTIES))
        except RealPartMissing as missing:
            require(str(missing))
        yield from check_after(broker)
