"""Fetch on both targets: versions, limits, errors, sessions (KIP-227)."""

from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from tests.common.batches import GZIP, WAIT_MS, batch, now_ms
from tests.common.definitions import ZERO_UUID, Fields

pytestmark = pytest.mark.also_on("proxy")

VERSIONS = range(4, 19)
BY_ID = 13
NO_SESSION, NEW_SESSION = -1, 0
Key = str | bytes


def fetch_row(partition: int = 0, offset: int = 0, max_bytes: int = 1 << 20, **fields: Any) -> Fields:
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
    """A Fetch response, observed; `rows` names topics by name, or by id from version 13 on."""
    topic_field = "topic_id" if version >= BY_ID else "topic"
    values: Fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24, **fields}
    values["topics"] = [{topic_field: key, "partitions": partitions} for key, partitions in rows]
    if forgotten:
        values["forgotten_topics_data"] = [
            {topic_field: key, "partitions": partitions} for key, partitions in forgotten
        ]
    return session.call("Fetch", version, values, note)


def first_row(response: Any) -> Any:
    """The response's row of its first partition."""
    return response["responses"][0]["partitions"][0]


def create_filled(session: Session, name: str, partitions: int = 1, batches: int = 3) -> bytes:
    """Create a topic with that many batches of two records in each partition; its id."""
    topic_id = session.topic(name, partitions)
    for partition in range(partitions):
        for _ in range(batches):
            assert session.produce(name, batch(2), partition=partition)["error_code"] == 0
    return topic_id


@pytest.mark.parametrize("version", VERSIONS)
def test_all_versions(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = create_filled(session, name, 2)
        key = topic_id if version >= BY_ID else name
        for isolation_level in (0, 1):
            for offset in (0, 1, 3, 5, 6):
                rows = [fetch_row(0, offset), fetch_row(1, offset)]
                response = fetch(
                    session, version, [(key, rows)], f"at {offset}", isolation_level=isolation_level
                )
                assert first_row(response)["high_watermark"] == 6
        fetch(session, version, [])

    pair.compare(scenario)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_errors(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = create_filled(session, name)
        session.delete_records(name, 2)
        key = topic_id if version >= BY_ID else name
        unknown: Key = bytes(range(16)) if version >= BY_ID else f"{name}-unknown"
        fetch(session, version, [(unknown, [fetch_row()])], "unknown topic")
        fetch(session, version, [(ZERO_UUID if version >= BY_ID else "", [fetch_row()])], "no topic")
        if version < BY_ID:
            fetch(session, version, [("a b", [fetch_row()])], "invalid topic")
        fetch(session, version, [(key, [fetch_row(7)])], "unknown partition")
        fetch(session, version, [(key, [fetch_row(-1)])], "partition -1")
        fetch(session, version, [(key, [fetch_row(), fetch_row(7)])], "one of two")
        fetch(session, version, [(key, [])], "no partition")
        for offset in (0, 1, 7, -1, -2, 1 << 60):
            assert (
                first_row(fetch(session, version, [(key, [fetch_row(0, offset)])], f"at {offset}"))[
                    "error_code"
                ]
                == 1
            )
        assert first_row(fetch(session, version, [(key, [fetch_row(0, 6)])], "at the end"))["error_code"] == 0
        fetch(session, version, [(key, [fetch_row(0, 2)])], "at the start")

    pair.compare(scenario)


@pytest.mark.parametrize("version", [9, 11, 12, 16])
def test_leader_epochs(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = create_filled(session, name)
        key = topic_id if version >= BY_ID else name
        for epoch, error in ((-1, 0), (0, 0), (1, 75), (100, 75), (-2, 0)):
            response = fetch(
                session, version, [(key, [fetch_row(current_leader_epoch=epoch)])], f"epoch {epoch}"
            )
            assert first_row(response)["error_code"] == error
        if version >= 12:
            for fetched in (-1, 0, 1, 5):
                for offset in (0, 3, 6, 9):
                    row = fetch_row(0, offset, last_fetched_epoch=fetched)
                    fetch(session, version, [(key, [row])], f"at {offset}, last of epoch {fetched}")

    pair.compare(scenario)


@pytest.mark.parametrize("version", [4, 11, 16])
def test_sizes(pair: Pair, name: str, version: int) -> None:
    """The first batch comes whole, even if it exceeds the limits; more batches come only within them."""

    def scenario(session: Session) -> None:
        topic_id = session.topic(name, 3)
        for partition in range(3):
            for _ in range(4):
                session.produce(name, batch(3, base_timestamp=now_ms()), partition=partition)
        key = topic_id if version >= BY_ID else name
        size = 61 + 3 * 12  # of one batch
        for limit in (0, 1, size - 1, size, size + 1, 2 * size, 3 * size + 5, 1 << 20):
            rows = [fetch_row(partition, 0, limit) for partition in range(3)]
            fetch(session, version, [(key, rows)], f"{limit} of each")
            rows = [fetch_row(partition, 0) for partition in range(3)]
            fetch(session, version, [(key, rows)], f"{limit} in all", max_bytes=limit)
        fetch(
            session,
            version,
            [(key, [fetch_row(1), fetch_row(0), fetch_row(1)])],
            "in another order",
            max_bytes=1,
        )

    pair.compare(scenario)


def test_long_poll(pair: Pair, name: str) -> None:
    """A delayed fetch ends with records, at its deadline, or at once with a read error, but not with an unknown
    partition."""

    def scenario(session: Session) -> None:
        topic_id = create_filled(session, name, 2)
        fetch(session, 16, [(topic_id, [fetch_row(0, 6)])], "time out", max_wait_ms=100)
        fetch(
            session,
            16,
            [(topic_id, [fetch_row(0, 4)])],
            "fewer than min_bytes",
            max_wait_ms=100,
            min_bytes=100_000,
        )
        fetch(session, 16, [(topic_id, [fetch_row(0, 6), fetch_row(5)])], "one unknown", max_wait_ms=100)
        fetch(session, 16, [(topic_id, [fetch_row(0, 6), fetch_row(1, 99)])], "an error", max_wait_ms=60_000)
        fetch(session, 16, [(topic_id, [fetch_row(5)])], "all unknown", max_wait_ms=60_000)
        fetch(session, 16, [(topic_id, [fetch_row(0, 6)])], "min_bytes 0", max_wait_ms=60_000, min_bytes=0)
        values: Fields = {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20}
        values["topics"] = [{"topic_id": topic_id, "partitions": [fetch_row(0, 6)]}]
        waiting = session.connection.send("Fetch", 16, values)
        other = Session(session.bootstrap)
        other.produce(name, batch(1, codec=GZIP))
        other.close()
        session.observe("completed", session.connection.receive("Fetch", 16, waiting))

    pair.compare(scenario)


def test_deleting_a_topic_completes_its_delayed_fetch(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        topic_id = create_filled(session, name)
        values: Fields = {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20}
        values["topics"] = [{"topic_id": topic_id, "partitions": [fetch_row(0, 6)]}]
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
    """Fetch sessions: each step is compared, and what clients rely on is asserted as well."""

    @pytest.mark.parametrize("version", [7, 12, 13, 18])
    def test_incremental(self, pair: Pair, name: str, version: int) -> None:
        def scenario(session: Session) -> None:
            topic_id = create_filled(session, name, 3)
            key = topic_id if version >= BY_ID else name
            rows = [fetch_row(partition, 6) for partition in range(3)]
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
            step(3, "the same records again: the fetch offset has not moved")
            step(4, "a later fetch offset", topics=[(key, [fetch_row(1, 7)])])
            step(5, "no news")
            step(6, "one partition forgotten", forgotten=[(key, [1])])
            session.produce(name, batch(1), partition=1)
            session.produce(name, batch(1), partition=2)
            step(7, "news of the others")
            step(8, "forgotten one added again", topics=[(key, [fetch_row(1, 6)])])
            step(9, "unknown partition added", topics=[(key, [fetch_row(9)])])
            step(10, "and still there")
            step(11, "out of range", topics=[(key, [fetch_row(0, 50)])])
            step(12, "still out of range")
            step(13, "forgets a partition that is not in the session", forgotten=[(key, [17])])
            step(13, "a repeated epoch")
            step(15, "a skipped epoch")
            step(14, "the right one")
            step(NO_SESSION, "closed", topics=[(key, [fetch_row(0, 0)])])
            step(15, "after the end")

        pair.compare(scenario)

    @pytest.mark.parametrize("version", [7, 12, 13, 18])
    def test_wrong_ids(self, pair: Pair, name: str, version: int) -> None:
        def scenario(session: Session) -> None:
            topic_id = create_filled(session, name)
            key = topic_id if version >= BY_ID else name
            rows = [(key, [fetch_row()])]
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
            topic_id = create_filled(session, name)
            by_name = fetch(session, 12, [(name, [fetch_row(0, 6)])], session_epoch=NEW_SESSION)["session_id"]
            fetch(session, 13, [], "ids in a session of names", session_id=by_name, session_epoch=1)
            by_id = fetch(session, 13, [(topic_id, [fetch_row(0, 6)])], session_epoch=NEW_SESSION)[
                "session_id"
            ]
            fetch(session, 12, [], "names in a session of ids", session_id=by_id, session_epoch=1)

        pair.compare(scenario)

    def test_unknown_ids_and_deleted_topics(self, pair: Pair, name: str) -> None:
        def scenario(session: Session) -> None:
            topic_id = create_filled(session, name)
            rows: list[tuple[Key, list[Fields]]] = [
                (topic_id, [fetch_row(0, 6)]),
                (bytes(range(16)), [fetch_row()]),
            ]
            number = fetch(session, 16, rows, "one is unknown", session_epoch=NEW_SESSION)["session_id"]
            fetch(session, 16, [], "its error is repeated", session_id=number, session_epoch=1)
            session.call_unobserved("DeleteTopics", 6, {"topics": [{"name": name}], "timeout_ms": 15000})
            deadline = now_ms() + WAIT_MS
            unknown = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
            while session.call_unobserved("Metadata", 12, unknown)["topics"][0]["error_code"] == 0:
                assert now_ms() < deadline
            fetch(session, 16, [], "after its deletion", session_id=number, session_epoch=2)

        pair.compare(scenario)

    def test_sessions_are_independent(self, pair: Pair, name: str) -> None:
        def scenario(session: Session) -> None:
            topic_id = create_filled(session, name, 2)
            numbers = [
                fetch(session, 16, [(topic_id, [fetch_row(index % 2, 6)])], session_epoch=NEW_SESSION)[
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
    """A client that claims to be a replica."""

    def scenario(session: Session) -> None:
        topic_id = create_filled(session, name)
        fetch(session, 12, [(name, [fetch_row()])], replica_id=5)
        fetch(session, 12, [(name, [fetch_row()])], replica_id=-2)
        for epoch in (0, 7, -1, -2):
            fetch(session, 12, [(name, [{**fetch_row(), "current_leader_epoch": epoch}])], replica_id=5)
        fetch(session, 16, [(topic_id, [fetch_row()])], replica_state={"replica_id": 5, "replica_epoch": -1})
        fetch(session, 16, [(topic_id, [fetch_row()])], rack_id="somewhere")

    pair.compare(scenario)
