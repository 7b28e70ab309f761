"""Transactions."""

from __future__ import annotations

from compat_tests.every_version.turn import NO_SUCH_ID, Cases, Turn, ordered
from tests.common.definitions import Fields

BY_BROKERS = 4
"""The first version of AddPartitionsToTxn with several transactions."""
VERIFIED_BY_EPOCH = 5
"""From this version on EndTxn and TxnOffsetCommit belong to transactions v2."""
BY_ID = 6
"""From this version on TxnOffsetCommit names topics by id."""


def init_producer_id(turn: Turn) -> None:
    turn.prepare("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": [turn.name]})
    body: Fields = {"transactional_id": turn.name, "transaction_timeout_ms": 60000}
    turn.ask(body)
    turn.ask({**body, "transactional_id": None})
    turn.ask({**body, "transaction_timeout_ms": 0})
    turn.ask({**body, "transactional_id": ""})


def _producer(turn: Turn, *, added: bool = False) -> Fields:
    """A producer with a transactional id; its id and epoch. ``added``: its transaction has the topic's partition."""
    turn.topic()
    turn.prepare("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": [turn.name]})
    asked = {"transactional_id": turn.name, "transaction_timeout_ms": 60000}
    made = turn.prepare("InitProducerId", 4, asked)
    producer = {key: made[key] for key in ("producer_id", "producer_epoch")}
    if added:
        turn.prepare("AddPartitionsToTxn", 3, _added(turn, producer, turn.name))
    return producer


def _added(turn: Turn, producer: Fields, topic: str) -> Fields:
    rows = [{"name": topic, "partitions": [0]}]
    body: Fields = {"v3_and_below_transactional_id": turn.name, "v3_and_below_topics": rows}
    return body | {f"v3_and_below_{key}": value for key, value in producer.items()}


def add_partitions_to_txn(turn: Turn) -> None:
    producer = _producer(turn)
    wrong = {**producer, "producer_epoch": 77}
    for who, topic in ((producer, turn.name), (producer, turn.missing), (wrong, turn.name)):
        if turn.version < BY_BROKERS:
            turn.ask(_added(turn, who, topic))
        else:
            rows = [{"name": topic, "partitions": [0]}]
            turn.ask({"transactions": [{"transactional_id": turn.name, **who, "topics": rows}]})


def add_offsets_to_txn(turn: Turn) -> None:
    producer = _producer(turn)
    turn.prepare("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [turn.name]})
    for who in (producer, {**producer, "producer_epoch": 77}, {**producer, "producer_id": 1 << 40}):
        turn.ask({"transactional_id": turn.name, "group_id": turn.name, **who})


def txn_offset_commit(turn: Turn) -> None:
    producer = _producer(turn)
    here: Fields = {"name": turn.name}
    missing: Fields = {"name": turn.missing}
    if turn.version >= BY_ID:
        (row,) = turn.prepare("Metadata", 12, {"topics": [here]})["topics"]
        here, missing = {"topic_id": row["topic_id"]}, {"topic_id": NO_SUCH_ID}
    turn.prepare("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [turn.name]})
    turn.prepare("OffsetFetch", 8, {"groups": [{"group_id": turn.name, "topics": None}]})
    if turn.version < VERIFIED_BY_EPOCH:
        body = {"transactional_id": turn.name, "group_id": turn.name, **producer}
        turn.prepare("AddOffsetsToTxn", 3, body)
    for topic, fields in (
        (here, {}),
        (missing, {}),
        (here, {"generation_id_or_member_epoch": 7, "member_id": "nobody"}),
    ):
        rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "text"}]
        body = {"transactional_id": turn.name, "group_id": turn.name, **producer}
        topics = [{**topic, "partitions": rows}]
        turn.ask({**body, "generation_id_or_member_epoch": -1, "topics": topics, **fields})


def end_txn(turn: Turn) -> None:
    producer = _producer(turn, added=True)
    for who in ({**producer, "producer_epoch": 77}, producer, {**producer, "producer_id": 1 << 40}):
        turn.ask({"transactional_id": turn.name, "committed": True, **who})


def write_txn_markers(turn: Turn) -> None:
    producer = _producer(turn, added=True)
    for topic in (turn.name, turn.missing):
        marker: Fields = {**producer, "transaction_result": False, "coordinator_epoch": 0}
        turn.ask({"markers": [{**marker, "topics": [{"name": topic, "partition_indexes": [0]}]}]})


def describe_transactions(turn: Turn) -> None:
    _producer(turn, added=True)
    for one in (turn.name, turn.missing):
        turn.ask({"transactional_ids": [one]})


def list_transactions(turn: Turn) -> None:
    """Other turns have transactional ids, too."""
    _producer(turn, added=True)
    response = turn.ask_unobserved({"duration_filter": -1})
    mine = [row for row in response["transaction_states"] if row["transactional_id"] == turn.name]
    turn.observe({**response, "transaction_states": mine})
    turn.observe(
        ordered(turn.ask_unobserved({"state_filters": ["nonsense", "Dead"]}), "transactional_id"), "states"
    )
    if turn.version >= 2:
        turn.ask({"transactional_id_pattern": "("})


TRANSACTION_CASES: Cases = {
    "InitProducerId": init_producer_id,
    "AddPartitionsToTxn": add_partitions_to_txn,
    "AddOffsetsToTxn": add_offsets_to_txn,
    "TxnOffsetCommit": txn_offset_commit,
    "EndTxn": end_txn,
    "WriteTxnMarkers": write_txn_markers,
    "DescribeTransactions": describe_transactions,
    "ListTransactions": list_transactions,
}
