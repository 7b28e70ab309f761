"""What a client that has lost a right, or never had it, gets by other ways: ids, sessions, memberships, others' ids.

Each is tried against both targets; the error codes are equal, and oncelog's are those that a reader expects.
"""

from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.differential import Session
from compat_tests.on_demand import OnDemand
from compat_tests.security.authorizing import CLIENT, GROUP, TOPIC, TRANSACTIONAL_ID, Acls
from tests.common.batches import TRANSACTIONAL as TRANSACTIONAL_BATCH
from tests.common.batches import WAIT_MS, batch, now_ms
from tests.common.definitions import Fields
from tests.common.recorded.recorder import Recorder

READ, WRITE, DESCRIBE = 3, 4, 8
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, ID_DENIED = 29, 30, 31, 53
UNKNOWN_ID, INVALID_MAPPING, INVALID_STATE = 100, 49, 48
Attack = Callable[[Session, Acls, Session], Any]
"""An administrator, the ACLs of the client, the client. Returns what the client learns."""
Tried = Callable[[Attack], Any]


@pytest.fixture
def tried(answers: Recorder, admins: OnDemand[tuple[Session, Acls]]) -> Callable[[Attack], Any]:
    """`tried(attack)`: what the client learns from oncelog; from Kafka it learns the same."""

    def run(attack: Attack) -> Any:
        def observe(target: str) -> Any:
            admin, acls = admins[target]
            client = Session(admin.bootstrap, CLIENT)
            try:
                return attack(admin, acls, client)
            finally:
                client.end()
                acls.change([])

        found = answers.both(observe)
        assert found["kafka"] == found["oncelog"], found
        return found["oncelog"]

    return run


def patient(call: Callable[[], Any], wrong: Callable[[Any], bool]) -> Any:
    """The response, once it is not `wrong`: a Kafka's coordinators learn of topics and groups a moment later."""
    deadline = now_ms() + WAIT_MS
    while wrong(response := call()):
        assert now_ms() < deadline, response
    return response


# -- fetch sessions


@pytest.mark.parametrize("version", [7, 11, 12, 13, 16])
def test_a_fetch_session_made_before_the_right_went(tried: Tried, name: str, version: int) -> None:
    kept, lost = f"kept-{name}", f"lost-{name}"

    def attack(admin: Session, acls: Acls, client: Session) -> Any:
        ids = {topic: admin.topic(topic) for topic in (kept, lost)}
        names = {topic_id: topic for topic, topic_id in ids.items()}

        def fetch(session: int, epoch: int, *topics: str) -> Any:
            row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            key = {topic: {"topic_id": ids[topic]} if version >= 13 else {"topic": topic} for topic in topics}
            values: Fields = {"max_bytes": 1 << 20, "min_bytes": 0, "max_wait_ms": 0}
            values |= {"session_id": session, "session_epoch": epoch}
            values["topics"] = [{**key[topic], "partitions": [row]} for topic in topics]
            return client.call_unobserved("Fetch", version, values)

        def rows(response: Any) -> list[tuple[str, int, bool]]:
            assert response["error_code"] == 0, response
            return sorted(
                (row.get("topic") or names[row["topic_id"]], one["error_code"], bool(one["records"]))
                for row in response["responses"]
                for one in row["partitions"]
            )

        both = [(TOPIC, kept, READ), (TOPIC, lost, READ)]
        acls.change(both)
        begun = fetch(0, 0, kept, lost)
        session = begun["session_id"]
        assert session > 0
        found = [rows(begun)]
        acls.change(both[:1])
        for topic in (kept, lost):
            assert admin.produce(topic, batch(1))["error_code"] == 0
        found += [rows(fetch(session, epoch)) for epoch in (1, 2)]
        acls.change(both)
        found.append(rows(fetch(session, 3)))
        return found

    _, first, second, again = tried(attack)
    assert first == [(kept, 0, True), (lost, TOPIC_DENIED, False)]
    assert (lost, TOPIC_DENIED, False) in second
    assert (lost, 0, True) in again


def test_a_fetch_session_of_another_client(tried: Tried, name: str) -> None:
    """Who guesses the id of a session gets no records of it that he may not read."""
    topic = f"sessions-{name}"

    def attack(admin: Session, acls: Acls, client: Session) -> Any:
        topic_id = admin.topic(topic)
        assert admin.produce(topic, batch(1))["error_code"] == 0
        row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        values: Fields = {"max_bytes": 1 << 20, "min_bytes": 0, "max_wait_ms": 0, "session_id": 0}
        values |= {"session_epoch": 0, "topics": [{"topic_id": topic_id, "partitions": [row]}]}
        session = admin.call_unobserved("Fetch", 16, values)["session_id"]
        assert session > 0
        stolen = client.call_unobserved(
            "Fetch", 16, {**values, "session_id": session, "session_epoch": 1, "topics": []}
        )
        return stolen["error_code"], [
            (one["error_code"], bool(one["records"]))
            for row in stolen["responses"]
            for one in row["partitions"]
        ]

    assert tried(attack) == (0, [(TOPIC_DENIED, False)])


# -- share sessions and memberships


def test_a_share_session_made_before_the_right_went(tried: Tried, name: str) -> None:
    topic, group = f"shared-{name}", f"sharing-{name}"

    def attack(admin: Session, acls: Acls, client: Session) -> Any:
        topic_id = admin.topic(topic)
        admin.wait_for_coordinator(group)
        start = {"partition_index": 0, "start_offset": 0}
        alter = {"group_id": group, "topics": [{"topic_name": topic, "partitions": [start]}]}
        patient(
            lambda: admin.call_unobserved("AlterShareGroupOffsets", 0, alter),
            lambda one: (
                one["error_code"]
                or any(row["error_code"] for topic in one["responses"] for row in topic["partitions"])
            ),
        )
        assert admin.produce(topic, batch(1))["error_code"] == 0

        def fetch(epoch: int, *, names: bool = False) -> Any:
            rows = [{"partition_index": 0, "acknowledgement_batches": []}]
            values: Fields = {"group_id": group, "member_id": "AAAAAAAAAAAAAAAAAAAAAA"}
            values |= {"share_session_epoch": epoch, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
            values |= {"max_records": 1, "batch_size": 1, "forgotten_topics_data": []}
            values["topics"] = [{"topic_id": topic_id, "partitions": rows}] if names else []
            return client.call_unobserved("ShareFetch", 1, values)

        def rows(response: Any) -> Any:
            return response["error_code"], [
                (one["error_code"], bool(one["records"]))
                for row in response["responses"]
                for one in row["partitions"]
            ]

        acls.change([(GROUP, group, READ), (TOPIC, topic, READ)])
        assert fetch(0, names=True)["error_code"] == 0
        acls.change([(GROUP, group, READ)])
        without_topic = rows(fetch(1))
        acls.change([(TOPIC, topic, READ)])
        return without_topic, rows(fetch(2))

    without_topic, without_group = tried(attack)
    assert without_topic == (0, [(TOPIC_DENIED, False)])
    assert without_group == (GROUP_DENIED, [])


def test_a_member_whose_right_to_its_group_went(tried: Tried, name: str) -> None:
    topic, group, member = f"members-{name}", f"group-{name}", "AAAAAAAAAAAAAAAAAAAAAA"

    def attack(admin: Session, acls: Acls, client: Session) -> Any:
        admin.topic(topic)
        admin.wait_for_coordinator(group)

        def heartbeat(epoch: int, **joining: Any) -> Any:
            values = {"group_id": group, "member_id": member, "member_epoch": epoch, **joining}
            return client.call_unobserved("ConsumerGroupHeartbeat", 1, values)

        def commit(epoch: int) -> Any:
            row = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
            values: Fields = {"group_id": group, "member_id": member, "generation_id_or_member_epoch": epoch}
            values["topics"] = [{"name": topic, "partitions": [row]}]
            response = client.call_unobserved("OffsetCommit", 9, values)
            return [one["error_code"] for row in response["topics"] for one in row["partitions"]]

        rights = [(GROUP, group, READ), (TOPIC, topic, READ), (TOPIC, topic, DESCRIBE)]
        acls.change(rights)
        joining = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": [topic], "topic_partitions": []}
        joined = patient(lambda: heartbeat(0, **joining), lambda one: one["error_code"] in (14, 15, 16))
        assert joined["error_code"] == 0, joined
        epoch = joined["member_epoch"]
        acls.change(rights[1:])
        without_group = heartbeat(epoch), commit(epoch)
        asked = {"groups": [{"group_id": group, "topics": None}]}
        offsets = client.call_unobserved("OffsetFetch", 8, asked)["groups"][0]["error_code"]
        acls.change(rights[:1])
        without_topic = commit(epoch)
        acls.change(rights)
        heartbeat(-1)
        return without_group[0]["error_code"], without_group[1], offsets, without_topic

    assert tried(attack) == (GROUP_DENIED, [GROUP_DENIED], GROUP_DENIED, [TOPIC_DENIED])


# -- ids of topics


def test_what_the_id_of_a_topic_is_good_for_without_a_right(tried: Tried, name: str) -> None:
    """As in Kafka, an id that exists is denied, and one that does not is unknown; nothing else comes of it."""
    topic = f"by-id-{name}"

    def attack(admin: Session, acls: Acls, client: Session) -> Any:
        topic_id = admin.topic(topic)
        assert admin.produce(topic, batch(1))["error_code"] == 0
        acls.change([])
        fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        found: dict[str, list[object]] = {}
        for known, one in (("known", topic_id), ("unknown", bytes(range(16)))):
            produced = {"index": 0, "records": batch(1)}
            values: Fields = {"acks": -1, "timeout_ms": 1000, "topic_data": [{"topic_id": one}]}
            values["topic_data"][0]["partition_data"] = [produced]
            (row,) = client.call_unobserved("Produce", 13, values)["responses"][0]["partition_responses"]
            codes = [row["error_code"]]
            values = {"max_bytes": 1 << 20, "min_bytes": 0, "max_wait_ms": 0, "session_epoch": -1}
            values["topics"] = [{"topic_id": one, "partitions": [fetched]}]
            (row,) = client.call_unobserved("Fetch", 13, values)["responses"][0]["partitions"]
            codes += [row["error_code"], bool(row["records"])]
            wanted = {"topics": [{"topic_id": one, "name": None}], "allow_auto_topic_creation": False}
            (row,) = client.call_unobserved("Metadata", 12, wanted)["topics"]
            codes += [row["error_code"], row["name"], len(row["partitions"])]
            gone = {"topics": [{"topic_id": one, "name": None}], "timeout_ms": 1000}
            (row,) = client.call_unobserved("DeleteTopics", 6, gone)["responses"]
            found[known] = [*codes, row["error_code"], row["name"]]
        assert admin.produce(topic, batch(1))["base_offset"] == 1, "the denied record was written"
        return found

    found = tried(attack)
    assert found["known"][:3] == [TOPIC_DENIED, TOPIC_DENIED, False]
    assert topic not in found["known"]
    assert found["unknown"][:3] == [UNKNOWN_ID, UNKNOWN_ID, False]


# -- another's transaction


def test_another_principals_transaction_by_its_producer_id(tried: Tried, name: str) -> None:
    """Who may use a transactional id of his own, and knows the producer id and epoch of another, does not harm him."""
    topic, mine, theirs, group = f"txn-{name}", f"mine-{name}", f"theirs-{name}", f"txn-group-{name}"

    def attack(admin: Session, acls: Acls, client: Session) -> Any:
        admin.topic(topic)
        admin.wait_for_coordinator(group)

        def begin(session: Session, identifier: str) -> tuple[int, int]:
            session.call_unobserved("FindCoordinator", 3, {"key_type": 1, "key": identifier})
            wanted = {"transactional_id": identifier, "transaction_timeout_ms": 60_000}
            begun = patient(
                lambda: session.call_unobserved("InitProducerId", 4, wanted),
                lambda one: one["error_code"] in (14, 15, 16),
            )
            assert begun["error_code"] == 0, begun
            return begun["producer_id"], begun["producer_epoch"]

        def add(session: Session, identifier: str, who: tuple[int, int]) -> int:
            names = (f"v3_and_below_{name}" for name in ("transactional_id", "producer_id", "producer_epoch"))
            values: Fields = dict(zip(names, (identifier, *who), strict=True))
            values["v3_and_below_topics"] = [{"name": topic, "partitions": [0]}]
            response = session.call_unobserved("AddPartitionsToTxn", 3, values)
            (row,) = response["results_by_topic_v3_and_below"][0]["results_by_partition"]
            return int(row["partition_error_code"])

        def produce(session: Session, identifier: str | None, who: tuple[int, int], sequence: int) -> int:
            records = batch(1, attributes=TRANSACTIONAL_BATCH, producer=(*who, sequence))
            values: Fields = {"transactional_id": identifier, "acks": -1, "timeout_ms": 1000}
            values["topic_data"] = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
            response = session.call_unobserved("Produce", 9, values)
            return int(response["responses"][0]["partition_responses"][0]["error_code"])

        def end(session: Session, identifier: str, who: tuple[int, int], *, commits: bool) -> int:
            values: Fields = {"transactional_id": identifier, "producer_id": who[0], "producer_epoch": who[1]}
            return int(session.call_unobserved("EndTxn", 3, {**values, "committed": commits})["error_code"])

        acls.change([(TRANSACTIONAL_ID, mine, WRITE), (TOPIC, topic, WRITE)])
        victim = begin(admin, theirs)
        assert add(admin, theirs, victim) == 0
        assert produce(admin, theirs, victim, 0) == 0
        attacker = begin(client, mine)
        assert attacker != victim
        marker: Fields = {"producer_id": victim[0], "producer_epoch": victim[1], "transaction_result": False}
        marker |= {"coordinator_epoch": 0, "topics": [{"name": topic, "partition_indexes": [0]}]}
        found: list[object] = [
            ("AddPartitionsToTxn of theirs", add(client, theirs, victim)),
            ("AddPartitionsToTxn of mine", add(client, mine, victim)),
            ("Produce with theirs", produce(client, theirs, victim, 1)),
            ("Produce without an id", produce(client, None, victim, 1)),
            ("EndTxn of theirs", end(client, theirs, victim, commits=False)),
            ("EndTxn of mine", end(client, mine, victim, commits=False)),
        ]
        wanted = {"transactional_id": theirs, "transaction_timeout_ms": 60_000}
        found.append(("InitProducerId", client.call_unobserved("InitProducerId", 4, wanted)["error_code"]))
        written = client.call_unobserved("WriteTxnMarkers", 1, {"markers": [marker]})
        found.append(
            (
                "WriteTxnMarkers",
                [
                    row["error_code"]
                    for one in written["markers"]
                    for rows in one["topics"]
                    for row in rows["partitions"]
                ],
            )
        )
        assert end(admin, theirs, victim, commits=True) == 0, "the transaction was harmed"
        return found

    found = dict(tried(attack))
    assert found == {
        "AddPartitionsToTxn of theirs": ID_DENIED,
        "AddPartitionsToTxn of mine": INVALID_MAPPING,
        "Produce with theirs": ID_DENIED,
        "Produce without an id": ID_DENIED,
        "EndTxn of theirs": ID_DENIED,
        "EndTxn of mine": INVALID_MAPPING,
        "InitProducerId": ID_DENIED,
        "WriteTxnMarkers": [CLUSTER_DENIED],
    }
