"""Metadata (API key 3): returns brokers, topics, partitions and their leaders; may create topics.

From version 9 on clients trust the leader epochs. Version 10 adds topic ids, 12 look-up by id. Null ``topics`` means
all, an empty list none (in version 0 all). A missing topic is created if both the broker and the request allow it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import PARTITIONS_A_STEP, chunked_steps
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.image import NO_LEADER
from oncelog.broker.metadata.replica_directories import offline_replicas
from oncelog.broker.metadata.topics import check_name
from oncelog.broker.requests.authorization import CREATE, DESCRIBE, NOT_ASKED, THE_CLUSTER, TOPIC_RESOURCE
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Set

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.metadata.image import MetadataImage, Topic
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.wire.steps import Steps

_log = get_logger(__name__)

TOPIC_ID_LOOKUP_VERSION = 12
ALLOW_AUTO_CREATION_VERSION = 4
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)


def handle(
    services: Services, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Pending[MetadataResponse]:
    return chunked_steps(_respond(services, request, context))


def _respond(
    services: Services, request: MetadataRequest, context: RequestContext
) -> Steps[MetadataResponse]:
    """Make the response, a topic at each step."""
    version = context.api_version
    has_ids = is_nameless = False
    for topic in request.topics or ():
        has_ids |= topic.topic_id != ZERO_UUID
        is_nameless |= topic.name is None
        yield
    if (has_ids or is_nameless) if version < TOPIC_ID_LOOKUP_VERSION else (is_nameless and not has_ids):
        return (yield from _invalid_request(request))
    topics = yield from _topics(services, request, context)
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


def _invalid_request(request: MetadataRequest) -> Steps[MetadataResponse]:
    """Return INVALID_REQUEST for every topic: the request needs a later version, or names nothing.

    Source: ``MetadataRequest.getErrorResponse``.
    """
    response = MetadataResponse()
    for topic in request.topics or ():
        response.topics.append(
            MetadataResponseTopic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id)
        )
        yield
    return response


def _topics(
    services: Services, request: MetadataRequest, context: RequestContext
) -> Steps[list[MetadataResponseTopic]]:
    """Return what is told of the topics; of those that the client may not describe not even whether they exist."""
    version, authorization, image = context.api_version, services.authorization, services.metadata.image
    alive = services.cluster.alive(context.connection.listener_name)
    is_all = request.topics is None or (version == 0 and not request.topics)
    may_describe = authorization.predicate(context, DESCRIBE, TOPIC_RESOURCE, quiet=is_all)

    def with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
        if request.include_topic_authorized_operations:
            operations = authorization.operations(context, TOPIC_RESOURCE, topic.name or "")
            topic.topic_authorized_operations = operations
        return topic

    told: list[MetadataResponseTopic] = []
    denied: list[MetadataResponseTopic] = []
    if request.topics is None or (version == 0 and not request.topics):
        for topic in list(services.metadata.image.topics.values()):
            if may_describe(topic.name):
                told.append(with_operations((yield from _existing(image, topic, alive, version))))
            yield
        return told
    ids = dict.fromkeys(topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID)
    if ids:
        unknown: list[MetadataResponseTopic] = []
        for topic_id in ids:
            found = services.cluster.topic_by_id(topic_id)
            if found is None:
                unknown.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
            elif may_describe(found.name):
                told.append(with_operations((yield from _existing(image, found, alive, version))))
            else:  # an id is no secret
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                denied.append(MetadataResponseTopic(code, None, found.topic_id))
            yield
        return unknown + told + denied
    names: list[str] = []
    for name in dict.fromkeys(topic.name for topic in request.topics if topic.name is not None):
        if may_describe(name):
            names.append(name)
        else:
            denied.append(_denied(name))
        yield
    may_create = _may_create(services, request, version)
    if may_create and not authorization.allows(context, CREATE, *THE_CLUSTER, quiet=True):
        may_create_topic = authorization.predicate(context, CREATE, TOPIC_RESOURCE)
        described, names, not_to_create = names, [], []
        for name in described:
            if services.cluster.topic(name) is None and not may_create_topic(name):
                not_to_create.append(_denied(name, is_internal=name in INTERNAL_TOPICS))
            else:
                names.append(name)
            yield
        denied = not_to_create + denied
    for topic_row in (yield from _by_name(services, names, context, may_create=may_create)):
        told.append(with_operations(topic_row))
        yield
    return told + denied


def _may_create(services: Services, request: MetadataRequest, version: int) -> bool:
    is_asked = version < ALLOW_AUTO_CREATION_VERSION or request.allow_auto_topic_creation
    return is_asked and services.config.current.auto_create_topics_enable


def _denied(name: str, *, is_internal: bool = False) -> MetadataResponseTopic:
    return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, ZERO_UUID, is_internal)


def _by_name(
    services: Services, names: list[str], context: RequestContext, *, may_create: bool
) -> Steps[list[MetadataResponseTopic]]:
    alive = services.cluster.alive(context.connection.listener_name)
    image, version = services.metadata.image, context.api_version
    results: list[MetadataResponseTopic] = []
    missing: dict[str, MetadataResponseTopic] = {}
    for name in names:
        topic = services.cluster.topic(name)
        if topic is None:
            missing[name] = _unknown(name)
        else:
            results.append((yield from _existing(image, topic, alive, version)))
        yield
    if missing and may_create:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wanted = [name for name, row in missing.items() if row.error_code is unknown]
        yield from _create(services, wanted, context)
    for name, row in missing.items():
        # Kafka has not created a topic yet when it responds, and the client asks again; here it exists.
        created = services.cluster.topic(name)
        results.append(row if created is None else (yield from _existing(image, created, alive, version)))
        yield
    return results


def _create(services: Services, names: list[str], context: RequestContext) -> Steps[None]:
    """Create topics. Only the log has the reason where that fails: clients learn that the topic is unknown."""
    quota = None if context.usage is None else context.usage.auto_creation_quota()
    charge = None if quota is None else quota.record
    created = yield from services.auto_topics.create(names, charge)
    for name, error in created.items():
        yield
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


def _existing(
    image: MetadataImage, topic: Topic, alive: Set[int], version: int
) -> Steps[MetadataResponseTopic]:
    """Return the row of a topic; the nodes in ``alive`` serve on the client's listener."""
    partitions: list[MetadataResponsePartition] = []
    for index, partition in enumerate(topic.partitions):
        if index % PARTITIONS_A_STEP == PARTITIONS_A_STEP - 1:
            yield
        has_leader = partition.leader in alive
        code = ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE
        replicas, isr = list(partition.replicas), list(partition.isr)
        if version == 0:  # it has no offline replicas, and names none
            replicas = [replica for replica in replicas if replica in alive]
            isr = [replica for replica in isr if replica in alive]
            if has_leader and (len(replicas), len(isr)) != (len(partition.replicas), len(partition.isr)):
                code = ErrorCode.REPLICA_NOT_AVAILABLE
        partitions.append(
            MetadataResponsePartition(
                code,
                index,
                partition.leader if has_leader else NO_LEADER,
                partition.leader_epoch,
                replicas,
                isr,
                offline_replicas(image, partition, alive),
            )
        )
    return MetadataResponseTopic(0, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions)
