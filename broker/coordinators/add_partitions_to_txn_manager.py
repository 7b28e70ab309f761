"""`AddPartitionsToTxnManager`: checks that the partitions of transactional batches belong to the producer's open
transaction.

Older producers add the partitions with requests of their own, and the coordinator verifies them here. With transactions
v2 the write adds them (KIP-890). A result is valid for writes in the same step only: the transaction may end
afterwards, and no batch may follow the end of its transaction. If the coordinator's record must be committed first, the
manager repeats the check. If the coordinator is on another node, its answer is older than the step: then a partition
that got a marker since the question refuses the batch (Kafka: ``VerificationGuard``). Source: Kafka's class of that
name, ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.coordinators.transactions import TRANSACTION_END_WAIT_S
from oncelog.broker.metadata.image import NO_LEADER
from oncelog.broker.seams.clock import real_time
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.coordinators.transactions import TransactionCoordinator
    from oncelog.broker.log.producers.verification import Verification


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
    """Verifies partitions that this node leads at the transaction coordinator of their producer, or adds them there."""

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
        """Return the error of each partition that refuses the producer's batches, or None if the coordinator cannot
        decide in this step: then call `verify_or_add`. The caller may write to the other partitions in this step.

        ``base_sequences`` holds the base sequence of each partition's batch.
        """
        unverified, refusals = self._unverified_partitions(producer, base_sequences, operation)
        if not unverified:
            return refusals
        if self._cluster.links is not None and self._coordinator(producer) != self._cluster.node_id:
            return None
        found = self._ask_coordinator(producer, unverified, operation)
        return None if self._must_wait(producer, found, operation) else refusals | found

    async def verify_or_add(
        self,
        producer: TransactionalProducer,
        base_sequences: Mapping[PartitionKey, int],
        operation: SupportedOperation,
    ) -> Refusals:
        """Wait until the id's last transaction is complete and the coordinator's record is committed. Returns the error
        of each partition that refuses the producer's batches.

        After every wait it checks all partitions again: a marker may have ended the open transaction meanwhile.
        """
        deadline_s = real_time.monotonic() + TRANSACTION_END_WAIT_S
        while True:
            unverified, refusals = self._unverified_partitions(producer, base_sequences, operation)
            if not unverified:
                return refusals
            if self._cluster.links is not None and (
                (coordinator := self._coordinator(producer)) != self._cluster.node_id
            ):
                return await self._ask_node(
                    coordinator, producer, base_sequences, unverified, refusals, operation
                )
            found = self._ask_coordinator(producer, unverified, operation)
            if not self._must_wait(producer, found, operation):
                return refusals | found
            transactions, transactional_id = self._transactions, producer.transactional_id
            try:
                shard = transactions.shard(transactional_id)
                if (
                    ErrorCode.CONCURRENT_TRANSACTIONS in found.values()
                    and operation is SupportedOperation.ADD_PARTITION
                ):
                    if real_time.monotonic() >= deadline_s or not transactions.markers.is_ending(
                        shard, transactional_id
                    ):
                        return refusals | found
                    await transactions.markers.wait_ended(shard, transactional_id, deadline_s)
                else:
                    metadata = shard.transactions[transactional_id].metadata
                    await transactions.runtime.log_of(shard).wait_durable(metadata.timeout_ms)
            except KafkaError as error:
                from oncelog.coordinator.transactions.errors import to_client_error

                return refusals | dict.fromkeys(unverified, to_client_error(error).code)

    # -- a coordinator on another node

    def _coordinator(self, producer: TransactionalProducer) -> int:
        """Return the node that is the producer's coordinator; -1 if there is none now."""
        runtime = self._transactions.runtime
        topic = self._cluster.topic(runtime.topic)
        partition = runtime.partition_for(producer.transactional_id)
        if topic is None or partition >= len(topic.partitions):
            return NO_LEADER
        return topic.partitions[partition].leader

    async def _ask_node(
        self,
        coordinator: int,
        producer: TransactionalProducer,
        base_sequences: Mapping[PartitionKey, int],
        unverified: list[PartitionKey],
        refusals: Refusals,
        operation: SupportedOperation,
    ) -> Refusals:
        """Verify or add ``unverified`` partitions there; return the errors of all that refuse, ``refusals`` among them.

        A partition whose producer had a transaction open before, and has none any more, refuses, too.
        """
        if coordinator == NO_LEADER:
            return refusals | dict.fromkeys(unverified, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        from oncelog.broker.coordinators.remote_verification import ask_node

        assert self._cluster.links is not None
        guards = {key: self._guard(producer, key) for key in unverified}
        verify_only = operation is not SupportedOperation.ADD_PARTITION
        found = await ask_node(
            self._cluster.links.to(coordinator), producer, unverified, verify_only=verify_only
        )
        refusals = refusals | {key: _producers_error(code, operation) for key, code in found.items()}
        for key in base_sequences:
            if key not in refusals and not self._is_verified(producer, key, guards.get(key)):
                refusals[key] = ErrorCode.INVALID_TXN_STATE
        return refusals

    def _guard(self, producer: TransactionalProducer, key: PartitionKey) -> Verification | None:
        return self._cluster.leader_partition(*key).log.producers.verification_of(producer.producer_id)

    def _is_verified(
        self, producer: TransactionalProducer, key: PartitionKey, guard: Verification | None
    ) -> bool:
        """Whether no marker has ended the producer's transaction in that partition since ``guard`` was made."""
        try:
            producers = self._cluster.leader_partition(*key).log.producers
        except KafkaError:
            return True  # the append or the group coordinator refuses for this reason
        return producers.is_verified(producer.producer_id, producer.producer_epoch, guard)

    # -- the coordinator on this node

    def _unverified_partitions(
        self,
        producer: TransactionalProducer,
        base_sequences: Mapping[PartitionKey, int],
        operation: SupportedOperation,
    ) -> tuple[list[PartitionKey], Refusals]:
        """Return the partitions that the coordinator must verify, because the producer has no open transaction in them,
        and the errors of those that refuse the producer without it."""
        adds = operation is SupportedOperation.ADD_PARTITION
        if not adds and not self._config.current.transaction_partition_verification_enable:
            return [], {}
        unverified: list[PartitionKey] = []
        refusals: Refusals = {}
        for (topic, partition), sequence in base_sequences.items():
            try:
                log = self._cluster.leader_partition(topic, partition).log
            except KafkaError as error:
                # This must not be left to the append: each access to a partition in recovery advances the recovery, so
                # the append could find it finished. The group coordinator checks its own partition itself.
                if topic != OFFSETS_TOPIC:
                    refusals[topic, partition] = error.code
                continue
            try:
                if log.start_verification(
                    producer.producer_id, producer.producer_epoch, sequence, raises_epochs=adds
                ):
                    unverified.append((topic, partition))
            except KafkaError as error:
                refusals[topic, partition] = error.code
        return unverified, refusals

    def _ask_coordinator(
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
            return dict.fromkeys(partitions, _producers_error(error.code, operation))
        return dict.fromkeys(missing, _producers_error(ErrorCode.TRANSACTION_ABORTABLE, operation))

    def _must_wait(
        self, producer: TransactionalProducer, refusals: Refusals, operation: SupportedOperation
    ) -> bool:
        """Whether the result is not final: the last transaction may end soon, or a record must be committed."""
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
        """Whether the coordinator's last record of the id is committed.

        Raises KafkaError as `CoordinatorRuntime.shard_of`.
        """
        # In the middle of a step: what is due now comes after it.
        shard = self._transactions.runtime.shard_of(producer.transactional_id)
        metadata = shard.transactions.get(producer.transactional_id)
        return metadata is None or self._transactions.runtime.log_of(shard).is_durable_to(metadata.offset)


def _producers_error(code: ErrorCode, operation: SupportedOperation) -> ErrorCode:
    """Return the error that a producer expects in a Produce response for the coordinator's error."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is SupportedOperation.DEFAULT_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code
