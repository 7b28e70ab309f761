"""Metadata, DescribeCluster and DescribeTopicPartitions on both targets."""

from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields, versions_of

pytestmark = pytest.mark.also_on("proxy")


def named(*names: str) -> list[Fields]:
    return [{"name": name} for name in names]


def metadata(session: Session, version: int, values: Fields, note: str = "") -> Any:
    """A Metadata response, observed, with its topics sorted by name (Kafka's order is a hash map's)."""
    response = session.call_unobserved("Metadata", version, values)
    if isinstance(response, dict):
        response["topics"].sort(key=lambda topic: (topic["name"] or "", topic.get("topic_id", b"")))
        for topic in response["topics"]:
            topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    session.observe(f"Metadata v{version} {note}", response)
    return response


@pytest.mark.parametrize("version", versions_of("Metadata"))
def test_known_topics(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 3)
        session.topic(f"{name}-other")
        response = metadata(session, version, {"topics": named(name, f"{name}-other", name)})
        assert [topic["error_code"] for topic in response["topics"]] == [0, 0]

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("Metadata"))
def test_all_topics_and_none(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        choices: tuple[list[Fields] | None, ...] = ([], None)
        for topics in choices:
            response = session.call_unobserved("Metadata", version, {"topics": topics})
            if isinstance(response, dict):
                rows = response.pop("topics")
                session.observe(f"{topics}: own", [row for row in rows if row["name"] == name])
            session.observe(f"{topics}", response)

    pair.compare(scenario)


@pytest.mark.parametrize("version", range(4, 14))
def test_unknown_topics_without_auto_creation(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        for _ in range(2):
            response = metadata(session, version, {"topics": named(name), "allow_auto_topic_creation": False})
            assert response["topics"][0]["error_code"] == 3

    pair.compare(scenario)


@pytest.mark.parametrize("version", [0, 3, 4, 9, 13])
def test_unknown_topics_are_created(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        metadata(session, version, {"topics": named(name)}, "first")
        deadline = now_ms() + WAIT_MS
        while (
            session.call_unobserved("Metadata", 12, {"topics": named(name)})["topics"][0]["error_code"] != 0
        ):
            assert now_ms() < deadline
        metadata(session, version, {"topics": named(name)}, "then")

    # oncelog may be sooner: Kafka's controller creates the topic after the response.
    pair.compare(scenario, known=("first: .topics",))


@pytest.mark.parametrize("version", [1, 4, 9, 12, 13])
@pytest.mark.parametrize("wrong", ["", ".", "..", "a b", "a/b", "x" * 250, "ä", "a\0b"])
def test_invalid_names(pair: Pair, wrong: str, version: int) -> None:
    def scenario(session: Session) -> None:
        metadata(session, version, {"topics": named(wrong)})
        if version >= 4:
            metadata(session, version, {"topics": named(wrong), "allow_auto_topic_creation": False})

    pair.compare(scenario)


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_by_id(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        unknown = bytes(range(16))
        for note, rows in {
            "id": [{"name": None, "topic_id": topic_id}],
            "unknown id": [{"name": None, "topic_id": unknown}],
            "both ids": [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": unknown}],
            "id and name": [{"name": name, "topic_id": topic_id}],
            "id and other": [{"name": name}, {"name": None, "topic_id": topic_id}],
        }.items():
            metadata(session, version, {"topics": rows}, note)

    pair.compare(scenario)


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        values: Fields = {
            "topics": named(name, f"{name}-unknown"),
            "include_topic_authorized_operations": True,
        }
        values["allow_auto_topic_creation"] = False
        if version <= 10:
            values["include_cluster_authorized_operations"] = True
        metadata(session, version, values)

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("DescribeCluster"))
def test_describe_cluster(pair: Pair, version: int) -> None:
    def scenario(session: Session) -> None:
        session.call("DescribeCluster", version)
        session.call("DescribeCluster", version, {"include_cluster_authorized_operations": True})
        if version >= 1:
            session.call("DescribeCluster", version, {"endpoint_type": 2}, "controllers")
            session.call("DescribeCluster", version, {"endpoint_type": 3}, "nothing")
        if version >= 2:
            session.call("DescribeCluster", version, {"include_fenced_brokers": True})

    pair.compare(scenario)


def test_describe_topic_partitions(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        names = [f"{name}-{letter}" for letter in "cab"]
        for one in names:
            session.topic(one, 3)

        def describe(
            note: str, topics: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
        ) -> Any:
            values: Fields = {"topics": named(*topics), "response_partition_limit": limit}
            if cursor is not None:
                values["cursor"] = {"topic_name": cursor[0], "partition_index": cursor[1]}
            return session.call("DescribeTopicPartitions", 0, values, note)

        describe("all of them", names)
        describe("unknown", [names[0], f"{name}-none"])
        describe("invalid name", ["a b"])
        describe("twice", [names[0], names[0]])
        first = describe("limited", names, 4)
        assert first["next_cursor"] == {"topic_name": f"{name}-b", "partition_index": 1}
        describe(
            "continued",
            names,
            4,
            (first["next_cursor"]["topic_name"], first["next_cursor"]["partition_index"]),
        )
        describe("limit 0", names, 0)
        describe("limit -1", names, -1)
        describe("cursor at an unknown topic", names, 2, (f"{name}-aa", 0))
        describe("cursor beyond the partitions", names, 2, (f"{name}-a", 7))
        describe("cursor of a negative partition", names, 2, (f"{name}-a", -1))
        describe("cursor after all", names, 2, (f"{name}-z", 0))

    pair.compare(scenario)
