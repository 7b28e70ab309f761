"""Asks the transaction coordinator on another node to verify partitions of a transaction, or to add them, by
AddPartitionsToTxn as brokers send it (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.network.network import LinkDownError
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.broker.coordinators.add_partitions_to_txn_manager import (
        PartitionKey,
        Refusals,
        TransactionalProducer,
    )
    from oncelog.broker.network.network import Link

VERSION = 5
"""The version of AddPartitionsToTxn that brokers send."""


async def ask_node(
    link: Link, producer: TransactionalProducer, partitions: Iterable[PartitionKey], *, verify_only: bool
) -> Refusals:
    """Return the error of each partition that the coordinator at the end of ``link`` refuses; NETWORK_EXCEPTION for all
    if nobody knows what it has done.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    rows = [AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in topics.items()]
    request = AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(*producer, verify_only, rows)])
    try:
        response = await link.call(request, VERSION)
    except LinkDownError:
        return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
    if response.error_code:
        return dict.fromkeys(partitions, ErrorCode(response.error_code))
    return {
        (topic.name, row.partition_index): ErrorCode(row.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for row in topic.results_by_partition
        if row.partition_error_code
    }
