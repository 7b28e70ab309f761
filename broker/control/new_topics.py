"""Topics that a test asks for."""

from __future__ import annotations

from collections.abc import Mapping

from oncelog.broker.config.topic_config import TopicConfig
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.names import meant
from oncelog.broker.control.options import TopicOptions
from oncelog.broker.metadata.topics import create
from oncelog.broker.node.node import Node
from oncelog.wire.errors import ErrorCode
from oncelog.wire.steps import finish


def create_topics(node: Node, topics: Mapping[str, TopicOptions], *, validate_only: bool = False) -> None:
    """Create the topics. Raises InvalidArgumentError for the first that cannot be created."""
    wanted = [topic.creatable(name) for name, topic in topics.items()]
    for result in finish(create(node.metadata, node.config, wanted, validate_only=validate_only)):
        if result.error_code:
            reason = result.error_message or ErrorCode(result.error_code).name
            reason += similar_keys(topics[result.name].config)
            raise InvalidArgumentError(f"topic {result.name}: {reason}")


def create_missing(node: Node, topics: Mapping[str, TopicOptions]) -> None:
    """Create those that are not there yet. Raises as `create_topics`."""
    there = node.metadata.image.topics
    create_topics(node, {name: topic for name, topic in topics.items() if name not in there})


def similar_keys(config: Mapping[str, str]) -> str:
    """Return the end of a message about a topic's configuration: the keys that the first unknown one may mean. Empty
    without an unknown one, or if none is similar.
    """
    unknown = next((name for name in config if name not in TopicConfig.KEYS), None)
    return "" if unknown is None else meant(unknown, TopicConfig.KEYS)
