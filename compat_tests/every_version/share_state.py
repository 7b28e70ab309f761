"""The share coordinator's state of share partitions (APIs 83 to 87)."""

from __future__ import annotations

from compat_tests.every_version.turn import NO_SUCH_ID, Case, Cases, Turn
from oncelog.wire.schema import uuid_to_text
from tests.common.definitions import Fields

SHARE_KEY, COORDINATOR_KEYS = 2, 6


def _of_partition(turn: Turn, topic_id: bytes, fields: Fields) -> Fields:
    topic: Fields = {"topic_id": topic_id, "partitions": [{"partition": 0, **fields}]}
    return {"group_id": turn.name, "topics": [topic]}


def _case(fields: Fields) -> Case:
    """Return a case that asks about an initialized share partition, one of an unknown topic, and none.

    fields: of the partition in the request.
    """

    def case(turn: Turn) -> None:
        topic_id = turn.topic()
        key = f"{turn.name}:{uuid_to_text(topic_id)}:0"
        turn.prepare("FindCoordinator", COORDINATOR_KEYS, {"key_type": SHARE_KEY, "coordinator_keys": [key]})
        initial = _of_partition(turn, topic_id, {"state_epoch": 1, "start_offset": 0})
        turn.prepare("InitializeShareGroupState", 0, initial)
        turn.ask(_of_partition(turn, topic_id, fields))
        turn.ask(_of_partition(turn, NO_SUCH_ID, fields), note="unknown topic")
        turn.ask({"group_id": "", "topics": []}, note="no group")

    return case


BATCH = {"first_offset": 0, "last_offset": 4, "delivery_state": 2, "delivery_count": 1}
SHARE_STATE_CASES: Cases = {
    "InitializeShareGroupState": _case({"state_epoch": 2, "start_offset": 3}),
    "ReadShareGroupState": _case({"leader_epoch": 0}),
    "WriteShareGroupState": _case(
        {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "state_batches": [BATCH]}
    ),
    "DeleteShareGroupState": _case({}),
    "ReadShareGroupStateSummary": _case({"leader_epoch": 0}),
}
