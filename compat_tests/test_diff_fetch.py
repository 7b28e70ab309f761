"""Fetch on both targets: versions, limits, errors, sessions (KIP-227)."""

from typing import Any

import pytest

from compat_tests.batches import GZIP, batch, now_ms
from compat_tests.definitions import ZERO_UUID, Fields
from compat_tests.differential import Pair, Session

VERSIONS = range(4, 19)
BY_ID = 13
NO_SESSION, NEW_SESSION = -1, 0
Key = str | bytes


def wanted(partition: int = 0, offset: int = 0, max_bytes: int = 1 << 20, **fields: Any) -> Fields:
    """One partition of a Fetch request."""
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes, **fields}


def fetch(
    session: Session,
    version: int,
    rows: list[tuple[Key, list[Fields]]],
    note: str = "",
    forgotten: list[tuple[Key, list[int]]] | None = None,
    **fields: Any,
) -> Any:
    """A Fetch response, compared; `rows` names topics by name, or by id from version 13 on."""
    word = "topic_id" if version >= BY_ID else "topic"
    values: Fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24, **fields}
    values["topics"] = [{word: key, "partitions": partitions} for key, partitions in rows]
    if forgotten:
        values["forgotten_topics_data"] = [
            {word: key, "partitions": partitions} for key, partitions in forgotten
        ]
    return session.call("Fetch", version, values, note)


def only(response: Any) -> Any:
    """The one partition of a response."""
    return response["responses"][0]["partitions"][0]


def filled(session: Session, name: str, partitions: int = 1, batches: int = 3) -> bytes:
    """A topic with so many batches of two records in each partition; its id."""
    topic_id = session.topic(name, partitions)
    for partition in range(partitions):
        for _ in range(batches):
            assert session.produce(name, batch(2), partition=partition)["error_code"] == 0
    return topic_id


@pytest.mark.parametrize("version", VERSIONS)
def test_all_versions(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = filled(session, name, 2)
        key = topic_id if version >= BY_ID else name
        for isolation_level in (0, 1):
            for offset in (0, 1, 3, 5, 6):
                rows = [wanted(0, offset), wanted(1, offset)]
                response = fetch(
                    session, version, [(key, rows)], f"at {offset}", isolation_level=isolation_level
                )
                assert only(response)["high_watermark"] == 6
        fetch(session, version, [])

    pair.compare(scenario)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_errors(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = filled(session, name)
        session.delete_records(name, 2)
        key = topic_id if version >= BY_ID else name
        unknown: Key = bytes(range(16)) if version >= BY_ID else f"{name}-unknown"
        fetch(session, version, [(unknown, [wanted()])], "unknown topic")
        fetch(session, version, [(ZERO_UUID if version >= BY_ID else "", [wanted()])], "no topic")
        if version < BY_ID:
            fetch(session, version, [("a b", [wanted()])], "invalid topic")
        fetch(session, version, [(key, [wanted(7)])], "unknown partition")
        fetch(session, version, [(key, [wanted(-1)])], "partition -1")
        fetch(session, version, [(key, [wanted(), wanted(7)])], "one of two")
        fetch(session, version, [(key, [])], "no partition")
        for offset in (0, 1, 7, -1, -2, 1 << 60):
            assert (
                only(fetch(session, version, [(key, [wanted(0, offset)])], f"at {offset}"))["error_code"] == 1
            )
        assert only(fetch(session, version, [(key, [wanted(0, 6)])], "at the end"))["error_code"] == 0
        fetch(session, version, [(key, [wanted(0, 2)])], "at the start")

    pair.compare(scenario)


@pytest.mark.parametrize("version", [9, 11, 12, 16])
def test_leader_epochs(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = filled(session, name)
        key = topic_id if version >= BY_ID else name
        for epoch, error in ((-1, 0), (0, 0), (1, 75), (100, 75), (-2, 0)):
            response = fetch(
                session, version, [(key, [wanted(current_leader_epoch=epoch)])], f"epoch {epoch}"
            )
            assert only(response)["error_code"] == error
        if version >= 12:
            for fetched in (-1, 0, 1, 5):
                for offset in (0, 3, 6, 9):
                    row = wanted(0, offset, last_fetched_epoch=fetched)
                    fetch(session, version, [(key, [row])], f"at {offset}, last of epoch {fetched}")

    pair.compare(scenario)


@pytest.mark.parametrize("version", [4, 11, 16])
def test_sizes(pair: Pair, name: str, version: int) -> None:
    """The first batch comes whole however small the limits are; the others only where they fit."""

    def scenario(session: Session) -> None:
        topic_id = session.topic(name, 3)
        for partition in range(3):
            for _ in range(4):
                session.produce(name, batch(3, base_timestamp=now_ms()), partition=partition)
        key = topic_id if version >= BY_ID else name
        size = 61 + 3 * 12  # of one batch
        for limit in (0, 1, size - 1, size, size + 1, 2 * size, 3 * size + 5, 1 << 20):
            rows = [wanted(partition, 0, limit) for partition in range(3)]
            fetch(session, version, [(key, rows)], f"{limit} of each")
            rows = [wanted(partition, 0) for partition in range(3)]
            fetch(session, version, [(key, rows)], f"{limit} in all", max_bytes=limit)
        fetch(session, version, [(key, [wanted(1), wanted(0), wanted(1)])], "in another order", max_bytes=1)

    pair.compare(scenario)


def test_long_poll(pair: Pair, name: str) -> None:
    """Waits end with records or time; an error in reading ends them at once, an unknown partition not."""

    def scenario(session: Session) -> None:
        topic_id = filled(session, name, 2)
        fetch(session, 16, [(topic_id, [wanted(0, 6)])], "time out", max_wait_ms=100)
        fetch(
            session,
            16,
            [(topic_id, [wanted(0, 4)])],
            "fewer than min_bytes",
            max_wait_ms=100,
            min_bytes=100_000,
        )
        fetch(session, 16, [(topic_id, [wanted(0, 6), wanted(5)])], "one unknown", max_wait_ms=100)
        fetch(session, 16, [(topic_id, [wanted(0, 6), wanted(1, 99)])], "an error", max_wait_ms=60_000)
        fetch(session, 16, [(topic_id, [wanted(5)])], "all unknown", max_wait_ms=60_000)
        fetch(session, 16, [(topic_id, [wanted(0, 6)])], "min_bytes 0", max_wait_ms=60_000, min_bytes=0)
        values: Fields = {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20}
        values["topics"] = [{"topic_id": topic_id, "partitions": [wanted(0, 6)]}]
        waiting = session.connection.send("Fetch", 16, values)
        other = Session(session.bootstrap)
        other.produce(name, batch(1, codec=GZIP))
        other.close()
        session.observe("woken", session.connection.receive("Fetch", 16, waiting))

    pair.compare(scenario)


def test_a_waiting_fetch_ends_with_its_topic(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id = filled(session, name)
        values: Fields = {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20}
        values["topics"] = [{"topic_id": topic_id, "partitions": [wanted(0, 6)]}]
        waiting = session.connection.send("Fetch", 16, values)
        other = Session(session.bootstrap)
        other.call_unobserved("DeleteTopics", 6, {"topics": [{"name": name}], "timeout_ms": 15000})
        response = session.connection.receive("Fetch", 16, waiting)
        assert isinstance(response, dict)
        session.observe(
            "errors", [row["error_code"] for topic in response["responses"] for row in topic["partitions"]]
        )
        other.close()

    pair.compare(scenario)


class TestSessions:
    """Each step is compared; the literal assertions are what clients rely on."""

    @pytest.mark.parametrize("version", [7, 12, 13, 18])
    def test_incremental(self, pair: Pair, name: str, version: int) -> None:
        def scenario(session: Session) -> None:
            topic_id = filled(session, name, 3)
            key = topic_id if version >= BY_ID else name
            rows = [wanted(partition, 6) for partition in range(3)]
            full = fetch(session, version, [(key, rows)], "full", session_epoch=NEW_SESSION)
            assert len(full["responses"][0]["partitions"]) == 3
            number = full["session_id"]
            assert number > 0

            def step(epoch: int, note: str, **fields: Any) -> Any:
                topics = fields.pop("topics", [])
                return fetch(session, version, topics, note, session_id=number, session_epoch=epoch, **fields)

            assert step(1, "nothing new")["responses"] == []
            session.produce(name, batch(1), partition=1)
            news = step(2, "one partition has news")
            assert [row["partition_index"] for row in news["responses"][0]["partitions"]] == [1]
            step(3, "the same again, for it was not fetched further")
            step(4, "further", topics=[(key, [wanted(1, 7)])])
            step(5, "quiet")
            step(6, "one partition forgotten", forgotten=[(key, [1])])
            session.produce(name, batch(1), partition=1)
            session.produce(name, batch(1), partition=2)
            step(7, "news of the others")
            step(8, "forgotten one added again", topics=[(key, [wanted(1, 6)])])
            step(9, "unknown partition added", topics=[(key, [wanted(9)])])
            step(10, "and still there")
            step(11, "out of range", topics=[(key, [wanted(0, 50)])])
            step(12, "still out of range")
            step(13, "forgets what it never had", forgotten=[(key, [17])])
            step(13, "an epoch again")
            step(15, "an epoch left out")
            step(14, "the right one")
            step(NO_SESSION, "closed", topics=[(key, [wanted(0, 0)])])
            step(15, "after the end")

        pair.compare(scenario)

    @pytest.mark.parametrize("version", [7, 12, 13, 18])
    def test_wrong_ids(self, pair: Pair, name: str, version: int) -> None:
        def scenario(session: Session) -> None:
            topic_id = filled(session, name)
            key = topic_id if version >= BY_ID else name
            rows = [(key, [wanted()])]
            fetch(session, version, rows, "unknown id", session_id=987654, session_epoch=1)
            fetch(session, version, rows, "unknown id, new", session_id=987654, session_epoch=NEW_SESSION)
            fetch(session, version, rows, "unknown id, none", session_id=987654, session_epoch=NO_SESSION)
            fetch(session, version, rows, "epoch without id", session_id=0, session_epoch=5)
            fetch(session, version, rows, "negative epoch", session_id=0, session_epoch=-7)
            fetch(session, version, [], "new and empty", session_epoch=NEW_SESSION)
            first = fetch(session, version, rows, "new", session_epoch=NEW_SESSION)["session_id"]
            fetch(
                session, version, rows, "new again under its id", session_id=first, session_epoch=NEW_SESSION
            )
            fetch(session, version, [], "the old one is gone", session_id=first, session_epoch=1)

        pair.compare(scenario)

    def test_names_and_ids_do_not_mix(self, pair: Pair, name: str) -> None:
        def scenario(session: Session) -> None:
            topic_id = filled(session, name)
            by_name = fetch(session, 12, [(name, [wanted(0, 6)])], session_epoch=NEW_SESSION)["session_id"]
            fetch(session, 13, [], "ids in a session of names", session_id=by_name, session_epoch=1)
            by_id = fetch(session, 13, [(topic_id, [wanted(0, 6)])], session_epoch=NEW_SESSION)["session_id"]
            fetch(session, 12, [], "names in a session of ids", session_id=by_id, session_epoch=1)

        pair.compare(scenario)

    def test_unknown_ids_and_deleted_topics(self, pair: Pair, name: str) -> None:
        def scenario(session: Session) -> None:
            topic_id = filled(session, name)
            rows: list[tuple[Key, list[Fields]]] = [
                (topic_id, [wanted(0, 6)]),
                (bytes(range(16)), [wanted()]),
            ]
            number = fetch(session, 16, rows, "one is unknown", session_epoch=NEW_SESSION)["session_id"]
            fetch(session, 16, [], "it is told again", session_id=number, session_epoch=1)
            session.call_unobserved("DeleteTopics", 6, {"topics": [{"name": name}], "timeout_ms": 15000})
            deadline = now_ms() + 20_000
            unknown = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
            while session.call_unobserved("Metadata", 12, unknown)["topics"][0]["error_code"] == 0:
                assert now_ms() < deadline
            fetch(session, 16, [], "after its deletion", session_id=number, session_epoch=2)

        pair.compare(scenario)

    def test_many_sessions_are_kept_apart(self, pair: Pair, name: str) -> None:
        def scenario(session: Session) -> None:
            topic_id = filled(session, name, 2)
            numbers = [
                fetch(session, 16, [(topic_id, [wanted(index % 2, 6)])], session_epoch=NEW_SESSION)[
                    "session_id"
                ]
                for index in range(6)
            ]
            assert len(set(numbers)) == 6
            session.produce(name, batch(1), partition=1)
            for number in numbers:
                fetch(session, 16, [], session_id=number, session_epoch=1)

        pair.compare(scenario)


def test_followers(pair: Pair, name: str) -> None:
    """Who says it is a replica, and is none."""

    def scenario(session: Session) -> None:
        topic_id = filled(session, name)
        fetch(session, 12, [(name, [wanted()])], replica_id=5)
        fetch(session, 12, [(name, [wanted()])], replica_id=-2)
        fetch(session, 16, [(topic_id, [wanted()])], replica_state={"replica_id": 5, "replica_epoch": -1})
        fetch(session, 16, [(topic_id, [wanted()])], rack_id="somewhere")

    pair.compare(scenario)
