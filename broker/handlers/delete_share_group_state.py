"""DeleteShareGroupState (API key 86): a group coordinator removes the states of share partitions (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.share_state_results import answered
from oncelog.wire.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.schema import Uuid


def handle(
    services: Services, request: DeleteShareGroupStateRequest, context: RequestContext
) -> Pending[DeleteShareGroupStateResponse]:
    async def delete(topic_id: Uuid, row: PartitionData) -> PartitionResult:
        await services.share_coordinator.delete(request.group_id, topic_id, row.partition)
        return PartitionResult(row.partition)

    return answered(request, DeleteShareGroupStateResponse(), DeleteStateResult, PartitionResult, delete)
