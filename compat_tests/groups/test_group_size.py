"""group.max.size and group.consumer.max.size: a member too many is refused, without a rebalance of the others."""

from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, SharedBrokers, check_after
from compat_tests.groups.group import Group
from compat_tests.groups.settings import BROKER_PROPERTIES, Settings
from compat_tests.groups.workers import count_rebalances

SIZE = 2
# The error that the refused member's client raises; where it is empty, the client retries without an error.
REFUSED = [
    ("confluent-kafka", "classic", ""),
    ("kafka-python", "classic", "GroupMaxSizeReachedError"),
    ("aiokafka", "classic", "UnknownError"),
    ("java", "classic", "GroupMaxSizeReachedException"),
    ("confluent-kafka", "consumer", "reached maximum size"),
    ("java", "consumer", "GroupMaxSizeReachedException"),
]


@pytest.fixture(scope="module")
def small_groups() -> Iterator[SharedBrokers]:
    running = SharedBrokers(
        {**BROKER_PROPERTIES, "group.max.size": str(SIZE), "group.consumer.max.size": str(SIZE)}
    )
    yield running
    running.close()


@pytest.fixture
def group_broker(small_groups: SharedBrokers, target: str) -> Iterator[Broker]:
    yield from check_after(small_groups[target])


@pytest.mark.parametrize(("kind", "protocol", "error"), REFUSED)
def test_one_too_many(group: Group, kind: str, protocol: str, error: str) -> None:
    """The group refuses a member too many, and accepts one after another has left."""
    settings = Settings(protocol)
    members = [group.join(kind, settings) for _ in range(SIZE)]
    group.wait_until_shared()
    calls = [count_rebalances(member) for member in members]
    third = group.join(kind, settings)
    if error:
        group.wait_until_refused(third, error)
    group.assert_read_exactly_once()
    assert [count_rebalances(member) for member in members] == calls
    assert group.member_count(protocol) == SIZE
    group.leave(members[0])
    late = group.join(kind, settings) if error else third
    group.wait_until_shared([members[1], late])
    group.assert_read_exactly_once()
