"""ReadShareGroupStateSummary (API key 87): a group coordinator reads the start offsets of share partitions.

Version 1 has how many offsets from the start offset on are complete (KIP-932, KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.share_state_results import answered
from oncelog.wire.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Uuid


def handle(
    services: Services, request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> Pending[ReadShareGroupStateSummaryResponse]:
    async def read(topic_id: Uuid, row: PartitionData) -> PartitionResult:
        summary = await services.share_coordinator.summary(
            request.group_id, topic_id, row.partition, row.leader_epoch
        )
        return PartitionResult(row.partition, 0, None, *summary)

    response = ReadShareGroupStateSummaryResponse()
    return answered(request, response, ReadStateSummaryResult, PartitionResult, read)
