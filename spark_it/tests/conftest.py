"""One Spark session, and one broker per target, for all tests of a run.

Without Java or Maven tests are skipped; with CI=true they fail.
"""

import contextlib
import itertools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from compat_tests.brokers import Broker, SharedBrokers, check_after, make_broker
from compat_tests.targets import parametrize, register
from spark_it.session import spark_java_home, spark_session
from spark_it.tests.drivers import CHEAP, JAVA_OPTIONS, java_options
from spark_it.tests.topics import Topics
from tests.common.jars import RealPartMissing, require
from tests.common.scheduling import longest_first

# With these settings retention, compaction and transaction timeouts happen within a test.
PROPERTIES = {
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
LONGEST = (
    "test_pipeline.py",
    "test_sink.py",
    "test_process.py",
    "test_load.py",
    "test_newer.py",
    "test_audit.py",
)
_names = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.slow)
    longest_first(items, LONGEST)


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of PySpark and of clients; every other warning stays an error."""
    register(config)
    for line in (
        "ignore:.*:ResourceWarning:pyspark",
        "ignore:.*:DeprecationWarning:pyspark",
        "ignore:.*:FutureWarning",
    ):
        config.addinivalue_line("filterwarnings", line)
    config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")  # py4j's sockets
    config.addinivalue_line(
        "filterwarnings", "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning"
    )


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The run's Spark session."""
    try:
        spark_java_home()
        with tempfile.TemporaryDirectory(prefix="spark-it-") as folder:
            session = spark_session(
                "tests",
                "local[2,2]",
                conf={
                    "spark.local.dir": folder,
                    "spark.sql.warehouse.dir": f"{folder}/warehouse",
                    **CHEAP,
                    JAVA_OPTIONS: java_options(),
                    "spark.driver.memory": "768m",
                    "spark.sql.streaming.stopTimeout": "60s",
                    "spark.sql.streaming.noDataProgressEventInterval": "200ms",
                },
            )
            session.sparkContext.setLogLevel(os.environ.get("SPARK_LOG", "OFF"))
            yield session
            session.stop()
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture(scope="session")
def brokers() -> Iterator[SharedBrokers]:
    """One broker per target, started when a test first asks for it."""
    shared = SharedBrokers(PROPERTIES, undisturbed=False)
    yield shared
    shared.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc)


@pytest.fixture
def target(request: pytest.FixtureRequest) -> str:
    """The name of the target: one of TARGETS, or one that the test is also on."""
    return str(request.param)


@pytest.fixture
def broker(brokers: SharedBrokers, target: str) -> Iterator[Broker]:
    """The session's broker of this target; `check_after` checks it after the test."""
    yield from check_after(brokers[target])


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture
def own_broker(target: str) -> Iterator[Callable[..., Broker]]:
    """`own_broker(properties)` starts a broker of this target for this test alone."""
    with contextlib.ExitStack() as stack:

        def make(properties: Mapping[str, str] | None = None) -> Broker:
            try:
                return stack.enter_context(make_broker(target, {**PROPERTIES, **(properties or {})}))
            except RealPartMissing as missing:
                require(str(missing))

        yield make


@pytest.fixture
def topics(bootstrap: str) -> Iterator[Topics]:
    """Creates, fills and reads topics of the target."""
    topics = Topics(bootstrap)
    yield topics
    topics.close()


@pytest.fixture
def name() -> str:
    """A topic name that no other test of the session uses, and that is not a prefix of another."""
    return f"topic-{next(_names)}-"


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "checkpoint")
