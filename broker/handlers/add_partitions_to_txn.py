"""AddPartitionsToTxn (API key 24): adds partitions to a transaction, all of them or none.

- Clients send versions 0 to 3, for one transaction. Brokers send later versions, for several, or only to verify that
  the partitions are part of the transaction (``verify_only``, KIP-890).
- A partition that does not exist fails its whole transaction: the other partitions get OPERATION_NOT_ATTEMPTED.
- Before version 2 PRODUCER_FENCED is returned as INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.requests.authorization import (
    CLUSTER_ACTION,
    TOPIC_RESOURCE,
    TRANSACTIONAL_ID_RESOURCE,
    WRITE,
)
from oncelog.broker.requests.request import Pending, wait_for_response
from oncelog.broker.scheduling.slices import Slices
from oncelog.coordinator.transactions.errors import producer_fenced_or_older
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from oncelog.wire.steps import finish
from oncelog.wire.topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext
    from oncelog.coordinator.transactions.shard import TransactionShard
    from oncelog.wire.steps import Steps

FENCED_VERSION = 2
BATCHED_VERSION = 4

Response = AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]


def handle(services: Services, request: AddPartitionsToTxnRequest, context: RequestContext) -> Response:
    if context.api_version < BATCHED_VERSION:
        transaction = AddPartitionsToTxnTransaction(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            False,
            request.v3_and_below_topics,
        )
        return _one_transaction(services, transaction, context)
    services.authorization.require_cluster(context, CLUSTER_ACTION)
    if len(request.transactions) == 1:
        return _one_transaction(services, request.transactions[0], context)
    return Pending(_several_transactions(services, request, context))


async def _several_transactions(
    services: Services, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    response = AddPartitionsToTxnResponse()
    slices = Slices()
    for transaction in request.transactions:
        one = await wait_for_response(_one_transaction(services, transaction, context))
        response.results_by_transaction += one.results_by_transaction
        if slices.is_over():
            await slices.pause()
    return response


def _one_transaction(
    services: Services, transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> Response:
    return chunked_steps(_one_in_steps(services, transaction, context))


def _one_in_steps(
    services: Services, transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> Steps[Response]:
    """Look at a topic at each step, then add the partitions."""
    partitions = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    response_with = partial(_response, transaction.transactional_id, partitions, context.api_version)

    def error_response(error: KafkaError) -> AddPartitionsToTxnResponse:
        return response_with({}, producer_fenced_or_older(error.code, context.api_version, FENCED_VERSION))

    denied: set[str] = set()
    if context.api_version < BATCHED_VERSION:  # later ones are for brokers
        name, authorization = transaction.transactional_id, services.authorization
        if not authorization.allows(context, WRITE, TRANSACTIONAL_ID_RESOURCE, name):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return (yield from _response_in_steps(name, partitions, context.api_version, {}, code))
        may_write = authorization.predicate(context, WRITE, TOPIC_RESOURCE)
        for topic in transaction.topics:
            if topic.name in INTERNAL_TOPICS or not may_write(topic.name):
                denied.add(topic.name)
            yield
    errors: dict[tuple[str, int], ErrorCode] = {}
    for partition in partitions:
        if partition[0] in denied:
            errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not _exists(services.cluster, *partition):
            errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield
    if errors:
        name, version = transaction.transactional_id, context.api_version
        return (
            yield from _response_in_steps(
                name, partitions, version, errors, ErrorCode.OPERATION_NOT_ATTEMPTED
            )
        )
    if not transaction.transactional_id:
        return response_with({}, ErrorCode.INVALID_REQUEST)
    step = partial(_step, transaction, partitions, response_with, context.api_version)
    return services.transactions.serve(transaction.transactional_id, step, error_response)


def _step(
    transaction: AddPartitionsToTxnTransaction,
    partitions: list[tuple[str, int]],
    response_with: partial[AddPartitionsToTxnResponse],
    api_version: int,
    shard: TransactionShard,
) -> AddPartitionsToTxnResponse:
    from oncelog.coordinator.transactions.partitions import add_partitions, verify_partitions
    from oncelog.coordinator.transactions.state import TRANSACTIONS_V0, TRANSACTIONS_V2

    name = transaction.transactional_id
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        missing = verify_partitions(shard, name, producer_id, epoch, partitions)
        return response_with(dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE), ErrorCode.NONE)
    version = TRANSACTIONS_V2 if api_version >= BATCHED_VERSION else TRANSACTIONS_V0
    add_partitions(shard, name, producer_id, epoch, partitions, version)
    return response_with({}, ErrorCode.NONE)


def _exists(cluster: Cluster, topic: str, partition: int) -> bool:
    image = cluster.topic(topic)
    return image is not None and 0 <= partition < len(image.partitions)


def _response(
    transactional_id: str,
    partitions: list[tuple[str, int]],
    api_version: int,
    errors: dict[tuple[str, int], ErrorCode],
    default: ErrorCode,
) -> AddPartitionsToTxnResponse:
    """Return the response with a result for each partition: its code in ``errors``, else ``default``."""
    return finish(_response_in_steps(transactional_id, partitions, api_version, errors, default))


def _response_in_steps(
    transactional_id: str,
    partitions: list[tuple[str, int]],
    api_version: int,
    errors: dict[tuple[str, int], ErrorCode],
    default: ErrorCode,
) -> Steps[AddPartitionsToTxnResponse]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for topic, partition in dict.fromkeys(partitions):
        code = errors.get((topic, partition), default)
        topics.setdefault(topic, []).append(AddPartitionsToTxnPartitionResult(partition, code))
        yield
    topic_results = [AddPartitionsToTxnTopicResult(topic, results) for topic, results in topics.items()]
    if api_version < BATCHED_VERSION:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult(transactional_id, topic_results)]
    )
