"""UnregisterBroker (API key 64): removes a broker from the cluster's metadata; this one cannot be removed.

Others are there in a directory that belonged to a node of a larger cluster. They are not running: their places among
the in-sync replicas go with them, unless nobody else has such a place.
Source: ``ReplicationControlManager.unregisterBroker``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.image import NO_LEADER
from oncelog.broker.metadata.placement import active
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from oncelog.wire.stored.metadata import PartitionChangeRecord, UnregisterBrokerRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.metadata.image import MetadataImage
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.schema import Message


def handle(
    services: Services, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    image, broker_id = services.metadata.image, request.broker_id
    broker = image.brokers.get(broker_id)
    try:
        if broker is None:
            text = f"Broker ID {broker_id} is not currently registered"
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
        if broker_id == services.config.current.node_id:
            text = f"Broker ID {broker_id} is this broker: it cannot unregister itself"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, text)
        services.metadata.commit(
            [*_without(image, broker_id), UnregisterBrokerRecord(broker_id, broker.broker_epoch)]
        )
    except KafkaError as error:
        return UnregisterBrokerResponse(0, error.code, error.message)
    return UnregisterBrokerResponse()


def _without(image: MetadataImage, broker_id: int) -> Iterator[Message]:
    """Yield the changes of partitions that count a broker among their in-sync replicas."""
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            others = [replica for replica in state.isr if replica != broker_id]
            if broker_id not in state.isr or not others:
                continue
            change = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, isr=others)
            if state.leader == broker_id:
                change.leader = next(iter(active(image, others)), NO_LEADER)
            yield change
