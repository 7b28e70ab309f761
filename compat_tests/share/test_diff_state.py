"""The share coordinators of both targets take the same calls (APIs 83 to 87): they answer the same, and DumpLogSegments
prints the same records of ``__share_group_state``.
"""

from __future__ import annotations

import json
import pathlib
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from compat_tests.differential import Session
from compat_tests.oncelog_server import Oncelog
from conftest import KafkaTool
from oncelog.coordinator.share.state import DeliveryState, StateBatch
from oncelog.wire.schema import uuid_to_text
from tests.common.definitions import Fields
from tests.common.local_broker import LocalBroker
from tests.common.real_kafka import RealKafka
from tests.common.recorded.recorder import Recorder

PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
STATE_TOPIC = "__share_group_state"
PARTITIONS = 2
CALLS = 400
RETRIED = (14, 15, 16)


class Call(NamedTuple):
    name: str
    group: str
    topic: str
    partition: int
    args: dict[str, Any]


STORED = [state for state in DeliveryState if state is not DeliveryState.ACQUIRED]


def random_calls(seed: int) -> Iterator[Call]:
    """Calls of all kinds, most of which succeed."""
    rng = random.Random(seed)
    for _ in range(CALLS):
        name = rng.choices(("Initialize", "Read", "Write", "Delete", "Summary"), weights=(12, 15, 60, 3, 10))[
            0
        ]
        topic = rng.choices(("t", "none"), weights=(20, 1))[0]
        partition = rng.choices((0, 1, 2, -1), weights=(30, 30, 1, 1))[0]
        epoch = rng.choices((-1, 0, 1, 2), weights=(5, 1, 2, 4))[0]
        leader_epoch = rng.choices((-1, 0, 1, 2, 3), weights=(4, 1, 2, 4, 4))[0]
        start = rng.choice((-1, rng.randrange(30)))
        batches = []
        for _ in range(rng.randrange(4)):
            first = rng.randrange(40)
            last, state = first + rng.randrange(9), rng.choice(STORED)
            batches.append(StateBatch(first, last, int(state), rng.randrange(1, 4)))
        all_args: dict[str, dict[str, Any]] = {
            "Initialize": {"state_epoch": epoch, "start_offset": start},
            "Read": {"leader_epoch": leader_epoch},
            "Write": {
                "state_epoch": epoch,
                "leader_epoch": leader_epoch,
                "start_offset": start,
                "delivery_complete_count": rng.randrange(9),
                "batches": batches,
            },
            "Delete": {},
            "Summary": {"leader_epoch": leader_epoch},
        }
        yield Call(name, rng.choice(("q", "r:1")), topic, partition, all_args[name])


def joined(batches: list[Any]) -> list[Any]:
    """Batches with neighbours of one state joined: Kafka leaves some for the next write."""
    found: list[list[int]] = []
    for first, last, state, count in batches:
        if found and found[-1][1] + 1 == first and found[-1][2:] == [state, count]:
            found[-1][1] = last
        else:
            found.append([first, last, state, count])
    return found


class Target:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.topic_ids = {"t": session.topic("t", PARTITIONS), "none": bytes(range(16))}

    def call(self, call: Call) -> Any:
        name = "ReadShareGroupStateSummary" if call.name == "Summary" else f"{call.name}ShareGroupState"
        fields: Fields = {"partition": call.partition, **call.args}
        if "batches" in fields:
            rows = fields.pop("batches")
            fields["state_batches"] = [dict(row._asdict()) for row in rows]
        topic_id = self.topic_ids[call.topic]
        key = {
            "key_type": 2,
            "coordinator_keys": [f"{call.group}:{uuid_to_text(topic_id)}:{max(call.partition, 0)}"],
        }
        values = {"group_id": call.group, "topics": [{"topic_id": topic_id, "partitions": [fields]}]}
        version = 1 if name in ("WriteShareGroupState", "ReadShareGroupStateSummary") else 0
        while True:
            self.session.call_unobserved("FindCoordinator", 6, key)  # creates the topic
            [topic] = self.session.call_unobserved(name, version, values)["results"]
            [row] = topic["partitions"]
            if row["error_code"] not in RETRIED:
                break
        if row["error_code"]:
            return row["error_code"], row["error_message"]
        if call.name == "Read":
            batches = [tuple(batch.values())[:4] for batch in row["state_batches"]]
            return row["state_epoch"], row["start_offset"], joined(batches)
        if call.name == "Summary":
            names = ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
            return tuple(row[name] for name in names)
        return 0


def answered(broker: LocalBroker) -> tuple[list[Any], str]:
    """The answers to the calls, and the text of the topic's id. The broker has stopped then."""
    with broker:
        with closing(Session(broker.bootstrap)) as session:  # type: ignore[attr-defined]
            target = Target(session)
            found = [(call, target.call(call)) for call in random_calls(1)]
            empty = [
                session.call_unobserved("ReadShareGroupState", 0, {"group_id": group, "topics": topics})
                for group, topics in (("", [topic_of(target, [0])]), ("q", []), ("q", [topic_of(target, [])]))
            ]
            assert [response["results"] for response in empty] == [[], [], []]
        broker.stop()
    return found, uuid_to_text(target.topic_ids["t"])


def topic_of(target: Target, partitions: list[int]) -> Fields:
    rows = [{"partition": partition, "leader_epoch": 0} for partition in partitions]
    return {"topic_id": target.topic_ids["t"], "partitions": rows}


def dumped(kafka_tool: KafkaTool, data_dir: pathlib.Path, topic_id: str) -> list[Any]:
    """Every record of the topic as DumpLogSegments prints it, without times and ids."""
    files = ",".join(str(path) for path in sorted(data_dir.glob(f"{STATE_TOPIC}-0/*.log")))
    tool = "org.apache.kafka.tools.DumpLogSegments"
    out = kafka_tool(tool, "--share-group-state-decoder", "--files", files).stdout
    assert "isvalid: false" not in out
    found = []
    for line in out.splitlines():
        _, is_record, rest = line.partition(" key: ")
        if is_record:
            key, _, payload = rest.replace(topic_id, "TOPIC").partition(" payload: ")
            value = json.loads(payload) if payload.startswith("{") else payload
            if isinstance(value, dict):
                data = value["data"]
                for name in ("createTimestamp", "writeTimestamp"):
                    assert data.pop(name, 1) > 0
                data["stateBatches"] = joined([tuple(row.values()) for row in data["stateBatches"]])
            found.append((json.loads(key), value))
    return found


def test_both_answer_and_store_the_same(
    answers: Recorder, tmp_path: pathlib.Path, kafka_tool: KafkaTool
) -> None:
    def observe(target: str) -> tuple[list[Any], list[Any]]:
        make = RealKafka if target == "kafka" else Oncelog
        found, topic_id = answered(make(PROPERTIES, tmp_path / target))
        return [(str(call), answer) for call, answer in found], dumped(
            kafka_tool, tmp_path / target, topic_id
        )

    both = answers.both(observe)
    (kafkas, expected), (ours, found) = both["kafka"], both["oncelog"]
    for (call, theirs), (_, our) in zip(kafkas, ours, strict=True):
        assert our == theirs, call
    codes = {answer[0] for _, answer in ours if isinstance(answer, tuple) and len(answer) == 2}
    assert codes >= {3, 42, 74, 124}
    assert found == expected
    assert {key["type"] for key, _ in found} == {"0", "1"}
