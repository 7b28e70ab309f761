"""Members of share groups over simulated connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tests.harness.sim_client import SimClient

JOINING, LEAVING = 0, -1
VERSION = 1


class SimShareMember:
    """``owned``: the assigned partitions as (topic id, partition)."""

    def __init__(self, client: SimClient, member_id: str, topics: list[str], group: str = "g") -> None:
        self.client = client
        self.member_id = member_id
        self.topics = topics
        self.group = group
        self.epoch = JOINING
        self.owned: set[tuple[bytes, int]] = set()

    async def join(self) -> Any:
        self.epoch = JOINING
        return await self.beat(subscribed_topic_names=self.topics)

    async def leave(self) -> Any:
        self.epoch = LEAVING
        return await self.beat()

    async def beat(self, **said: Any) -> Any:
        """Send a heartbeat and follow its response, which is returned."""
        request = ShareGroupHeartbeatRequest(self.group, self.member_id, self.epoch, **said)
        response = await self.client.call(request, VERSION, ShareGroupHeartbeatResponse)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.owned = {
                    (row.topic_id, number)
                    for row in response.assignment.topic_partitions
                    for number in row.partitions
                }
        return response
