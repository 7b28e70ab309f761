"""Consumers of the classic protocol with eager rebalancing: they revoke all partitions before they rejoin."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from oncelog.coordinator.groups.classic.heartbeat import heartbeat
from oncelog.coordinator.groups.classic.join import join
from oncelog.coordinator.groups.classic.leave import leave
from oncelog.coordinator.groups.classic.sync import sync
from oncelog.coordinator.promise import Promise
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from oncelog.wire.stored.consumer_protocol import ConsumerProtocolAssignment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.harness.group_shard import GroupShardHarness

SESSION_MS, REBALANCE_MS = 45_000, 60_000
JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5
VERSION = 1
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription(topics: Sequence[str]) -> bytes:
    return struct.pack(">hi", VERSION, len(topics)) + b"".join(map(_text, topics)) + struct.pack(">ii", -1, 0)


def assignment(partitions: dict[str, list[int]]) -> bytes:
    parts = [struct.pack(">hi", VERSION, len(partitions))]
    for name, numbers in partitions.items():
        parts += [_text(name), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join([*parts, struct.pack(">i", -1)])


class ClassicConsumer:
    """``owned``: (topic id, partition). `act` takes the client's next step."""

    def __init__(
        self, harness: GroupShardHarness, topics: Sequence[str], instance: str | None = None
    ) -> None:
        self.harness = harness
        self.topics = list(topics)
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: set[tuple[bytes, int]] = set()
        self.codes: list[ErrorCode] = []
        self._joined = False
        self._waits: tuple[Any, Promise[Any]] | None = None

    def act(self) -> None:
        if self._waits is not None:
            take, promise = self._waits
            if not promise.done:
                return
            self._waits = None
            take(promise.value)
        elif self._joined:
            self._heartbeat()
        else:
            self._join()

    def leave(self) -> None:
        row = MemberIdentity(self.member_id, self.instance)
        leave(self.harness.shard, LeaveGroupRequest("g", members=[row]), self.harness.client(LEAVE))

    def forget(self) -> None:
        """The connection is lost, with the pending response."""
        self._waits = None
        self._joined = False
        self.owned = set()

    def _take(self, take: Any, response: Any) -> None:
        if isinstance(response, Promise):
            self._waits = (take, response)
            return
        take(response)

    def _join(self) -> None:
        self.owned = set()
        protocols = [JoinGroupRequestProtocol("range", subscription(self.topics))]
        request = JoinGroupRequest(
            "g", SESSION_MS, REBALANCE_MS, self.member_id, self.instance, "consumer", protocols
        )
        self._take(self._on_joined, join(self.harness.shard, request, self.harness.client(JOIN)))

    def _on_joined(self, response: Any) -> None:
        if self._failed(response.error_code):
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            return
        self.member_id, self.generation = response.member_id, response.generation_id
        rows = []
        if response.members:
            rows = [
                SyncGroupRequestAssignment(member_id, data)
                for member_id, data in self._assigned([row.member_id for row in response.members]).items()
            ]
        request = SyncGroupRequest(
            "g", self.generation, self.member_id, self.instance, "consumer", "range", rows
        )
        self._take(self._on_synced, sync(self.harness.shard, request, self.harness.client(SYNC)))

    def _assigned(self, member_ids: list[str]) -> dict[str, bytes]:
        made: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in member_ids}
        for name in self.topics:
            topic = self.harness.topics.by_name(name)
            for number in range(len(topic.partitions) if topic is not None else 0):
                made[member_ids[number % len(member_ids)]].setdefault(name, []).append(number)
        return {member_id: assignment(rows) for member_id, rows in made.items()}

    def _on_synced(self, response: Any) -> None:
        if self._failed(response.error_code):
            return
        self._joined = True
        if response.assignment:
            made = ConsumerProtocolAssignment.decode(response.assignment, VERSION, 2)
            for row in made.assigned_partitions:
                topic = self.harness.topics.by_name(row.topic)
                if topic is not None:
                    self.owned.update((topic.topic_id, number) for number in row.partitions)

    def _heartbeat(self) -> None:
        request = HeartbeatRequest("g", self.generation, self.member_id, self.instance)
        try:
            code = heartbeat(self.harness.shard, request, self.harness.client(HEARTBEAT)).error_code
        except KafkaError as error:
            code = error.code
        if self._failed(code):
            self._joined = False
            if code != ErrorCode.REBALANCE_IN_PROGRESS:
                self.owned = set()

    def _failed(self, code: int) -> bool:
        if code:
            self.codes.append(ErrorCode(code))
        if code in GONE:
            self.member_id, self.generation = "", -1
        return bool(code)
