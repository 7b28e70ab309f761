"""Workers with the Java client's transactional producers; brokers that the tests may restart and reconfigure."""

import os
import pathlib
from collections.abc import Callable, Iterator

import pytest

from compat_tests.brokers import Broker, make_broker
from compat_tests.differential import Pair
from compat_tests.on_demand import OnDemand
from compat_tests.transactions.java_worker import JAVA_SOURCE, JavaWorker
from tests.common.jars import RealPartMissing, compile_java, require
from tests.common.recorded.recorder import Recorder

OWN_PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="session")
def java_transactions(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder with the compiled worker."""
    try:
        return compile_java([JAVA_SOURCE], tmp_path_factory.mktemp("transaction-classes"))
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture
def java_worker(java_transactions: pathlib.Path) -> Iterator[Callable[[], JavaWorker]]:
    """`java_worker()` starts a worker for this test."""
    started: list[JavaWorker] = []

    def start() -> JavaWorker:
        started.append(JavaWorker(java_transactions))
        return started[-1]

    yield start
    for worker in started:
        worker.end()


@pytest.fixture(scope="package")
def own_brokers() -> Iterator[OnDemand[Broker]]:
    """One broker per target, for tests that restart it, or change its features and settings and change them back."""

    def make(target: str) -> Broker:
        return make_broker("kafka" if os.environ.get("ONCELOG_SELF_CHECK") else target, OWN_PROPERTIES)

    with OnDemand(make) as found:
        yield found


@pytest.fixture
def own_bootstrap(own_brokers: OnDemand[Broker], target: str) -> str:
    return own_brokers[target].bootstrap


@pytest.fixture(scope="package")
def own_pair(answers: Recorder, own_brokers: OnDemand[Broker]) -> Pair:
    return Pair(answers, lambda target: own_brokers[target].bootstrap)
