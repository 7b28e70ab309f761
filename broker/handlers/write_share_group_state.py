"""WriteShareGroupState (API key 85): the leader of share partitions keeps what has changed in their states.

Version 1 has how many offsets from the start offset on are complete (KIP-932, KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.share_state_results import answered
from oncelog.coordinator.share.state import StateBatch
from oncelog.wire.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Uuid


def handle(
    services: Services, request: WriteShareGroupStateRequest, context: RequestContext
) -> Pending[WriteShareGroupStateResponse]:
    async def write(topic_id: Uuid, row: PartitionData) -> PartitionResult:
        await services.share_coordinator.write(
            request.group_id,
            topic_id,
            row.partition,
            row.state_epoch,
            row.leader_epoch,
            row.start_offset,
            row.delivery_complete_count,
            [
                StateBatch(it.first_offset, it.last_offset, it.delivery_state, it.delivery_count)
                for it in row.state_batches
            ],
        )
        return PartitionResult(row.partition)

    return answered(request, WriteShareGroupStateResponse(), WriteStateResult, PartitionResult, write)
