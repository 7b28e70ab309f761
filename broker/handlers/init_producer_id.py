"""InitProducerId (API key 22): an id for an idempotent producer, never given out twice (KIP-98, KIP-360).

A transactional id is refused until transactions are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire.errors import ErrorCode, KafkaError
from wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from broker.node import Node
    from broker.request import RequestContext

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def handle(node: Node, request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _error(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _error(
            ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
    try:
        return InitProducerIdResponse(0, 0, node.next_producer_id(), 0)
    except KafkaError as error:
        return _error(error.code)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
