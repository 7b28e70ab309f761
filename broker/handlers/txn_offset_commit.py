"""TxnOffsetCommit (API key 28): stores a group's offsets as part of a transaction; they count when it commits.

- The partition that stores the group's offsets must be part of the transaction: AddOffsetsToTxn has added it, or with
  version 5 this request does (KIP-890). Version 4 knows TRANSACTION_ABORTABLE.
- Version 3 has the member's generation, and the group fences who is none of it any more (KIP-447).
- Before version 2 COORDINATOR_LOAD_IN_PROGRESS is told as COORDINATOR_NOT_AVAILABLE (KAFKA-7296).
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from oncelog.broker.coordinators import enrolment
from oncelog.broker.coordinators.groups import client_of
from oncelog.broker.handlers.chunked import chunked_then
from oncelog.broker.handlers.topic_rows import merged
from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.coordinator.groups.errors import to_client_error
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from typing import Any

    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.coordinator.groups.shard import GroupShard

    Answer = TxnOffsetCommitResponse | Coroutine[Any, Any, TxnOffsetCommitResponse]

LOADING_VERSION = 2
ABORTABLE_VERSION = 4
ADDS_VERSION = 5


def handle(services: Services, request: TxnOffsetCommitRequest, context: RequestContext) -> Answer:
    commit = _Commit(services, request, context)
    rows = len(request.topics) + sum([len(topic.partitions) for topic in request.topics])
    return chunked_then(commit.sort_out(), rows, commit.enrol)


class _Commit:
    """One request: what of it concerns partitions that are there, and the rows of those that are not."""

    def __init__(self, services: Services, request: TxnOffsetCommitRequest, context: RequestContext) -> None:
        self.services = services
        self.request = request
        self.context = context
        self.unknown: list[TxnOffsetCommitResponseTopic] = []
        self.producer = enrolment.Producer(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
        self.support = (
            enrolment.Support.ADD
            if context.api_version >= ADDS_VERSION
            else enrolment.Support.ABORTABLE
            if context.api_version >= ABORTABLE_VERSION
            else enrolment.Support.VERIFY
        )

    def sort_out(self) -> Iterator[None]:
        """Leave what is there in the request, and make the rows of what is not."""
        existing: list[TxnOffsetCommitRequestTopic] = []
        for topic in self.request.topics:
            found = self._existing(topic)
            if found is not None:
                existing.append(found)
            yield
        self.request.topics = existing

    def enrol(self) -> Answer:
        request = self.request
        if not request.topics:
            return TxnOffsetCommitResponse(0, self.unknown)
        if not request.group_id:
            return self.refused(KafkaError(ErrorCode.INVALID_GROUP_ID))
        sequences = {(OFFSETS_TOPIC, self.services.groups.partition_for(request.group_id)): -1}
        refusals = enrolment.enrol(self.services, self.producer, sequences, self.support)
        return self.store_later(sequences) if refusals is None else self.store(refusals)

    def _existing(self, topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitRequestTopic | None:
        known = self.services.cluster.topic(topic.name)
        count = 0 if known is None else len(known.partitions)
        there: list[TxnOffsetCommitRequestPartition] = []
        missing: list[TxnOffsetCommitResponsePartition] = []
        for row in topic.partitions:
            if 0 <= row.partition_index < count:
                there.append(row)
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                missing.append(TxnOffsetCommitResponsePartition(row.partition_index, code))
        if missing:
            self.unknown.append(TxnOffsetCommitResponseTopic(topic.name, missing))
        return TxnOffsetCommitRequestTopic(topic.name, there) if there else None

    def store(self, refusals: enrolment.Refusals) -> Answer:
        if refusals:
            [code] = refusals.values()
            return self.refused(to_client_error(KafkaError(code)))
        return self.services.groups.ask(self.request.group_id, self._step, self.refused)

    async def store_later(self, sequences: dict[enrolment.Partition, int]) -> TxnOffsetCommitResponse:
        refusals = await enrolment.enrol_later(self.services, self.producer, sequences, self.support)
        answer = self.store(refusals)
        return answer if isinstance(answer, TxnOffsetCommitResponse) else await answer

    def _step(self, shard: GroupShard) -> TxnOffsetCommitResponse:
        from oncelog.coordinator.groups.offsets import commit_transactional_offsets

        answer = commit_transactional_offsets(shard, self.request, client_of(self.context))
        answer.topics = merged(self.unknown + answer.topics, attrgetter("name"))
        return answer

    def refused(self, error: KafkaError) -> TxnOffsetCommitResponse:
        code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self.context.api_version < LOADING_VERSION:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        rows = [
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(row.partition_index, code) for row in topic.partitions],
            )
            for topic in self.request.topics
        ]
        return TxnOffsetCommitResponse(0, merged(self.unknown + rows, attrgetter("name")))
