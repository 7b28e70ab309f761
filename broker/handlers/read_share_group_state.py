"""ReadShareGroupState (API key 84): the leader of share partitions reads their states when it begins to lead, and
fences the leaders before it (KIP-932).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.share_state_results import answered
from oncelog.wire.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Uuid


def handle(
    services: Services, request: ReadShareGroupStateRequest, context: RequestContext
) -> Pending[ReadShareGroupStateResponse]:
    async def read(topic_id: Uuid, row: PartitionData) -> PartitionResult:
        state = await services.share_coordinator.read(
            request.group_id, topic_id, row.partition, row.leader_epoch
        )
        batches = [StateBatch(*batch) for batch in state.batches]
        return PartitionResult(row.partition, 0, None, state.state_epoch, state.start_offset, batches)

    return answered(request, ReadShareGroupStateResponse(), ReadStateResult, PartitionResult, read)
