"""Topics under other names: every field of every message that Kafka calls the name of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.broker.filters.topic_names import rename_topics, topic_fields
from oncelog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from oncelog.wire.messages.produce import ProduceRequest, TopicProduceData
from oncelog.wire.schema import Struct
from tests.wire.kafka_json import Json, all_messages, bundled, snake

NAMES = {"orders": "shop.orders"}


def marked(fields: list[Json], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the fields that Kafka marks as names of topics."""
    for field in fields:
        here = (*path, snake(field["name"]))
        if field.get("entityType") == "topicName":
            yield here
        yield from marked(field.get("fields", []), here)


def renamed(struct: type[Struct], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the fields that are renamed."""
    plan = topic_fields(struct)
    yield from ((*path, name) for name in (*plan.names, *plan.lists))
    for field in struct.FIELDS:
        element: Any = field.element
        if field.name in plan.inner:
            yield from renamed(element, (*path, field.name))


MESSAGES = {kind.__name__: kind for kind in all_messages() if kind.KIND in ("request", "response")}
DEFINITIONS = {name: one for name, one in bundled().items() if name in MESSAGES}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_what_kafka_marks_is_renamed(name: str) -> None:
    theirs = set(marked(DEFINITIONS[name]["fields"]))
    ours = set(renamed(MESSAGES[name]))
    assert ours == theirs


def test_names_in_every_place() -> None:
    produce = ProduceRequest(topic_data=[TopicProduceData("orders"), TopicProduceData("other")])
    rename_topics(produce, NAMES)
    assert [row.name for row in produce.topic_data] == ["shop.orders", "other"]
    heartbeat = ConsumerGroupHeartbeatRequest(subscribed_topic_names=["other", "orders"])
    rename_topics(heartbeat, NAMES)
    assert heartbeat.subscribed_topic_names == ["other", "shop.orders"]
    heartbeat.subscribed_topic_names = None
    rename_topics(heartbeat, NAMES)
    metadata = MetadataResponse(topics=[MetadataResponseTopic(name="orders")], cluster_id="orders")
    rename_topics(metadata, NAMES)
    assert (metadata.topics[0].name, metadata.cluster_id) == ("shop.orders", "orders")


def test_resources_that_are_topics() -> None:
    request = AlterConfigsRequest([AlterConfigsResource(2, "orders"), AlterConfigsResource(32, "orders")])
    rename_topics(request, NAMES)
    assert [row.resource_name for row in request.resources] == ["shop.orders", "orders"]
