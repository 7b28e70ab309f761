"""Metadata (API key 3): returns brokers, topics, partitions and their leaders; may create topics.

From version 9 on clients trust the leader epochs. Version 10 adds topic ids, 12 look-up by id. Null ``topics`` means
all, an empty list none (in version 0 all). A missing topic is created if both the broker and the request allow it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.authorization import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from oncelog.broker.metadata.internal_topics import auto_create
from oncelog.broker.metadata.topics import check_name
from oncelog.broker.topic_names import INTERNAL_TOPICS
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

TOPIC_ID_LOOKUP_VERSION = 12
ALLOW_AUTO_CREATION_VERSION = 4
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)


def handle(services: Services, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    version = context.api_version
    if version < TOPIC_ID_LOOKUP_VERSION and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or []
    ):
        return _invalid_request(request)
    topics = _topics(services, request, version)
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    wants_cluster_operations = (
        version in CLUSTER_OPERATIONS_VERSIONS and request.include_cluster_authorized_operations
    )
    return MetadataResponse(
        0,
        [
            MetadataResponseBroker(*endpoint)
            for endpoint in services.cluster.nodes(context.connection.listener_name)
        ],
        services.cluster.cluster_id,
        services.cluster.controller_id(),
        topics,
        CLUSTER_OPERATIONS if wants_cluster_operations else NOT_ASKED,
    )


def _invalid_request(request: MetadataRequest) -> MetadataResponse:
    """Return INVALID_REQUEST for every topic: the request needs a later version.

    Source: ``MetadataRequest.getErrorResponse``.
    """
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id)
            for topic in request.topics or []
        ]
    )


def _topics(services: Services, request: MetadataRequest, version: int) -> list[MetadataResponseTopic]:
    if request.topics is None or (version == 0 and not request.topics):
        return [_existing(topic) for topic in services.metadata.image.topics.values()]
    ids = list(dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID))
    if ids:
        by_id = [(topic_id, services.cluster.topic_by_id(topic_id)) for topic_id in ids]
        unknown = [
            MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
            for topic_id, topic in by_id
            if topic is None
        ]
        return unknown + [_existing(topic) for _, topic in by_id if topic is not None]
    names = list(dict.fromkeys(topic.name for topic in request.topics if topic.name is not None))
    return _by_name(services, names, request, version)


def _by_name(
    services: Services, names: list[str], request: MetadataRequest, version: int
) -> list[MetadataResponseTopic]:
    existing = [topic for name in names if (topic := services.cluster.topic(name)) is not None]
    existing_names = {topic.name for topic in existing}
    missing = [name for name in names if name not in existing_names]
    results = [_existing(topic) for topic in existing]
    if not missing:
        return results
    may_create = version < ALLOW_AUTO_CREATION_VERSION or request.allow_auto_topic_creation
    if may_create and services.config.current.auto_create_topics_enable:
        for name, error in auto_create(services.metadata, services.config, missing).items():
            created = services.cluster.topic(name) if error is None else None
            if created is not None:
                # Kafka returns LEADER_NOT_AVAILABLE first, and the client retries; here the topic exists already.
                results.append(_existing(created))
            else:
                code = error.code if error is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                results.append(_unknown(name, code))
        return results
    for name in missing:
        try:
            check_name(name)
            results.append(_unknown(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        except KafkaError as error:
            results.append(_unknown(name, error.code))
    return results


def _unknown(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(code, name, ZERO_UUID, name in INTERNAL_TOPICS)


def _existing(topic: Topic) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            0,
            index,
            partition.leader,
            partition.leader_epoch,
            list(partition.replicas),
            list(partition.isr),
            [],
        )
        for index, partition in enumerate(topic.partitions)
    ]
    return MetadataResponseTopic(0, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions)
