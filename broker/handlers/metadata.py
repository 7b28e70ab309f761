"""Metadata (API key 3): returns brokers, topics, partitions and their leaders; may create topics.

From version 9 on clients trust the leader epochs. Version 10 adds topic ids, 12 look-up by id. Null ``topics`` means
all, an empty list none (in version 0 all). A missing topic is created if both the broker and the request allow it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.authorization import CLUSTER, CREATE, DESCRIBE, NOT_ASKED, TOPIC_RESOURCE
from oncelog.broker.logs import get_logger
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

_log = get_logger(__name__)

TOPIC_ID_LOOKUP_VERSION = 12
ALLOW_AUTO_CREATION_VERSION = 4
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)


def handle(services: Services, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    version = context.api_version
    if version < TOPIC_ID_LOOKUP_VERSION and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or []
    ):
        return _invalid_request(request)
    topics = _topics(services, request, context)
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
        services.authorization.cluster_operations(context) if wants_cluster_operations else NOT_ASKED,
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


def _topics(
    services: Services, request: MetadataRequest, context: RequestContext
) -> list[MetadataResponseTopic]:
    """Return what is told of the topics; of those that the client may not describe not even whether they exist."""
    version, authorization = context.api_version, services.authorization
    is_all = request.topics is None or (version == 0 and not request.topics)
    may_describe = authorization.filter(context, DESCRIBE, TOPIC_RESOURCE, quiet=is_all)

    def with_operations(topics: list[MetadataResponseTopic]) -> list[MetadataResponseTopic]:
        if request.include_topic_authorized_operations:
            for topic in topics:
                operations = authorization.operations(context, TOPIC_RESOURCE, topic.name or "")
                topic.topic_authorized_operations = operations
        return topics

    if request.topics is None or (version == 0 and not request.topics):
        image = services.metadata.image
        return with_operations(
            [_existing(topic) for topic in image.topics.values() if may_describe(topic.name)]
        )
    ids = list(dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID))
    if ids:
        by_id = [(topic_id, services.cluster.topic_by_id(topic_id)) for topic_id in ids]
        unknown = [
            MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
            for topic_id, topic in by_id
            if topic is None
        ]
        known = [topic for _, topic in by_id if topic is not None]
        # An id is no secret.
        denied = [
            MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic.topic_id)
            for topic in known
            if not may_describe(topic.name)
        ]
        return (
            unknown
            + with_operations([_existing(topic) for topic in known if may_describe(topic.name)])
            + denied
        )
    names = list(dict.fromkeys(topic.name for topic in request.topics if topic.name is not None))
    denied = [_denied(name) for name in names if not may_describe(name)]
    names = [name for name in names if may_describe(name)]
    may_create = _may_create(services, request, version)
    if may_create and not authorization.allows(context, CREATE, *CLUSTER, quiet=True):
        may_create_topic = authorization.filter(context, CREATE, TOPIC_RESOURCE)
        not_to_create = [
            name for name in names if services.cluster.topic(name) is None and not may_create_topic(name)
        ]
        names = [name for name in names if name not in not_to_create]
        denied = [_denied(name, is_internal=name in INTERNAL_TOPICS) for name in not_to_create] + denied
    return with_operations(_by_name(services, names, context, may_create=may_create)) + denied


def _may_create(services: Services, request: MetadataRequest, version: int) -> bool:
    is_asked = version < ALLOW_AUTO_CREATION_VERSION or request.allow_auto_topic_creation
    return is_asked and services.config.current.auto_create_topics_enable


def _denied(name: str, *, is_internal: bool = False) -> MetadataResponseTopic:
    return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, ZERO_UUID, is_internal)


def _by_name(
    services: Services, names: list[str], context: RequestContext, *, may_create: bool
) -> list[MetadataResponseTopic]:
    existing = [topic for name in names if (topic := services.cluster.topic(name)) is not None]
    existing_names = {topic.name for topic in existing}
    missing = {name: _unknown(name) for name in names if name not in existing_names}
    if missing and may_create:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        _create(services, [name for name, row in missing.items() if row.error_code is unknown], context)
    results = [_existing(topic) for topic in existing]
    for name, row in missing.items():
        # Kafka has not created a topic yet when it responds, and the client asks again; here it exists.
        created = services.cluster.topic(name)
        results.append(row if created is None else _existing(created))
    return results


def _create(services: Services, names: list[str], context: RequestContext) -> None:
    """Create topics. Only the log has the reason where that fails: clients learn that the topic is unknown."""
    quota = None if context.usage is None else context.usage.auto_creation_quota()
    charge = None if quota is None else quota.record
    for name, error in auto_create(services.metadata, services.config, names, charge).items():
        if error is not None:
            about = {"error": error.code.name}
            services.metadata.lines.write(
                _log.warning, "topic not created on first use", about, topic=name, reason=error.message
            )


def _unknown(name: str) -> MetadataResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as error:
        code = error.code
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
