"""Members of a classic group over the simulated network, each on a connection of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.harness.offsets_topic import find

if TYPE_CHECKING:
    from tests.harness.sim_broker import SimBroker
    from tests.harness.sim_client import SimClient

SESSION_MS, REBALANCE_MS = 10_000, 30_000
JOIN, SYNC, HEARTBEAT, LEAVE, DESCRIBE = 9, 5, 4, 5, 6


async def coordinated(broker: SimBroker) -> SimClient:
    """Return a client of a broker that has created its offsets topic."""
    client = broker.connect()
    await find(client)
    return client


async def describe(client: SimClient, group: str = "g", version: int = DESCRIBE) -> DescribedGroup:
    response = await client.call(DescribeGroupsRequest([group]), version, DescribeGroupsResponse)
    [row] = response.groups
    assert isinstance(row, DescribedGroup)
    return row


class SimMember:
    def __init__(self, broker: SimBroker, group: str = "g", instance: str | None = None) -> None:
        self.broker = broker
        self.client = broker.connect()
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.metadata = b"m"
        self.session_ms = SESSION_MS
        self.rebalance_ms = REBALANCE_MS

    def join_request(self) -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol("range", self.metadata)]
        return JoinGroupRequest(
            self.group,
            self.session_ms,
            self.rebalance_ms,
            self.member_id,
            self.instance,
            "consumer",
            protocols,
        )

    async def send_join(self, version: int = JOIN) -> None:
        await self.client.send(self.join_request(), version)

    async def joined(self, version: int = JOIN) -> JoinGroupResponse:
        response = await self.client.receive(JoinGroupResponse, version)
        assert isinstance(response, JoinGroupResponse)
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation = response.member_id, response.generation_id
        return response

    async def join(self, version: int = JOIN) -> JoinGroupResponse:
        await self.send_join(version)
        return await self.joined(version)

    async def enter(self) -> JoinGroupResponse:
        """Join as a new member does."""
        response = await self.join()
        return await self.join() if response.error_code == ErrorCode.MEMBER_ID_REQUIRED else response

    async def send_sync(self, assignments: dict[str, bytes] | None = None) -> None:
        rows = [SyncGroupRequestAssignment(member, data) for member, data in (assignments or {}).items()]
        request = SyncGroupRequest(
            self.group, self.generation, self.member_id, self.instance, "consumer", "range", rows
        )
        await self.client.send(request, SYNC)

    async def synced(self) -> SyncGroupResponse:
        response = await self.client.receive(SyncGroupResponse, SYNC)
        assert isinstance(response, SyncGroupResponse)
        return response

    async def sync(self, assignments: dict[str, bytes] | None = None) -> SyncGroupResponse:
        await self.send_sync(assignments)
        return await self.synced()

    async def found(self) -> None:
        """Join and sync as the only member of the group."""
        await self.enter()
        await self.sync({self.member_id: b"all"})

    async def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance)
        response = await self.client.call(request, HEARTBEAT, HeartbeatResponse)
        return ErrorCode(response.error_code)

    async def leave(self, version: int = LEAVE) -> Any:
        if version < 3:
            request = LeaveGroupRequest(self.group, self.member_id)
        else:
            request = LeaveGroupRequest(self.group, members=[MemberIdentity(self.member_id, self.instance)])
        return await self.client.call(request, version, LeaveGroupResponse)
