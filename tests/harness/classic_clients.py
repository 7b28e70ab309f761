"""Clients of a classic group for tests: each sends requests and remembers the responses."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar

from oncelog.coordinator.groups.classic.group import ClassicGroup
from oncelog.coordinator.groups.classic.heartbeat import heartbeat
from oncelog.coordinator.groups.classic.join import join
from oncelog.coordinator.groups.classic.leave import leave
from oncelog.coordinator.groups.classic.sync import sync
from oncelog.coordinator.promise import Promise
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.harness.group_shard import GroupShardHarness

T = TypeVar("T")
DELAY_MS, SESSION_MS, REBALANCE_MS = 3_000, 10_000, 30_000
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription of version 0, encoded by hand."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def response_of(result: T | Promise[T]) -> T | None:
    """The response; None while it is pending."""
    if not isinstance(result, Promise):
        return result
    return result.value if result.done else None


def given(result: T | Promise[T] | None) -> T:
    assert result is not None, "no request was sent"
    response = response_of(result)
    assert response is not None, "still pending"
    return response


class ClassicClient:
    """``protocols``: name -> metadata, the preferred one first."""

    def __init__(
        self,
        harness: GroupShardHarness,
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        group: str = "g",
        version: int = JOIN_VERSION,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "client",
    ) -> None:
        self.harness = harness
        self.instance = instance
        self.protocols = {"range": subscription("t")} if protocols is None else protocols
        self.protocol_type = protocol_type
        self.group_id = group
        self.version = version
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.client_id = client_id
        self.member_id = ""
        self.generation = -1
        self.joined: JoinGroupResponse | Promise[JoinGroupResponse] | None = None
        self.synced_generation = -1
        self.synced: SyncGroupResponse | Promise[SyncGroupResponse] | None = None

    @property
    def group(self) -> ClassicGroup:
        group = self.harness.shard.groups[self.group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def join(self, member_id: str | None = None) -> JoinGroupResponse | None:
        """Send a JoinGroup. Returns the response, None while it is pending."""
        request = JoinGroupRequest(
            self.group_id,
            self.session_ms,
            self.rebalance_ms,
            self.member_id if member_id is None else member_id,
            self.instance,
            self.protocol_type,
            [JoinGroupRequestProtocol(name, metadata) for name, metadata in self.protocols.items()],
            "a reason",
        )
        self.joined = join(self.harness.shard, request, self.harness.client(self.version, self.client_id))
        return self.join_response()

    def join_response(self) -> JoinGroupResponse | None:
        """The response to the last JoinGroup, from which it takes member id and generation."""
        assert self.joined is not None
        response = response_of(self.joined)
        if response is not None and response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation = response.member_id, response.generation_id
        return response

    def enter(self) -> JoinGroupResponse | None:
        """Join as a new member does: twice, if MEMBER_ID_REQUIRED."""
        response = self.join()
        if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            response = self.join()
        return response

    @property
    def leads(self) -> bool:
        response = self.join_response()
        return response is not None and response.leader == response.member_id and not response.skip_assignment

    def sync(
        self,
        assignments: Mapping[str, bytes] | None = None,
        generation: int | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> SyncGroupResponse | None:
        request = SyncGroupRequest(
            self.group_id,
            self.generation if generation is None else generation,
            self.member_id,
            self.instance,
            protocol_type,
            protocol,
            [SyncGroupRequestAssignment(member, data) for member, data in (assignments or {}).items()],
        )
        self.synced_generation = request.generation_id
        self.synced = sync(self.harness.shard, request, self.harness.client(SYNC_VERSION))
        return response_of(self.synced)

    def sync_response(self) -> SyncGroupResponse | None:
        assert self.synced is not None
        return response_of(self.synced)

    def heartbeat(self, generation: int | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            self.group_id,
            self.generation if generation is None else generation,
            self.member_id,
            self.instance,
        )
        try:
            return ErrorCode(
                heartbeat(self.harness.shard, request, self.harness.client(HEARTBEAT_VERSION)).error_code
            )
        except KafkaError as error:
            return error.code

    def leave(self) -> ErrorCode:
        return leave_all(self.harness, [(self.member_id, self.instance)], self.group_id)[0]


def leave_all(
    harness: GroupShardHarness, members: Sequence[tuple[str, str | None]], group: str = "g"
) -> list[ErrorCode]:
    """Remove members by member id and instance id. Returns their error codes, or that of the whole request."""
    request = LeaveGroupRequest(group, members=[MemberIdentity(*member) for member in members])
    try:
        response = leave(harness.shard, request, harness.client(LEAVE_VERSION))
    except KafkaError as error:
        return [error.code]
    return [ErrorCode(row.error_code) for row in response.members] or [ErrorCode(response.error_code)]


def settle(clients: Sequence[ClassicClient]) -> ClassicClient:
    """Complete a rebalance that all members have joined: the leader assigns each member its own id. Returns the
    leader.
    """
    for client in clients:
        client.join_response()
    leader = next(client for client in clients if client.leads)
    for client in clients:
        if client is not leader:
            client.sync()
    leader.sync({client.member_id: client.member_id.encode() for client in clients})
    assert all(given(client.synced).error_code == 0 for client in clients if client.synced is not None)
    return leader


def stable(harness: GroupShardHarness, clients: Sequence[ClassicClient]) -> ClassicClient:
    """Let all clients join a new group and settle it. Returns the leader."""
    for client in clients:
        client.enter()
    harness.advance(2 * DELAY_MS)
    assert all(client.join_response() is not None for client in clients)
    return settle(clients)
