"""Records, offsets and topics."""

from __future__ import annotations

from compat_tests.every_version.turn import NO_SUCH_ID, Cases, Turn, ordered
from tests.common.batches import batch, record
from tests.common.definitions import Fields

PRODUCE_BY_ID, FETCH_BY_ID, METADATA_BY_ID, DELETE_BY_ID = 13, 13, 12, 6


def produce(turn: Turn) -> None:
    topic_id = turn.topic(cleanup_policy="compact")
    keyed, keyless = batch([record(b"k")]), batch([record(b"k"), record(None, offset_delta=1)])
    damaged = bytearray(keyed)
    damaged[-1] ^= 1
    for data in (keyed, keyless, bytes(damaged), b""):
        turn.ask(_produced(turn, turn.name, topic_id, data))
    turn.ask(_produced(turn, turn.missing, NO_SUCH_ID, keyed))
    turn.ask(_produced(turn, turn.name, topic_id, keyed) | {"acks": 7})


def _produced(turn: Turn, name: str, topic_id: bytes, data: bytes) -> Fields:
    key = {"topic_id": topic_id} if turn.version >= PRODUCE_BY_ID else {"name": name}
    rows = [{**key, "partition_data": [{"index": 0, "records": data}]}]
    return {"acks": -1, "timeout_ms": 15000, "topic_data": rows}


def fetch(turn: Turn) -> None:
    topic_id = turn.topic(2, records=2)

    def asked(*rows: Fields, known: bool = True, **fields: object) -> Fields:
        by_id = {"topic_id": topic_id if known else NO_SUCH_ID}
        key = by_id if turn.version >= FETCH_BY_ID else {"topic": turn.name if known else turn.missing}
        partitions = [{"partition_max_bytes": 1 << 20, "fetch_offset": 0, **row} for row in rows]
        topics = [{**key, "partitions": partitions}] if rows else []
        return {"min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": topics, **fields}

    good: Fields = {"partition": 0}
    turn.ask(asked(good, {"partition": 1}))
    turn.ask(asked({"partition": 0, "fetch_offset": 2}))
    turn.ask(asked({"partition": 0, "fetch_offset": 99}))
    turn.ask(asked({"partition": 9}))
    turn.ask(asked(good, known=False))
    turn.ask(asked({**good, "current_leader_epoch": 7}))
    turn.ask(asked({**good, "fetch_offset": 1, "last_fetched_epoch": 0}))
    turn.ask(asked(good, session_id=77, session_epoch=1))
    turn.ask(asked(good, session_epoch=0))


def list_offsets(turn: Turn) -> None:
    turn.topic(records=2)

    def asked(name: str, timestamp: int, partition: int = 0) -> Fields:
        rows = [{"partition_index": partition, "timestamp": timestamp}]
        return {"replica_id": -1, "topics": [{"name": name, "partitions": rows}]}

    for timestamp in (-1, -2, -3, -4, -9, 0, 1 << 60):
        turn.ask(asked(turn.name, timestamp))
    turn.ask(asked(turn.name, -1, 9))
    turn.ask(asked(turn.missing, -1))


def offset_for_leader_epoch(turn: Turn) -> None:
    turn.topic(records=1)
    for name, partition, current, epoch in (
        (turn.name, 0, -1, 0),
        (turn.name, 0, -1, 7),
        (turn.name, 0, 7, 0),
        (turn.name, 9, -1, 0),
        (turn.missing, 0, -1, 0),
    ):
        row = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        turn.ask({"topics": [{"topic": name, "partitions": [row]}]})


def delete_records(turn: Turn) -> None:
    turn.topic(records=2)
    for name, offset in ((turn.name, 1), (turn.name, 99), (turn.name, -1), (turn.missing, 0)):
        rows = [{"partition_index": 0, "offset": offset}]
        turn.ask({"topics": [{"name": name, "partitions": rows}], "timeout_ms": 15000})


def describe_producers(turn: Turn) -> None:
    turn.topic()
    assert turn.session.produce(turn.name, batch(1, producer=(77, 0, 0)))["error_code"] == 0
    for name, partition in ((turn.name, 0), (turn.name, 9), (turn.missing, 0)):
        turn.ask({"topics": [{"name": name, "partition_indexes": [partition]}]})


def metadata(turn: Turn) -> None:
    topic_id = turn.topic(2)
    asked: Fields = {
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    turn.ask({**asked, "topics": [{"name": turn.name}]})
    turn.ask({**asked, "topics": [{"name": "a b"}]})
    if turn.version >= METADATA_BY_ID:
        for one in (topic_id, NO_SUCH_ID):
            turn.ask({**asked, "topics": [{"name": None, "topic_id": one}]})


def describe_topic_partitions(turn: Turn) -> None:
    turn.topic(3)
    asked: Fields = {"topics": [{"name": turn.name}, {"name": turn.missing}]}
    for limit in (2, 100):
        turn.ask({**asked, "response_partition_limit": limit})
    cursor = {"topic_name": turn.name, "partition_index": 1}
    turn.ask({**asked, "response_partition_limit": 100, "cursor": cursor})
    turn.ask({**asked, "response_partition_limit": 100, "cursor": {**cursor, "partition_index": -1}})


def create_topics(turn: Turn) -> None:
    turn.topic()

    def asked(name: str, **fields: object) -> Fields:
        row = {"name": name, "num_partitions": 2, "replication_factor": 1, **fields}
        return {"topics": [row], "timeout_ms": 15000}

    config = {"name": "retention.ms", "value": "5000"}
    turn.ask({**asked(f"{turn.name}-new", configs=[config]), "validate_only": True})
    turn.ask(asked(f"{turn.name}-new", configs=[config]))
    turn.ask(asked(turn.name))
    turn.ask(asked("a b"))
    turn.ask(asked(f"{turn.name}-wide", replication_factor=2))
    turn.ask(asked(f"{turn.name}-odd", configs=[{"name": "nonsense", "value": None}]))


def delete_topics(turn: Turn) -> None:
    topic_id = turn.topic()
    names = [turn.missing] if turn.version >= DELETE_BY_ID else [turn.missing, turn.name]
    for name in names:
        topics = [{"name": name}]
        turn.ask({"topics": topics, "topic_names": [name], "timeout_ms": 15000})
    if turn.version >= DELETE_BY_ID:
        for one in (NO_SUCH_ID, topic_id):
            turn.ask({"topics": [{"name": None, "topic_id": one}], "timeout_ms": 15000})
        turn.ask({"topics": [{"name": None}], "timeout_ms": 15000})


def create_partitions(turn: Turn) -> None:
    turn.topic()
    rows = [
        {"name": turn.name, "count": 2},
        {"name": turn.name, "count": 1},
        {"name": turn.name, "count": 3, "assignments": [{"broker_ids": [7]}]},
        {"name": turn.missing, "count": 2},
    ]
    for row in rows:
        turn.ask({"topics": [{"assignments": None, **row}], "timeout_ms": 15000})


def describe_log_dirs(turn: Turn) -> None:
    """Where the data is, and how much room there is, belongs to the target."""
    turn.topic(records=1)
    for name in (turn.name, turn.missing):
        response = turn.ask_unobserved({"topics": [{"topic": name, "partitions": [0]}]})
        for row in response["results"]:
            row["log_dir"] = bool(row["log_dir"])
            row |= {key: row[key] > 0 for key in ("total_bytes", "usable_bytes") if key in row}
        turn.observe(response)


def alter_replica_log_dirs(turn: Turn) -> None:
    turn.topic(records=1)
    described = turn.prepare("DescribeLogDirs", 4, {"topics": None})
    for path in (described["results"][0]["log_dir"], "/none"):
        for name in (turn.name, turn.missing):
            turn.ask({"dirs": [{"path": path, "topics": [{"name": name, "partitions": [0]}]}]})


def elect_leaders(turn: Turn) -> None:
    turn.topic()
    for kind in (0, 1):
        partitions = [{"topic": name, "partitions": [0]} for name in (turn.name, turn.missing)]
        response = turn.ask_unobserved(
            {"election_type": kind, "topic_partitions": partitions, "timeout_ms": 15000}
        )
        turn.observe(ordered(response, "topic"))


def alter_partition_reassignments(turn: Turn) -> None:
    turn.topic()
    for name, replicas in ((turn.name, [1]), (turn.name, [7]), (turn.name, None), (turn.missing, [1])):
        rows = [{"partition_index": 0, "replicas": replicas}]
        turn.ask({"topics": [{"name": name, "partitions": rows}], "timeout_ms": 15000})


def list_partition_reassignments(turn: Turn) -> None:
    turn.topic()
    for name in (turn.name, turn.missing):
        turn.ask({"topics": [{"name": name, "partition_indexes": [0]}], "timeout_ms": 15000})


RECORD_CASES: Cases = {
    "Produce": produce,
    "Fetch": fetch,
    "ListOffsets": list_offsets,
    "OffsetForLeaderEpoch": offset_for_leader_epoch,
    "DeleteRecords": delete_records,
    "DescribeProducers": describe_producers,
    "Metadata": metadata,
    "DescribeTopicPartitions": describe_topic_partitions,
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "CreatePartitions": create_partitions,
    "DescribeLogDirs": describe_log_dirs,
    "AlterReplicaLogDirs": alter_replica_log_dirs,
    "ElectLeaders": elect_leaders,
    "AlterPartitionReassignments": alter_partition_reassignments,
    "ListPartitionReassignments": list_partition_reassignments,
}
