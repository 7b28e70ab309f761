"""Groups of all kinds, and their offsets."""

from __future__ import annotations

from compat_tests.every_version.turn import NO_SUCH_ID, Cases, Turn, ordered, wait_until
from compat_tests.group_requests.committed_offsets import commit_body, fetch_body
from compat_tests.share.readers import Reader, share_topic
from tests.common.batches import batch
from tests.common.definitions import Fields

COORDINATOR_KEYS, OFFSETS_BY_ID, MEMBER_EPOCH = 4, 10, 9
MEMBER_ID_REQUIRED = 79
MEMBER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def find_coordinator(turn: Turn) -> None:
    for kind in (0, 1, 2, 9):
        if turn.version >= COORDINATOR_KEYS:
            turn.ask({"key_type": kind, "coordinator_keys": [turn.name, turn.missing]})
        else:
            turn.ask({"key_type": kind, "key": turn.name})


def _joined(turn: Turn) -> tuple[str, int]:
    """A classic group with one member, which leads it; the member's id and the generation."""
    joined = turn.prepare("JoinGroup", 3, _join(turn))
    return joined["member_id"], joined["generation_id"]


def _join(turn: Turn, **fields: object) -> Fields:
    body: Fields = {"group_id": turn.name, "session_timeout_ms": 30000, "rebalance_timeout_ms": 30000}
    body |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0"}]}
    return body | fields


def _stable(turn: Turn) -> tuple[str, int]:
    member_id, generation = _joined(turn)
    assignments = [{"member_id": member_id, "assignment": b"\0\0\0\0\0\0"}]
    turn.prepare("SyncGroup", 3, _as_member(turn, member_id, generation, assignments=assignments))
    return member_id, generation


def _as_member(turn: Turn, member_id: str, generation: int, **fields: object) -> Fields:
    return {"group_id": turn.name, "member_id": member_id, "generation_id": generation, **fields}


def join_group(turn: Turn) -> None:
    response = turn.ask(_join(turn))
    if response["error_code"] == MEMBER_ID_REQUIRED:
        turn.ask(_join(turn, member_id=response["member_id"]))
    turn.ask(_join(turn, session_timeout_ms=1))
    turn.ask(_join(turn, group_id=""))
    turn.ask(_join(turn, protocols=[{"name": "other", "metadata": b""}]))


def sync_group(turn: Turn) -> None:
    member_id, generation = _joined(turn)
    named: Fields = {"protocol_type": "consumer", "protocol_name": "range"}
    assignments = [{"member_id": member_id, "assignment": b"mine"}]
    turn.ask(_as_member(turn, member_id, generation + 1) | named)
    turn.ask(_as_member(turn, "nobody", generation) | named)
    turn.ask(_as_member(turn, member_id, generation, assignments=assignments) | named)


def heartbeat(turn: Turn) -> None:
    member_id, generation = _stable(turn)
    turn.ask(_as_member(turn, member_id, generation))
    turn.ask(_as_member(turn, member_id, generation + 1))
    turn.ask(_as_member(turn, "nobody", generation))


def leave_group(turn: Turn) -> None:
    member_id, _ = _stable(turn)
    for one in ("nobody", member_id):
        turn.ask({"group_id": turn.name, "member_id": one, "members": [{"member_id": one}]})


def offset_commit(turn: Turn) -> None:
    topic_id = turn.topic()
    by_id = turn.version >= OFFSETS_BY_ID
    known: str | bytes = topic_id if by_id else turn.name
    unknown: str | bytes = NO_SUCH_ID if by_id else turn.missing
    for topic, partition in ((known, 0), (known, 9), (unknown, 0)):
        turn.ask(commit_body(turn.version, turn.name, {topic: {partition: (1, 0, "text")}}))
    turn.ask(commit_body(turn.version, turn.name, {known: {0: 1}}, 7, member_id="nobody"))
    turn.ask(commit_body(turn.version, turn.name, {known: {0: (1, -1, "x" * 5000)}}))


def offset_fetch(turn: Turn) -> None:
    topic_id = turn.topic()
    turn.prepare("OffsetCommit", 8, commit_body(8, turn.name, {turn.name: {0: (1, 0, "text")}}))
    by_id = turn.version >= OFFSETS_BY_ID
    known: str | bytes = topic_id if by_id else turn.name
    unknown: str | bytes = NO_SUCH_ID if by_id else turn.missing
    for topic, partition in ((known, 0), (known, 9), (unknown, 0)):
        turn.ask(fetch_body(turn.version, (turn.name, {topic: [partition]})))
        turn.ask(fetch_body(turn.version, (turn.missing, {topic: [partition]})))
    if turn.version >= 2:
        turn.ask(fetch_body(turn.version, (turn.name, None)))
    if turn.version >= MEMBER_EPOCH:
        group = _consumer_member(turn, f"{turn.name}-consumer")["group_id"]
        stranger = {"group_id": group, "member_id": "nobody", "member_epoch": 7, "topics": None}
        turn.ask({"groups": [stranger]})


def offset_delete(turn: Turn) -> None:
    turn.topic()
    turn.prepare("OffsetCommit", 8, commit_body(8, turn.name, {turn.name: {0: 1}}))
    for group, topic in ((turn.name, turn.name), (turn.name, turn.missing), (turn.missing, turn.name)):
        rows = [{"partition_index": 0}]
        turn.ask({"group_id": group, "topics": [{"name": topic, "partitions": rows}]})


def describe_groups(turn: Turn) -> None:
    _stable(turn)
    for group in (turn.name, turn.missing):
        turn.ask({"groups": [group], "include_authorized_operations": True})
    member = _consumer_member(turn, f"{turn.name}-consumer")
    turn.ask({"groups": [member["group_id"]]})


def list_groups(turn: Turn) -> None:
    """Other turns have groups, too."""
    _stable(turn)
    _consumer_member(turn, f"{turn.name}-consumer")
    response = turn.ask_unobserved({})
    mine = [row for row in response["groups"] if row["group_id"].startswith(turn.name)]
    turn.observe(ordered({**response, "groups": mine}, "group_id"))
    if turn.version >= 4:
        turn.ask({"states_filter": ["nonsense"]})


def delete_groups(turn: Turn) -> None:
    turn.session.exact_error_messages = True
    turn.topic()
    turn.prepare("OffsetCommit", 8, commit_body(8, f"{turn.name}-empty", {turn.name: {0: 1}}))
    _stable(turn)
    for group in (f"{turn.name}-empty", turn.name, turn.missing):
        turn.ask({"groups_names": [group]})


def _consumer_member(turn: Turn, group: str) -> Fields:
    """The first heartbeat of a member of a consumer group, after it was sent."""
    body: Fields = {"group_id": group, "member_id": MEMBER_ID, "member_epoch": 0, "topic_partitions": []}
    body |= {"rebalance_timeout_ms": 30000, "subscribed_topic_names": [turn.missing]}
    turn.prepare("ConsumerGroupHeartbeat", 1, body)
    return body


def consumer_group_heartbeat(turn: Turn) -> None:
    body: Fields = {"group_id": turn.name, "member_id": MEMBER_ID, "member_epoch": 0, "topic_partitions": []}
    body |= {"rebalance_timeout_ms": 30000, "subscribed_topic_names": [turn.missing]}
    joined = turn.ask(body)
    turn.ask({"group_id": turn.name, "member_id": MEMBER_ID, "member_epoch": joined["member_epoch"]})
    turn.ask({"group_id": turn.name, "member_id": MEMBER_ID, "member_epoch": 77})
    turn.ask({"group_id": turn.name, "member_id": "nobody", "member_epoch": 1})
    turn.ask({**body, "group_id": ""})
    turn.ask({**body, "server_assignor": "nonsense"})
    turn.ask({**body, "member_epoch": -1})


def consumer_group_describe(turn: Turn) -> None:
    _consumer_member(turn, turn.name)
    classic = f"{turn.name}-classic"
    turn.prepare("JoinGroup", 3, _join(turn, group_id=classic))
    for group in (turn.name, turn.missing, classic, ""):
        turn.ask({"group_ids": [group], "include_authorized_operations": True})


def share_group_heartbeat(turn: Turn) -> None:
    body: Fields = {"group_id": turn.name, "member_id": MEMBER_ID, "member_epoch": 0}
    body |= {"subscribed_topic_names": [turn.missing]}
    turn.ask(body)
    turn.ask({**body, "member_epoch": 77})
    turn.ask({**body, "member_id": "nobody", "member_epoch": 1})
    turn.ask({**body, "group_id": ""})
    turn.ask({**body, "member_epoch": -1})


def share_group_describe(turn: Turn) -> None:
    body: Fields = {"group_id": turn.name, "member_id": MEMBER_ID, "member_epoch": 0}
    turn.prepare("ShareGroupHeartbeat", 1, {**body, "subscribed_topic_names": [turn.missing]})
    for group in (turn.name, turn.missing, ""):
        turn.ask({"group_ids": [group], "include_authorized_operations": True})


def _share_reader(turn: Turn) -> Reader:
    """A member with a share session, which has acquired the two records of a topic."""
    reader = Reader(turn.session, share_topic(turn.session, turn.name, 2), MEMBER_ID, turn.name)
    reader.begin()
    return reader


def _on_its_connection(turn: Turn, reader: Reader, body: Fields, note: str = "") -> None:
    response = reader.connection.call(turn.api, turn.version, body)
    turn.note_outcome(response)
    turn.observe(response, note)


def share_fetch(turn: Turn) -> None:
    reader = _share_reader(turn)
    _on_its_connection(turn, reader, reader.body((0, 0, [1])))
    reader.epoch += 1
    _on_its_connection(turn, reader, reader.body((1, 9, [1])))
    reader.epoch += 1
    _on_its_connection(turn, reader, {**reader.body(), "share_session_epoch": 77})
    _on_its_connection(turn, reader, {**reader.body(), "group_id": ""})
    _on_its_connection(turn, reader, {**reader.body(), "member_id": None})


def share_acknowledge(turn: Turn) -> None:
    reader = _share_reader(turn)

    def body(first: int, last: int, topic_id: bytes = reader.topic_id) -> Fields:
        batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": [1]}]
        rows = [{"partition_index": 0, "acknowledgement_batches": batches}]
        asked: Fields = {"group_id": turn.name, "member_id": MEMBER_ID, "share_session_epoch": reader.epoch}
        reader.epoch += 1
        return {**asked, "topics": [{"topic_id": topic_id, "partitions": rows}]}

    _on_its_connection(turn, reader, body(0, 0))
    _on_its_connection(turn, reader, body(0, 9))
    _on_its_connection(turn, reader, {**body(1, 1), "share_session_epoch": 77})
    reader.epoch -= 1
    _on_its_connection(turn, reader, body(1, 1, NO_SUCH_ID), "unknown topic")


def _share_offsets(turn: Turn) -> None:
    """An empty share group with an offset."""
    turn.topic()
    turn.session.produce(turn.name, batch(3))
    rows = [{"partition_index": 0, "start_offset": 1}]
    values = {"group_id": turn.name, "topics": [{"topic_name": turn.name, "partitions": rows}]}
    # A Kafka's group coordinator knows a new topic later than the partition's leader does.
    wait_until(turn.session, "AlterShareGroupOffsets", 0, values, lambda codes: codes == {0})


def describe_share_group_offsets(turn: Turn) -> None:
    _share_offsets(turn)
    for group in (turn.name, turn.missing, ""):
        note = "" if group else "no name"
        for topic in (turn.name, turn.missing):
            topics = [{"topic_name": topic, "partitions": [0]}]
            turn.ask({"groups": [{"group_id": group, "topics": topics}]}, note=note)
        turn.ask({"groups": [{"group_id": group, "topics": None}]})


def alter_share_group_offsets(turn: Turn) -> None:
    _share_offsets(turn)
    for topic, partition in ((turn.name, 0), (turn.name, 9), (turn.missing, 0)):
        rows = [{"partition_index": partition, "start_offset": 2}]
        turn.ask({"group_id": turn.name, "topics": [{"topic_name": topic, "partitions": rows}]})


def delete_share_group_offsets(turn: Turn) -> None:
    _share_offsets(turn)
    for group in (turn.name, turn.missing):
        for topic in (turn.missing, turn.name):
            turn.ask({"group_id": group, "topics": [{"topic_name": topic}]})


GROUP_CASES: Cases = {
    "FindCoordinator": find_coordinator,
    "JoinGroup": join_group,
    "SyncGroup": sync_group,
    "Heartbeat": heartbeat,
    "LeaveGroup": leave_group,
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "OffsetDelete": offset_delete,
    "DescribeGroups": describe_groups,
    "ListGroups": list_groups,
    "DeleteGroups": delete_groups,
    "ConsumerGroupHeartbeat": consumer_group_heartbeat,
    "ConsumerGroupDescribe": consumer_group_describe,
    "ShareGroupHeartbeat": share_group_heartbeat,
    "ShareGroupDescribe": share_group_describe,
    "ShareFetch": share_fetch,
    "ShareAcknowledge": share_acknowledge,
    "DescribeShareGroupOffsets": describe_share_group_offsets,
    "AlterShareGroupOffsets": alter_share_group_offsets,
    "DeleteShareGroupOffsets": delete_share_group_offsets,
}
