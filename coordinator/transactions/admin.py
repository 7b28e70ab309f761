"""ListTransactions and DescribeTransactions (KIP-664, KIP-994, KIP-1152).

Source: Kafka's ``TransactionStateManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.coordinator.regular_expressions import ExpressionError, RegularExpression, steps_of
from oncelog.coordinator.transactions.state import STATES_BY_LABEL
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.describe_transactions import TopicData
from oncelog.wire.messages.describe_transactions import TransactionState as DescribedTransaction
from oncelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from oncelog.coordinator.transactions.shard import TransactionShard


def list_transactions(
    shards: Iterable[TransactionShard],
    request: ListTransactionsRequest,
    response: ListTransactionsResponse,
    may_describe: Callable[[str], bool],
) -> Iterator[None]:
    """Fill the response with the transactions that pass every filter and that the client may describe; yield after each
    one that was looked at, more often where that took long. Raises KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    states = {STATES_BY_LABEL[name] for name in request.state_filters if name in STATES_BY_LABEL}
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in STATES_BY_LABEL]
    response.unknown_state_filters = unknown
    producer_ids = set(request.producer_id_filters)
    text = request.transactional_id_pattern
    try:
        pattern = RegularExpression(text) if text else None
        if pattern is not None:
            yield from steps_of(pattern.compile_work)
        for shard in shards:
            now = shard.context.now_ms()
            for name, transaction in list(shard.transactions.items()):
                metadata = transaction.metadata
                if (
                    (not producer_ids or metadata.producer_id in producer_ids)
                    and (not request.state_filters or metadata.state in states)
                    and (request.duration_filter < 0 or now - metadata.start_ms > request.duration_filter)
                    and (pattern is None or pattern.matches(name))
                    and may_describe(name)
                ):
                    response.transaction_states.append(
                        TransactionState(name, metadata.producer_id, metadata.state.label)
                    )
                yield
                if pattern is not None:
                    yield from steps_of(pattern.work(name))
    except ExpressionError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"Transaction ID pattern `{text}` is not a valid regular expression: {error}.",
        ) from error


def describe_transaction(shard: TransactionShard, transactional_id: str) -> DescribedTransaction:
    """The described transaction. Raises KafkaError: TRANSACTIONAL_ID_NOT_FOUND."""
    transaction = shard.transactions.get(transactional_id)
    if transaction is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    metadata = transaction.metadata
    partitions = metadata.partitions
    pending = transaction.volatile.pending_end
    if pending is not None:
        # Partitions that have their marker are left out.
        partitions = {}
        for topic, partition in pending.partitions:
            partitions[topic] = (*partitions.get(topic, ()), partition)
    return DescribedTransaction(
        0,
        transactional_id,
        metadata.state.label,
        metadata.timeout_ms,
        metadata.start_ms,
        metadata.producer_id,
        metadata.producer_epoch,
        [TopicData(topic, list(ids)) for topic, ids in partitions.items()],
    )
