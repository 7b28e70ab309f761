"""Classic members that are consumers: their subscriptions and assignments have Kafka's formats."""

import struct
from typing import Any

from compat_tests.differential import Session
from compat_tests.group_requests.consumer_members import Topics
from oncelog.wire.stored.consumer_protocol import ConsumerProtocolAssignment
from tests.common.definitions import Fields

SESSION_MS, REBALANCE_MS = 45_000, 60_000
ASSIGNMENT_BYTES_MIN = 10
"""A version, no topics, no user data."""


def subscription(topics: list[str], owned: dict[str, list[int]] | None = None, generation: int = -1) -> bytes:
    """A ConsumerProtocolSubscription of version 3, encoded by hand."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    parts = [struct.pack(">hi", 3, len(topics)), *map(text, topics), struct.pack(">i", -1)]
    parts.append(struct.pack(">i", len(owned or {})))
    for name, numbers in (owned or {}).items():
        parts += [text(name), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    parts += [struct.pack(">i", generation), struct.pack(">h", -1)]
    return b"".join(parts)


def decode_assignment(data: bytes) -> Any:
    """A ConsumerProtocolAssignment as [version, partitions by topic, user data]; shorter data unchanged."""
    if len(data) < ASSIGNMENT_BYTES_MIN:
        return data
    assignment = ConsumerProtocolAssignment.decode(data, 0, 2)
    rows = {row.topic: sorted(row.partitions) for row in assignment.assigned_partitions}
    return [data[:2], dict(sorted(rows.items())), assignment.user_data]


class ClassicConsumer:
    """A classic member with the cooperative protocol: it keeps its partitions while it joins again."""

    def __init__(
        self, topics: Topics, group: str, name: str, names: list[str], instance: str | None = None
    ) -> None:
        self.session = topics.session
        self.group = group
        self.name = name
        self.names = names
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, list[int]] = {}

    def _observe(self, note: str, response: Any) -> Any:
        shown = dict(response)
        for field in ("member_id", "leader"):
            if shown.get(field):
                shown[field] = "a member id"
        for row in shown.get("members", ()):
            row["member_id"] = "a member id"
            if "metadata" in row:
                row["metadata"] = len(row["metadata"])
        if "assignment" in shown:
            shown["assignment"] = decode_assignment(bytes(shown["assignment"]))
        self.session.observe(f"{self.name} {note}", shown)
        return response

    def join(self, note: str = "joins", **changes: Any) -> Any:
        metadata = subscription(self.names, self.owned, self.generation)
        body: Fields = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": [
                {"name": "cooperative-sticky", "metadata": metadata},
                {"name": "range", "metadata": metadata},
            ],
        }
        response = self.session.call_unobserved("JoinGroup", 9, body | changes)
        if response["error_code"] in (0, 79) and "member_id" not in changes:
            self.member_id, self.generation = response["member_id"], response["generation_id"]
        return self._observe(f"{note}: JoinGroup", response)

    def sync(self, note: str = "syncs", assignments: dict[str, bytes] | None = None, **changes: Any) -> Any:
        rows = [{"member_id": key, "assignment": value} for key, value in (assignments or {}).items()]
        body = self._as_member() | {
            "protocol_type": "consumer",
            "protocol_name": "cooperative-sticky",
            "assignments": rows,
        }
        response = self.session.call_unobserved("SyncGroup", 5, body | changes)
        if response["error_code"] == 0:
            assignment = decode_assignment(bytes(response["assignment"]))
            self.owned = assignment[1] if isinstance(assignment, list) else {}
        return self._observe(f"{note}: SyncGroup", response)

    def join_new(self, note: str = "enters") -> None:
        if self.join(note)["error_code"] == 79:
            self.join(f"{note} with its id")

    def heartbeat(self, note: str = "lives", **changes: Any) -> Any:
        return self._observe(
            f"{note}: Heartbeat", self.session.call_unobserved("Heartbeat", 4, self._as_member() | changes)
        )

    def follow(self, note: str) -> None:
        """Join again and sync as long as heartbeats return REBALANCE_IN_PROGRESS."""
        for turn in range(5):
            if self.heartbeat(f"{note} {turn}")["error_code"] != 27:
                return
            self.join(f"{note} {turn}")
            self.sync(f"{note} {turn}")

    def leave(self, note: str = "leaves", **changes: Any) -> None:
        row = {"member_id": self.member_id, "group_instance_id": self.instance}
        body: Fields = {"group_id": self.group, "members": [row | changes]}
        self._observe(f"{note}: LeaveGroup", self.session.call_unobserved("LeaveGroup", 5, body))

    def commit(self, note: str, generation: int | None = None) -> None:
        row = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_metadata": "",
            "committed_leader_epoch": -1,
        }
        body: Fields = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation if generation is None else generation,
            "member_id": self.member_id,
            "topics": [{"name": self.names[0], "partitions": [row]}],
        }
        self.session.call("OffsetCommit", 8, body, note)

    def _as_member(self) -> Fields:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }


def observe_classic_group(session: Session, group: str, note: str) -> None:
    """Observe DescribeGroups, with the length of each member's metadata in its place."""
    response = session.call_unobserved("DescribeGroups", 6, {"groups": [group]})
    for row in response["groups"]:
        for member in row["members"]:
            member["member_id"] = "a member id"
            member["member_metadata"] = len(member["member_metadata"])
            member["member_assignment"] = decode_assignment(bytes(member["member_assignment"]))
        row["members"].sort(key=str)
    session.observe(f"{group} {note}: DescribeGroups", response)


def assign_all(name: str, partitions: int) -> bytes:
    """A ConsumerProtocolAssignment of version 0 with all partitions of one topic."""
    rows = struct.pack(f">i{partitions}i", partitions, *range(partitions))
    return struct.pack(">hih", 0, 1, len(name)) + name.encode() + rows + struct.pack(">i", -1)


def found_group(topics: Topics, name: str, partitions: int, instance: str | None = None) -> ClassicConsumer:
    """The only member of a new classic group, which owns all partitions."""
    member = ClassicConsumer(topics, name, "classic", [name], instance)
    member.join_new()
    member.sync("leads", {member.member_id: assign_all(name, partitions)})
    member.heartbeat()
    return member
