"""The hash of a group's topics, beside values that Kafka's ``Utils`` (hash4j) computed."""

from __future__ import annotations

from coordinator.groups.consumer import metadata_hash
from tests.coordinator.groups.lab import FakeTopics


def test_a_topic_of_kafkas() -> None:
    """xxh3_64 over: 0x00, (1, 2), "t", 1000, 0 to 999."""
    topics = FakeTopics()
    topic = topics.create("t", 1000)
    topic.topic_id = (1).to_bytes(8) + (2).to_bytes(8)
    assert metadata_hash._topic_hash(topic, topics) == 5094120087422953958


def test_a_group_is_the_hash_of_its_topics() -> None:
    assert metadata_hash._hash((77).to_bytes(8, "little")) == 4256389688529277900


def test_what_counts() -> None:
    topics = FakeTopics()
    topics.create("a", 1)
    topics.create("b", 1)
    both = metadata_hash.metadata_hash(["a", "b"], topics)
    assert both == metadata_hash.metadata_hash(["b", "a", "missing"], topics)
    assert metadata_hash.metadata_hash(["missing"], topics) == 0
    seen = {both}
    topics.racks_of["a", 0] = ["r1", "r2"]
    seen.add(metadata_hash.metadata_hash(["a", "b"], topics))
    topics.racks_of["a", 0] = ["r2", "r1"]
    assert metadata_hash.metadata_hash(["a", "b"], topics) in seen, "the order of racks says nothing"
    topics.racks_of["a", 0] = ["r1r2"]
    seen.add(metadata_hash.metadata_hash(["a", "b"], topics))
    topics.create("a", 2)
    seen.add(metadata_hash.metadata_hash(["a", "b"], topics))
    topics.delete("a")
    topics.create("a", 2)
    seen.add(metadata_hash.metadata_hash(["a", "b"], topics))
    assert len(seen) == 5
