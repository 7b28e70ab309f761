"""CreateTopics, DeleteTopics and CreatePartitions on both targets."""

from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from tests.common import facts
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import ZERO_UUID, Fields, versions_of

pytestmark = pytest.mark.also_on("proxy")


def topic(name: str | None, partitions: int = 1, replicas: int = 1, **fields: Any) -> Fields:
    """One topic of a CreateTopics request; `configs` as a dictionary, `assignments` as lists of brokers."""
    rows = [{"name": key, "value": value} for key, value in fields.get("configs", {}).items()]
    assigned = [
        {"partition_index": index, "broker_ids": ids} for index, ids in fields.get("assignments", {}).items()
    ]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": rows,
        "assignments": assigned,
    }


def create(session: Session, version: int, *topics: Fields, note: str = "", **fields: Any) -> Any:
    """A CreateTopics response, observed with its topics sorted by name."""
    response = session.call_unobserved(
        "CreateTopics", version, {"topics": list(topics), "timeout_ms": 15000, **fields}
    )
    if isinstance(response, dict):
        response["topics"].sort(key=lambda row: str(row["name"]))
    session.observe(f"CreateTopics v{version} {note}", response)
    return response


def wait_until_gone(session: Session, name: str) -> None:
    deadline = now_ms() + WAIT_MS
    request = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    while session.call_unobserved("Metadata", 12, request)["topics"][0]["error_code"] != 3:
        assert now_ms() < deadline


# Fields of a topic, most of them invalid, with the expected error.
CASES: dict[str, tuple[Fields, int]] = {
    "no partitions": ({"partitions": 0}, 37),
    "-2 partitions": ({"partitions": -2}, 37),
    "default partitions": ({"partitions": -1}, 0),
    "no replicas": ({"replicas": 0}, 38),
    "-2 replicas": ({"replicas": -2}, 38),
    "default replicas": ({"replicas": -1}, 0),
    "more replicas than brokers": ({"replicas": 2}, 38),
    "unknown configuration": ({"configs": {"no.such.key": "1"}}, 40),
    "not a number": ({"configs": {"retention.ms": "soon"}}, 40),
    "number out of range": ({"configs": {"retention.ms": "-2"}}, 40),
    "empty number": ({"configs": {"retention.ms": ""}}, 40),
    "unknown policy": ({"configs": {"cleanup.policy": "shred"}}, 40),
    "empty policy": ({"configs": {"cleanup.policy": ""}}, 0),
    "unknown codec": ({"configs": {"compression.type": "brotli"}}, 40),
    "null value": ({"configs": {"retention.ms": None}}, 40),
    "segment too small": ({"configs": {"segment.bytes": "100"}}, 40),
    "fine configurations": ({"configs": {"retention.ms": "1000", "cleanup.policy": "compact, delete"}}, 0),
    "assignment": ({"partitions": -1, "replicas": -1, "assignments": {0: [1], 1: [1]}}, 0),
    "assignment and counts": ({"assignments": {0: [1]}}, 42),
    "assignment to an unknown broker": ({"partitions": -1, "replicas": -1, "assignments": {0: [7]}}, 39),
    "assignment with a gap": ({"partitions": -1, "replicas": -1, "assignments": {0: [1], 2: [1]}}, 39),
    "assignment to no broker": ({"partitions": -1, "replicas": -1, "assignments": {0: []}}, 39),
    "assignment twice to one": ({"partitions": -1, "replicas": -1, "assignments": {0: [1, 1]}}, 39),
}


@pytest.mark.parametrize("case", CASES)
def test_create_topics(pair: Pair, name: str, case: str) -> None:
    fields, error = CASES[case]

    def scenario(session: Session) -> None:
        for version in (2, 4, 5, 7):
            row = topic(f"{name}-{version}", **fields)
            # Versions before 4 have no default counts.
            for validate_only in (True, False):
                response = create(session, version, row, validate_only=validate_only, note=str(validate_only))
                if version >= 4:
                    assert response["topics"][0]["error_code"] == error, response

    pair.compare(scenario)


@pytest.mark.parametrize("wrong", ["", ".", "..", "a b", "x" * 250, "ä", "__cluster_metadata"])
def test_names(pair: Pair, wrong: str) -> None:
    def scenario(session: Session) -> None:
        create(session, 7, topic(wrong))

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("CreateTopics"))
def test_create_versions(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        create(session, version, topic(name, 3, configs={"retention.ms": "5000"}), note="new")
        response = create(session, version, topic(name), note="again")
        assert response["topics"][0]["error_code"] == 36
        create(session, version, topic(name), validate_only=True, note="again, only validated")
        create(session, version, topic(f"{name}-twice"), topic(f"{name}-twice", 2), note="one name twice")
        create(
            session,
            version,
            topic(f"{name}-a"),
            topic(f"{name}-b", 0),
            topic(f"{name}-c"),
            note="one of three",
        )
        create(session, version, note="none")

    pair.compare(scenario)


def test_names_that_collide_in_metrics(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        create(session, 7, topic(f"{name}.a_b"), note="first")
        for other in ("_a.b", ".a.b", "_a_b"):
            create(session, 7, topic(name + other), note=other)

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("DeleteTopics"))
def test_delete_topics(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        ids = {other: session.topic(f"{name}-{other}") for other in "abc"}

        def delete(note: str, *rows: str | bytes) -> Any:
            if version >= 6:
                listed: list[Any] = [
                    {"name": row} if isinstance(row, str) else {"name": None, "topic_id": row} for row in rows
                ]
                values: Fields = {"topics": listed, "timeout_ms": 15000}
            else:
                values = {"topic_names": list(rows), "timeout_ms": 15000}
            response = session.call_unobserved("DeleteTopics", version, values)
            if isinstance(response, dict):
                response["responses"].sort(key=lambda row: (str(row["name"]), row["error_code"]))
            session.observe(note, response)
            return response

        assert delete("one", name)["responses"][0]["error_code"] == 0
        wait_until_gone(session, name)
        delete("gone", name)
        delete("known and unknown", f"{name}-a", f"{name}-unknown")
        delete("twice", f"{name}-b", f"{name}-b")
        delete("invalid", "a b")
        delete("none")
        if version >= 6:
            delete("gone id", topic_id)
            delete("by id", ids["c"])
            delete("no id", ZERO_UUID)
            both = [{"name": f"{name}-c", "topic_id": ids["c"]}]
            session.call("DeleteTopics", 6, {"topics": both, "timeout_ms": 15000}, "name and id")

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("CreatePartitions"))
def test_create_partitions(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        session.topic(name, 2)

        def extend(note: str, *topics: Fields, validate_only: bool = False) -> Any:
            values: Fields = {"topics": list(topics), "timeout_ms": 15000, "validate_only": validate_only}
            response = session.call_unobserved("CreatePartitions", version, values)
            if isinstance(response, dict):
                response["results"].sort(key=lambda row: (row["name"], row["error_code"]))
            session.observe(note, response)
            return response

        def to(count: int, *assigned: list[int], topic: str = name) -> Fields:
            rows = [{"broker_ids": ids} for ids in assigned]
            return {"name": topic, "count": count, "assignments": rows or None}

        for count in (0, -1, 1, 2):
            assert extend(f"to {count}", to(count))["results"][0]["error_code"] == 37
        extend("only validated", to(3), validate_only=True)
        extend("more", to(3))
        extend("assigned", to(5, [1], [1]))
        extend("too few assigned", to(8, [1]))
        extend("too many assigned", to(6, [1], [1]))
        extend("assigned to no broker", to(6, []))
        extend("assigned to an unknown broker", to(6, [9]))
        extend("assigned to two", to(6, [1, 1]))
        extend("unknown topic", to(5, topic=f"{name}-unknown"))
        extend("invalid topic", to(5, topic="a b"))
        extend("twice", to(6), to(7))
        extend("none")
        session.wait_for_leaders(name, 5)  # Kafka's Metadata does not name the new ones before it leads them
        response = session.call_unobserved("Metadata", 12, {"topics": [{"name": name}]})
        session.observe("partitions", len(response["topics"][0]["partitions"]))

    pair.compare(scenario)


@facts.needs(facts.LIMITS_NEW_PARTITIONS, "limit of new partitions")
def test_more_partitions_than_a_request_may_ask_for(pair: Pair, name: str) -> None:
    """Ten thousand for all its topics together, of which one that is named twice, or unknown, does not count."""
    most = 10_000

    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        session.topic(name, 2)
        session.topic(f"{name}-2")
        for note, topics in (
            ("one topic", [(name, most + 3)]),
            ("as many as there may be", [(name, most + 2)]),
            ("the most there can be", [(name, 2**31 - 1)]),
            ("together", [(name, most), (f"{name}-2", 4), (f"{name}-unknown", 3), (name, 1), (name, 1)]),
            ("two topics", [(name, most - 1), (f"{name}-2", 5)]),
            ("not of the unknown", [(f"{name}-unknown", 2 * most), (f"{name}-2", 1)]),
            ("not of one twice", [(name, 2 * most), (name, 3)]),
        ):
            rows = [{"name": one, "count": count, "assignments": None} for one, count in topics]
            values = {"topics": rows, "timeout_ms": 15000, "validate_only": True}
            response = session.call_unobserved("CreatePartitions", 3, values)
            response["results"].sort(key=lambda row: (row["name"], row["error_code"]))
            session.observe(note, response)

    pair.compare(scenario)
