"""Programs of Kafka's classes as a fixture, and the order of the files."""

import pytest

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items, LONGEST)
