"""Programs of Kafka's classes as a fixture."""

import pytest

from tests.common.recorded.plugin import recorder_of
from tests.harness.kafka_oracle import Oracle


@pytest.fixture(scope="session")
def oracle(pytestconfig: pytest.Config) -> Oracle:
    return Oracle(recorder_of(pytestconfig))
