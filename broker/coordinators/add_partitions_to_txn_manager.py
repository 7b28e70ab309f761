"""`AddPartitionsToTxnManager`: a producer's transactional batches may be written only to partitions of its open
transaction.

Old producers add the partitions themselves, so the coordinator verifies; with transactions v2 the write adds them
(KIP-890). The result holds for writes in the same step. If the coordinator's record must reach the disk first, the
manager asks again after that, because the transaction may have ended meanwhile, and a write must not stay open after
its transaction. Source: Kafka's class of that name, ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.coordinators.transactions import PATIENCE_S
from oncelog.broker.seams.clock import real_time
from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.cluster import Cluster
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.coordinators.transactions import TransactionCoordinator


class SupportedOperation(IntEnum):
    """The operations and errors that a producer supports (Kafka: ``TransactionSupportedOperation``)."""

    DEFAULT_ERROR = 0
    GENERIC_ERROR_SUPPORTED = 1
    """It understands TRANSACTION_ABORTABLE."""
    ADD_PARTITION = 2
    """Its writes add partitions: transactions v2."""


class TransactionalProducer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


PartitionKey = tuple[str, int]
Refusals = dict[PartitionKey, ErrorCode]


class AddPartitionsToTxnManager:
    """Asks this node's transaction coordinator, for the partitions that this node leads."""

    def __init__(
        self, config: DynamicBrokerConfig, cluster: Cluster, transactions: TransactionCoordinator
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._transactions = transactions

    def verify_or_add_now(
        self,
        producer: TransactionalProducer,
        base_sequences: Mapping[PartitionKey, int],
        operation: SupportedOperation,
    ) -> Refusals | None:
        """Return the error of each partition that refuses the producer's batches. The others may be written in this
        step. None: the coordinator needs time, call `verify_or_add`.

        ``base_sequences`` holds the base sequence of each partition's batch.
        """
        asked, refusals = self._partitions_to_ask_about(producer, base_sequences, operation)
        if not asked:
            return refusals
        found = self._ask(producer, asked, operation)
        return None if self._must_wait(producer, found, operation) else refusals | found

    async def verify_or_add(
        self,
        producer: TransactionalProducer,
        base_sequences: Mapping[PartitionKey, int],
        operation: SupportedOperation,
    ) -> Refusals:
        """Wait until the id's last transaction is complete and the coordinator's record on the disk, and return the
        error of each partition that refuses the producer's batches.

        Looks at all partitions again after every wait: the marker of the open transaction may have been written.
        """
        until = real_time.monotonic() + PATIENCE_S
        while True:
            asked, refusals = self._partitions_to_ask_about(producer, base_sequences, operation)
            if not asked:
                return refusals
            found = self._ask(producer, asked, operation)
            if not self._must_wait(producer, found, operation):
                return refusals | found
            transactions, transactional_id = self._transactions, producer.transactional_id
            try:
                shard = transactions.shard(transactional_id)
                if (
                    ErrorCode.CONCURRENT_TRANSACTIONS in found.values()
                    and operation is SupportedOperation.ADD_PARTITION
                ):
                    if real_time.monotonic() >= until or not transactions.markers.is_ending(
                        shard, transactional_id
                    ):
                        return refusals | found
                    await transactions.markers.wait_ended(shard, transactional_id, until)
                else:
                    await transactions.runtime.log_of(shard).wait_durable()
            except KafkaError as error:
                return refusals | dict.fromkeys(asked, error.code)

    def _partitions_to_ask_about(
        self,
        producer: TransactionalProducer,
        base_sequences: Mapping[PartitionKey, int],
        operation: SupportedOperation,
    ) -> tuple[list[PartitionKey], Refusals]:
        """Return the partitions in which the producer has no open transaction, and those that refuse it at once."""
        adds = operation is SupportedOperation.ADD_PARTITION
        if not adds and not self._config.current.transaction_partition_verification_enable:
            return [], {}
        asked: list[PartitionKey] = []
        refusals: Refusals = {}
        for (topic, partition), sequence in base_sequences.items():
            try:
                log = self._cluster.leader_partition(topic, partition).log
            except KafkaError as error:
                # Not left to the append: each use of a partition that is being recovered takes the recovery further,
                # and the append could find it done. A group's coordinator answers for its own partition.
                if topic != OFFSETS_TOPIC:
                    refusals[topic, partition] = error.code
                continue
            try:
                if log.start_verification(
                    producer.producer_id, producer.producer_epoch, sequence, raises_epochs=adds
                ):
                    asked.append((topic, partition))
            except KafkaError as error:
                refusals[topic, partition] = error.code
        return asked, refusals

    def _ask(
        self, producer: TransactionalProducer, partitions: list[PartitionKey], operation: SupportedOperation
    ) -> Refusals:
        """Verify or add ``partitions`` at the coordinator, and return the error of each that it refuses."""
        from oncelog.coordinator.transactions.partitions import add_partitions, verify_partitions
        from oncelog.coordinator.transactions.state import TRANSACTIONS_V2

        try:
            shard = self._transactions.shard(producer.transactional_id)
            if operation is SupportedOperation.ADD_PARTITION:
                add_partitions(shard, *producer, partitions, TRANSACTIONS_V2)
                return {}
            missing = verify_partitions(shard, *producer, partitions)
        except KafkaError as error:
            # Producers expect INVALID_PRODUCER_EPOCH of a Produce, PRODUCER_FENCED of requests to the coordinator.
            fenced = error.code is ErrorCode.PRODUCER_FENCED
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_EPOCH if fenced else error.code)
        code = (
            ErrorCode.INVALID_TXN_STATE
            if operation is SupportedOperation.DEFAULT_ERROR
            else ErrorCode.TRANSACTION_ABORTABLE
        )
        return dict.fromkeys(missing, code)

    def _must_wait(
        self, producer: TransactionalProducer, refusals: Refusals, operation: SupportedOperation
    ) -> bool:
        """Whether `verify_or_add` would get a better result."""
        if (
            operation is SupportedOperation.ADD_PARTITION
            and ErrorCode.CONCURRENT_TRANSACTIONS in refusals.values()
        ):
            return True
        try:
            return not self._is_durable(producer)
        except KafkaError:
            return False

    def _is_durable(self, producer: TransactionalProducer) -> bool:
        """Whether the coordinator's last record of the id is as durable as ``flush.messages`` demands.

        Raises KafkaError as `TransactionCoordinator.shard`.
        """
        shard = self._transactions.shard(producer.transactional_id)
        known = shard.transactions.get(producer.transactional_id)
        return known is None or self._transactions.runtime.log_of(shard).is_durable_to(known.offset)
