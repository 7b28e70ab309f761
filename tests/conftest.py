"""Programs of Kafka's classes as a fixture, and the order of the files."""

import os
from collections.abc import Generator

import pytest

from tests.common.jars import WITHOUT_JAVA, is_default_version
from tests.common.recorded.plugin import recorder_of
from tests.common.scheduling import longest_first
from tests.harness.kafka_oracle import Oracle

LONGEST = (
    "dispatch/test_large_requests",
    "handlers/test_long_batches",
    "soak/",
    "tests/test_readme",
    "tests/prove/",
    "suites/test_recorded",
    "tests/test_make",
    "faults/",
    "nodes/",
    "control_http/",
    "cli/",
    "embedded/",
)


@pytest.fixture(scope="session")
def oracle(pytestconfig: pytest.Config) -> Oracle:
    return Oracle(recorder_of(pytestconfig))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a fast test fail that asks for Java, also on a machine that has it."""
    if "slow" in item.keywords or not is_default_version():
        return (yield)
    os.environ[WITHOUT_JAVA] = item.nodeid
    try:
        return (yield)
    finally:
        del os.environ[WITHOUT_JAVA]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items, LONGEST)
