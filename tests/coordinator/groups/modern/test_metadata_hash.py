"""The hash of a group's topics, against values that Kafka's ``Utils`` (hash4j) computed."""

from __future__ import annotations

from oncelog.coordinator.groups.modern import metadata_hash
from oncelog.coordinator.groups.modern.metadata_hash import TopicHashes
from oncelog.coordinator.groups.modern.subscriptions import Subscriptions
from oncelog.coordinator.groups.share.member import ShareGroupMember
from tests.harness.group_shard import FakeTopics


def test_a_topic_of_kafkas() -> None:
    """xxh3_64 over: 0x00, (1, 2), "t", 1000, 0 to 999."""
    topics = FakeTopics()
    topic = topics.create("t", 1000)
    topic.topic_id = (1).to_bytes(8) + (2).to_bytes(8)
    assert metadata_hash.topic_hash(topic, topics) == 5094120087422953958


def test_a_group_is_the_hash_of_its_topics() -> None:
    assert metadata_hash._hash((77).to_bytes(8, "little")) == 4256389688529277900


def named(*topics: str) -> Subscriptions:
    subscriptions = Subscriptions()
    subscriptions.replace(None, ShareGroupMember("member", topic_names=frozenset(topics)))
    return subscriptions


def test_what_changes_the_hash() -> None:
    topics = FakeTopics()
    topics.create("a", 1)
    topics.create("b", 1)
    both = TopicHashes().of_group(named("a", "b"), topics)
    assert both == TopicHashes().of_group(named("b", "a", "missing"), topics)
    assert TopicHashes().of_group(named("missing"), topics) == 0
    seen = {both}
    topics.racks_of["a", 0] = ["r1", "r2"]
    seen.add(TopicHashes().of_group(named("a", "b"), topics))
    topics.racks_of["a", 0] = ["r2", "r1"]
    assert TopicHashes().of_group(named("a", "b"), topics) in seen, "the order of racks says nothing"
    topics.racks_of["a", 0] = ["r1r2"]
    seen.add(TopicHashes().of_group(named("a", "b"), topics))
    topics.create("a", 2)
    seen.add(TopicHashes().of_group(named("a", "b"), topics))
    topics.delete("a")
    topics.create("a", 2)
    seen.add(TopicHashes().of_group(named("a", "b"), topics))
    assert len(seen) == 5


def test_cached_hashes_are_correct() -> None:
    topics = FakeTopics()
    topics.create("a", 1)
    topics.create("b", 1)
    hashes = TopicHashes()
    for _ in range(2):
        for change in (
            lambda: None,
            lambda: topics.create("a", len(topics.create("a", 1).partitions) + 3),
            lambda: topics.delete("b"),
            lambda: topics.create("b", 1),
        ):
            change()
            for names in (["a", "b"], ["b"], ["a"], []):
                assert hashes.of_group(named(*names), topics) == TopicHashes().of_group(named(*names), topics)
