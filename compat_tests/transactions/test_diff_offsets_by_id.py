"""TxnOffsetCommit 6 names topics by id (KIP-1319); what it refuses, and what it stores, beside older versions."""

import pytest

from compat_tests.brokers import Broker
from compat_tests.conftest import OwnBrokers
from compat_tests.differential import Pair, Session
from compat_tests.group_requests.classic_consumers import ClassicConsumer, assign_all
from compat_tests.group_requests.committed_offsets import fetch, fetch_body, wait_for_coordinator
from compat_tests.group_requests.consumer_members import Member, Topics, compare
from compat_tests.group_requests.offset_records import as_fields, batches_of
from compat_tests.transactions.wire import V2_END, V2_OFFSETS, Producer, until_settled
from oncelog.wire.stored.coordinator import decode_key, decode_value
from oncelog.wire.stored.groups import KEY_TYPES, VALUE_TYPES
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import ZERO_UUID, Fields, versions_of

BY_ID = 6
NO_SUCH_ID = bytes(range(1, 17))

pytestmark = pytest.mark.skipif(
    BY_ID not in versions_of("TxnOffsetCommit"), reason="Kafka has KIP-1319 from 4.4 on"
)

Rows = list[tuple[str | bytes, list[int]]]
"""Topics by name or id, and their partitions."""


def commit(
    producer: Producer,
    group: str,
    rows: Rows,
    version: int,
    note: str = "",
    *,
    offset: int = 7,
    **fields: object,
) -> Fields:
    """TxnOffsetCommit of the same offset for all rows; the response."""
    topics = []
    for topic, partitions in rows:
        named: Fields = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
        row = {"committed_offset": offset, "committed_metadata": "note"}
        named["partitions"] = [{"partition_index": partition, **row} for partition in partitions]
        topics.append(named)
    values: Fields = {
        "transactional_id": producer.transactional_id,
        "group_id": group,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "topics": topics,
        **fields,
    }

    def code(response: Fields) -> int:
        codes = [row["error_code"] for topic in response["topics"] for row in topic["partitions"]]
        return codes[-1] if codes else 0

    response: Fields = until_settled(
        lambda: producer.session.call_unobserved("TxnOffsetCommit", version, values), code
    )
    producer.session.observe(f"TxnOffsetCommit v{version} {note}", response)
    return response


def begun(session: Session, name: str) -> Producer:
    """A producer in a group whose coordinator serves."""
    wait_for_coordinator(session, name)
    producer = Producer(session, name)
    producer.init()
    return producer


def delete(session: Session, name: str, topic_id: bytes) -> None:
    """Delete a topic, and wait until its id is known no more."""
    body = {"topics": [{"name": name, "topic_id": ZERO_UUID}], "timeout_ms": 15000}
    assert session.call_unobserved("DeleteTopics", 6, body)["responses"][0]["error_code"] == 0
    deadline = now_ms() + WAIT_MS
    asked: Fields = {"topics": [{"name": None, "topic_id": topic_id}]}
    while session.call_unobserved("Metadata", 12, asked)["topics"][0]["error_code"] == 0:
        assert now_ms() < deadline


def wait_until_unpending(session: Session, group: str, topic: str) -> None:
    """Wait until the deletion has reached the group's coordinator: no offset of the topic is pending."""
    deadline = now_ms() + WAIT_MS
    body = fetch_body(9, (group, {topic: [0]})) | {"require_stable": True}
    while session.call_unobserved("OffsetFetch", 9, body)["groups"][0]["topics"][0]["partitions"][0][
        "error_code"
    ]:
        assert now_ms() < deadline, "the pending offset outlives its topic"


@pytest.mark.also_on("proxy")
@pytest.mark.parametrize("version", [V2_OFFSETS, BY_ID])
def test_topics_that_are_not_there(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = session.topic(f"{name}-a", 3)
        other_id = session.topic(f"{name}-b", 1)
        gone_id = session.topic(f"{name}-c", 1)
        delete(session, f"{name}-c", gone_id)
        producer = begun(session, name)
        by_id = version >= BY_ID
        here: str | bytes = topic_id if by_id else f"{name}-a"
        there: str | bytes = other_id if by_id else f"{name}-b"
        gone: str | bytes = gone_id if by_id else f"{name}-c"
        missing: str | bytes = NO_SUCH_ID if by_id else "no-such-topic"
        zero: str | bytes = ZERO_UUID if by_id else ""
        cases: list[tuple[Rows, str]] = [
            ([(missing, [0, 1])], "only a missing one"),
            ([(zero, [0])], "only the zero id"),
            ([(gone, [0])], "only a deleted one"),
            ([(here, [0]), (missing, [0]), (there, [0])], "a missing one between others"),
            ([(zero, [1]), (gone, [0]), (here, [0, 2])], "two missing ones first"),
            ([(here, [3, 0, -1, 1])], "partitions that are not there"),
            ([(here, [9])], "only a partition that is not there"),
            ([(there, [0, 5]), (here, [2, 7]), (missing, [0])], "some of everything"),
            ([(here, [0]), (missing, [0]), (here, [1, 8]), (missing, [1])], "topics twice"),
            ([(here, [0]), (here, [0])], "a partition twice"),
            ([(here, []), (there, [0])], "a topic without partitions"),
            ([(missing, []), (there, [0])], "a missing topic without partitions"),
            ([(missing, [])], "only a missing topic without partitions"),
            ([(here, [])], "only a topic without partitions"),
            ([], "no topics"),
        ]
        for rows, note in cases:
            commit(producer, name, rows, version, note)
        commit(producer, "", [(here, [0]), (missing, [0])], version, "a group without a name")
        commit(producer, name, [(missing, [0])], version, "an epoch that is not known", producer_epoch=77)
        commit(producer, name, [(here, [0]), (missing, [0])], version, "likewise", producer_epoch=77)
        fetch(session, 9, (name, None), note="pending")
        producer.end(commit=True, version=V2_END)
        fetch(session, 9, (name, None), note="committed")
        fetch(session, 10, (name, {topic_id: [0, 1, 2], other_id: [0]}), note="by id")

    pair.compare(scenario)


@pytest.mark.also_on("proxy")
@pytest.mark.parametrize("version", [3, 4, V2_OFFSETS, BY_ID])
def test_groups_and_members_that_are_not_there(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        rows: Rows = [(topic_id if version >= BY_ID else name, [0])]
        for group, fields in (
            ("new", {"generation_id_or_member_epoch": 0}),
            ("new", {"generation_id_or_member_epoch": 3, "member_id": "m"}),
            ("new", {"generation_id_or_member_epoch": -1, "member_id": "m"}),
            ("new-2", {"generation_id_or_member_epoch": -2}),
            ("old", {"generation_id_or_member_epoch": 0}),
            ("old", {"generation_id_or_member_epoch": -1, "member_id": "m"}),
            ("old", {"generation_id_or_member_epoch": 2, "member_id": "m"}),
            ("old", {"group_instance_id": "i", "generation_id_or_member_epoch": -1}),
            ("old", {"group_instance_id": "i", "generation_id_or_member_epoch": 1, "member_id": "m"}),
        ):
            full = f"{name}-{group}"
            producer = begun(session, full)
            if version < V2_OFFSETS:
                producer.add_offsets(full)
            commit(producer, full, rows, version, f"{group} {fields}", **fields)
            if version >= V2_OFFSETS:
                producer.describe()
            producer.end(commit=True, version=3 if version < V2_OFFSETS else V2_END)
            fetch(session, 9, (full, None), note=group)

    pair.compare(scenario)


@pytest.mark.parametrize("version", range(BY_ID + 1))
def test_the_stored_offsets_name_the_topic_by_id(pair: Pair, name: str, version: int) -> None:
    """In every version, as OffsetCommit's do."""

    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        producer = begun(session, name)
        if version < V2_OFFSETS:
            producer.add_offsets(name)
        commit(producer, name, [(topic_id if version >= BY_ID else name, [0])], version)
        producer.end(commit=True, version=3 if version < V2_OFFSETS else V2_END)
        found = 0
        for batch, records in batches_of(session, name):
            session.observe("batch", [batch.attributes, batch.producer_epoch, batch.base_sequence])
            for record in records:
                assert record.key is not None
                key = decode_key(record.key, KEY_TYPES)
                assert key is not None
                if record.value is None:
                    session.observe("tombstone", as_fields(key))
                    continue
                value = decode_value(record.value, VALUE_TYPES[key.API_KEY])
                session.observe(
                    "record", [int.from_bytes(record.value[:2], "big"), as_fields(key), as_fields(value)]
                )
                found += getattr(value, "topic_id", None) == topic_id
        session.observe("records with the topic's id", found)
        assert found == 1

    pair.compare(scenario)


@pytest.mark.also_on("proxy")
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("again", ["before the end", "after the end"])
@pytest.mark.parametrize("version", [3, V2_OFFSETS, BY_ID])
def test_a_topic_that_was_deleted_in_the_transaction(
    pair: Pair, name: str, version: int, again: str, commits: bool
) -> None:
    """A topic of the same name has no offset, neither a pending nor a committed one."""

    def scenario(session: Session) -> None:
        topic_id = session.topic(name)
        producer = begun(session, name)
        end = 3 if version < V2_OFFSETS else V2_END
        rows: Rows = [(topic_id if version >= BY_ID else name, [0])]
        if version < V2_OFFSETS:
            producer.add_offsets(name)
        commit(producer, name, rows, version, offset=5)
        fetch(session, 9, (name, {name: [0]}), note="pending", require_stable=True)
        delete(session, name, topic_id)
        wait_until_unpending(session, name, name)
        commit(producer, name, rows, version, "deleted")
        if again == "before the end":
            new_id = session.topic(name)
            commit(producer, name, rows, version, "by its old id, or its name", offset=6)
            producer.end(commits, end)
        else:
            producer.end(commits, end)
            new_id = session.topic(name)
        for require_stable in (False, True):
            fetch(session, 9, (name, {name: [0]}), note="by name", require_stable=require_stable)
            fetch(session, 10, (name, {new_id: [0]}), note="by id", require_stable=require_stable)
        fetch(session, 10, (name, {topic_id: [0]}), note="by the old id")
        fetch(session, 9, (name, None), note="all")

    pair.compare(scenario)


@pytest.mark.parametrize("ends", ["before the restart", "after the restart"])
def test_a_deleted_topic_leaves_no_offset_after_a_restart(
    own_broker: OwnBrokers, name: str, ends: str
) -> None:
    """The deletion is in the log of the group's coordinator: it holds for what the coordinator loads."""
    broker: Broker = own_broker()
    session = Session(broker.bootstrap)
    kept_id = session.topic(f"{name}-kept")
    topic_id = session.topic(name)
    producer = begun(session, name)
    commit(producer, name, [(topic_id, [0]), (kept_id, [0])], BY_ID, offset=5)
    delete(session, name, topic_id)
    wait_until_unpending(session, name, name)
    new_id = session.topic(name)
    if ends == "before the restart":
        producer.end(commit=True, version=V2_END)
    session.end()
    broker.restart()
    session = Session(broker.bootstrap)
    producer.session = session
    wait_for_coordinator(session, name)
    if ends == "after the restart":
        producer.end(commit=True, version=V2_END)
    body = fetch_body(10, (name, {new_id: [0], kept_id: [0]})) | {"require_stable": True}
    offsets = {
        row["topic_id"]: row["partitions"][0]["committed_offset"]
        for row in session.call_unobserved("OffsetFetch", 10, body)["groups"][0]["topics"]
    }
    assert offsets == {new_id: -1, kept_id: 5}
    named = fetch_body(9, (name, {name: [0]}))
    (row,) = session.call_unobserved("OffsetFetch", 9, named)["groups"][0]["topics"]
    assert row["partitions"][0]["committed_offset"] == -1
    session.end()


def name_or_id(topics: Topics, topic: str, version: int) -> str | bytes:
    return topics.ids[topic] if version >= BY_ID else topic


@pytest.mark.parametrize("version", [3, V2_OFFSETS, BY_ID])
def test_epochs_of_members_of_the_consumer_protocol(pair: Pair, name: str, version: int) -> None:
    """An older epoch is stale for a partition that the member got later."""

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        one, two = (Member(topics, name, member, [name]) for member in ("one", "two"))
        one.join()
        two.join()
        one.acknowledge("told to revoke")
        one.acknowledge("has revoked")
        two.heartbeat("gets its share")
        two.leave("leaves")
        one.heartbeat("gets all")
        one.acknowledge("has all")
        producer = begun(session, name)
        if version < V2_OFFSETS:
            producer.add_offsets(name)
        topic = name_or_id(topics, name, version)
        for epoch in range(-2, one.epoch + 2):
            for partition in range(4):
                fields: Fields = {"generation_id_or_member_epoch": epoch, "member_id": "one"}
                commit(producer, name, [(topic, [partition])], version, f"epoch {epoch}", **fields)
            for member in ("", "two", "nobody"):
                fields = {"generation_id_or_member_epoch": epoch, "member_id": member}
                commit(producer, name, [(topic, [0])], version, f"{member} in epoch {epoch}", **fields)
        commit(
            producer, name, [(topic, [0, 1, 2, 3])], version, "all, stale", **fields | {"member_id": "one"}
        )

    compare(pair, name, scenario)


@pytest.mark.parametrize("version", [3, V2_OFFSETS, BY_ID])
def test_generations_of_members_of_the_classic_protocol(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        one = ClassicConsumer(topics, name, "one", [name], instance="i")
        one.join("joins")
        one.sync("leads", {one.member_id: assign_all(name, 1)})
        producer = begun(session, name)
        if version < V2_OFFSETS:
            producer.add_offsets(name)
        topic = name_or_id(topics, name, version)
        for generation in (one.generation - 1, one.generation, one.generation + 1, -1, -2):
            for member in (one.member_id, "nobody", ""):
                for instance in (None, "i", "j"):
                    fields: Fields = {
                        "generation_id_or_member_epoch": generation,
                        "member_id": member,
                        "group_instance_id": instance,
                    }
                    note = f"{generation} {member == one.member_id} {instance}"
                    commit(producer, name, [(topic, [0])], version, note, **fields)

    compare(pair, name, scenario)
