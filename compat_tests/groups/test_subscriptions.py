"""Subscriptions by regular expression, and ones that change."""

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


@pytest.mark.parametrize(("kind", "protocol", "how"), REGEX)
def test_by_regular_expression(group: Group, kind: str, protocol: str, how: str) -> None:
    """Classic members match the topics themselves, new ones let the broker do it."""
    pattern = f"^{re.escape(group.topic)}(-no)?$".replace("\\-", "-")
    wanted: dict[str, Any] = {how: [pattern] if how == "topics" else pattern}
    for _ in range(2):
        group.join(kind, Settings(protocol), **wanted)
    group.wait_shared()
    group.read_exactly_once()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_another_subscription(group: Group, protocol: str) -> None:
    """A member that turns to another topic gives up its partitions of this one; it takes part again when it returns."""
    other = f"{group.topic}-other"
    session = Session(group.bootstrap)
    session.topic(other)
    session.close()
    first, second = (group.join("java", Settings(protocol)) for _ in range(2))
    group.wait_shared()
    second.worker.send("subscribe", second.name, topics=[other])
    group.wait(lambda: second.assignment == {(other, 0)}, "the other topic")
    group.wait_shared([first])
    group.read_exactly_once()
    second.worker.send("subscribe", second.name, topics=[group.topic])
    group.wait_shared([first, second])
    group.read_exactly_once()
