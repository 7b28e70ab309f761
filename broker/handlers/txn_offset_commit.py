"""TxnOffsetCommit (API key 28): commits a group's offsets as part of a transaction; they are valid once it commits.

- The partition that stores the group's offsets must be part of the transaction. AddOffsetsToTxn has added it; from
  version 5 on this request adds it (KIP-890). Version 4 adds the error TRANSACTION_ABORTABLE.
- Version 6 names topics by id (KIP-1319), and has the errors GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH.
- Version 3 adds the member's generation: the group fences members of other generations (KIP-447).
- Before version 2 COORDINATOR_LOAD_IN_PROGRESS is returned as COORDINATOR_NOT_AVAILABLE (KAFKA-7296).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from oncelog.broker.coordinators.add_partitions_to_txn_manager import (
    PartitionKey,
    Refusals,
    SupportedOperation,
    TransactionalProducer,
)
from oncelog.broker.handlers.chunked import chunked_then
from oncelog.broker.handlers.client import client_of
from oncelog.broker.handlers.topic_results import merged
from oncelog.broker.requests.authorization import (
    GROUP_RESOURCE,
    READ,
    TOPIC_RESOURCE,
    TRANSACTIONAL_ID_RESOURCE,
    WRITE,
)
from oncelog.broker.requests.request import Pending, wait_for_response
from oncelog.coordinator.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.txn_offset_commit import (
    TXN_OFFSET_COMMIT_TOPIC_ID_VERSION,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from oncelog.wire.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext
    from oncelog.coordinator.groups.shard import GroupShard

    Response = TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]

LOADING_VERSION = 2
ABORTABLE_VERSION = 4
TRANSACTIONS_V2_TXN_OFFSET_COMMIT_VERSION = 5


def handle(services: Services, request: TxnOffsetCommitRequest, context: RequestContext) -> Response:
    commit = _Commit(services, request, context)
    authorization = services.authorization
    if not authorization.allows(context, WRITE, TRANSACTIONAL_ID_RESOURCE, request.transactional_id):
        return commit.error_response(KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not authorization.allows(context, READ, GROUP_RESOURCE, request.group_id):
        return commit.error_response(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    rows = len(request.topics) + sum([len(topic.partitions) for topic in request.topics])
    return chunked_then(commit.find_existing(), rows, commit.verify_or_add)


class _Commit:
    """One request, reduced to the partitions that exist and may be read, and the results for the others."""

    def __init__(self, services: Services, request: TxnOffsetCommitRequest, context: RequestContext) -> None:
        self.services = services
        self.request = request
        self.context = context
        self.may_read = services.authorization.predicate(context, READ, TOPIC_RESOURCE)
        self.by_id = context.api_version >= TXN_OFFSET_COMMIT_TOPIC_ID_VERSION
        self.topic_of = attrgetter("topic_id" if self.by_id else "name")
        self.unknown: list[TxnOffsetCommitResponseTopic] = []
        self.image_offset = -1
        """Of the metadata in which the partitions exist."""
        self.producer = TransactionalProducer(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
        self.support = (
            SupportedOperation.ADD_PARTITION
            if context.api_version >= TRANSACTIONS_V2_TXN_OFFSET_COMMIT_VERSION
            else SupportedOperation.GENERIC_ERROR_SUPPORTED
            if context.api_version >= ABORTABLE_VERSION
            else SupportedOperation.DEFAULT_ERROR
        )

    def find_existing(self) -> Iterator[None]:
        """Remove other partitions from the request, and make their results, a topic at each step."""
        self.image_offset = self.services.metadata.image.offset
        existing: list[TxnOffsetCommitRequestTopic] = []
        for topic in self.request.topics:
            existing_topic = self._existing(topic)
            if existing_topic is not None:
                existing.append(existing_topic)
            yield
        self.request.topics = existing

    def verify_or_add(self) -> Response:
        """Verify that the partition of the group's offsets is in the transaction, or add it, and commit them."""
        request = self.request
        if not request.topics:
            return self.response([])
        if not request.group_id:
            return self.error_response(KafkaError(ErrorCode.INVALID_GROUP_ID))
        sequences = {(OFFSETS_TOPIC, self.services.groups.runtime.partition_for(request.group_id)): -1}
        refusals = self.services.txn_partitions.verify_or_add_now(self.producer, sequences, self.support)
        return Pending(self.store_afterwards(sequences)) if refusals is None else self.store(refusals)

    def _existing(self, topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitRequestTopic | None:
        cluster = self.services.cluster
        image = cluster.topic_by_id(topic.topic_id) if self.by_id else cluster.topic(topic.name)
        name = topic.name if image is None else image.name
        code = ErrorCode.UNKNOWN_TOPIC_ID if self.by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (image is not None or not self.by_id) and not self.may_read(name):
            code, image = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
        if image is None:
            self._refuse(topic, topic.partitions, code)
            return None
        count = len(image.partitions)
        existing = [row for row in topic.partitions if 0 <= row.partition_index < count]
        if len(existing) < len(topic.partitions):
            missing = [row for row in topic.partitions if not 0 <= row.partition_index < count]
            self._refuse(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return TxnOffsetCommitRequestTopic(name, image.topic_id, existing) if existing else None

    def _refuse(
        self,
        topic: TxnOffsetCommitRequestTopic,
        partitions: list[TxnOffsetCommitRequestPartition],
        code: ErrorCode,
    ) -> None:
        self.unknown.append(_error_result(topic, partitions, code))

    def _refuse_deleted(self) -> None:
        """Refuse the topics that were deleted while the transaction's coordinator was asked: what has their names now
        is not theirs.
        """
        code = ErrorCode.UNKNOWN_TOPIC_ID if self.by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        existing: list[TxnOffsetCommitRequestTopic] = []
        for topic in self.request.topics:
            if self.services.cluster.topic_by_id(topic.topic_id) is None:
                self._refuse(topic, topic.partitions, code)
            else:
                existing.append(topic)
        self.request.topics = existing

    def store(self, refusals: Refusals) -> Response:
        """Store the offsets unless the transaction's coordinator has refused."""
        if refusals:
            [code] = refusals.values()
            return self.error_response(to_client_error(KafkaError(code)))
        if self.services.metadata.image.offset != self.image_offset:
            self._refuse_deleted()
            if not self.request.topics:
                return self.response([])
        return self.services.groups.serve(self.request.group_id, self._step, self.error_response)

    async def store_afterwards(self, sequences: dict[PartitionKey, int]) -> TxnOffsetCommitResponse:
        refusals = await self.services.txn_partitions.verify_or_add(self.producer, sequences, self.support)
        return await wait_for_response(self.store(refusals))

    def _step(self, shard: GroupShard) -> TxnOffsetCommitResponse:
        from oncelog.coordinator.groups.offsets import commit_transactional_offsets

        return self.response(
            commit_transactional_offsets(shard, self.request, client_of(self.context)).topics
        )

    def error_response(self, error: KafkaError) -> TxnOffsetCommitResponse:
        code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self.context.api_version < LOADING_VERSION:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.response([_error_result(topic, topic.partitions, code) for topic in self.request.topics])

    def response(self, topics: list[TxnOffsetCommitResponseTopic]) -> TxnOffsetCommitResponse:
        """Return the response with the results for the existing partitions, behind those for the others."""
        if self.unknown:
            topics = merged(self.unknown + topics, self.topic_of)
        return TxnOffsetCommitResponse(0, topics)


def _error_result(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    rows = [TxnOffsetCommitResponsePartition(row.partition_index, code) for row in partitions]
    return TxnOffsetCommitResponseTopic(topic.name, topic.topic_id, rows)
