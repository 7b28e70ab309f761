"""Subscriptions by regular expression, and changes of a subscription."""

import re
from typing import Any

import pytest

from compat_tests.differential import Session
from compat_tests.groups.group import Group
from compat_tests.groups.settings import Settings

REGEX = [
    pytest.param("java", "classic", "pattern", id="java-classic"),
    pytest.param("java", "consumer", "server_pattern", id="java-consumer"),
    pytest.param("confluent-kafka", "classic", "topics", id="confluent-kafka-classic"),
    pytest.param("confluent-kafka", "consumer", "topics", id="confluent-kafka-consumer"),
]


@pytest.mark.parametrize(("kind", "protocol", "field"), REGEX)
def test_by_regular_expression(group: Group, kind: str, protocol: str, field: str) -> None:
    """Members of the classic protocol match topics themselves; with the new protocol the broker does."""
    pattern = f"^{re.escape(group.topic)}(-no)?$".replace("\\-", "-")
    subscription: dict[str, Any] = {field: [pattern] if field == "topics" else pattern}
    for _ in range(2):
        group.join(kind, Settings(protocol), **subscription)
    group.wait_until_shared()
    group.assert_read_exactly_once()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_changed_subscription(group: Group, protocol: str) -> None:
    """A member that changes to another topic gives up its partitions; when it changes back it gets some again."""
    other = f"{group.topic}-other"
    session = Session(group.bootstrap)
    session.topic(other)
    session.close()
    first, second = (group.join("java", Settings(protocol)) for _ in range(2))
    group.wait_until_shared()
    second.worker.send("subscribe", second.name, topics=[other])
    group.wait(lambda: second.assignment == {(other, 0)}, "the other topic")
    group.wait_until_shared([first])
    group.assert_read_exactly_once()
    second.worker.send("subscribe", second.name, topics=[group.topic])
    group.wait_until_shared([first, second])
    group.assert_read_exactly_once()
