"""Whether a producer's transactional batches may be written: the partition must be part of its open transaction.

Older producers have added it themselves, and the coordinator is asked; with transactions v2 the write adds it. What
was found holds for writes in the same step; where the coordinator's record must reach the disk first, it is asked
again after that, since the transaction may have ended meanwhile: no write can hang in one that has (KIP-890). Source:
Kafka's ``ReplicaManager.maybeSendPartitionsToTransactionCoordinator``, ``AddPartitionsToTxnManager``.
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

    from oncelog.broker.services import Services


class Support(IntEnum):
    """What a producer understands (Kafka: ``TransactionSupportedOperation``)."""

    VERIFY = 0
    ABORTABLE = 1
    """It knows TRANSACTION_ABORTABLE."""
    ADD = 2
    """Its writes add partitions: transactions v2."""


class Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


Partition = tuple[str, int]
Refusals = dict[Partition, ErrorCode]


def enrol(
    services: Services, producer: Producer, base_sequences: Mapping[Partition, int], support: Support
) -> Refusals | None:
    """Why partitions refuse the producer's batches; the others may be written in this step. None: `enrol_later` tells.

    ``base_sequences``: of each partition's batch. A partition that is not here is refused with what is said of it.
    """
    asked, refusals = _must_ask(services, producer, base_sequences, support)
    if not asked:
        return refusals
    found = _ask(services, producer, asked, support)
    return None if _must_wait(services, producer, found, support) else refusals | found


async def enrol_later(
    services: Services, producer: Producer, base_sequences: Mapping[Partition, int], support: Support
) -> Refusals:
    """`enrol`, once the id's last transaction is complete and the record is on the disk.

    After every wait all partitions are looked at again: one that had the transaction open may have its marker by now.
    """
    until = real_time.monotonic() + PATIENCE_S
    while True:
        asked, refusals = _must_ask(services, producer, base_sequences, support)
        if not asked:
            return refusals
        found = _ask(services, producer, asked, support)
        if not _must_wait(services, producer, found, support):
            return refusals | found
        try:
            shard = services.transactions.shard(producer.transactional_id)
            if ErrorCode.CONCURRENT_TRANSACTIONS in found.values() and support is Support.ADD:
                if real_time.monotonic() >= until or not services.transactions.is_ending(
                    shard, producer.transactional_id
                ):
                    return refusals | found
                await services.transactions.wait_ended(shard, producer.transactional_id, until)
            else:
                await services.transactions.journal_of(shard).wait_durable()
        except KafkaError as error:
            return refusals | dict.fromkeys(asked, error.code)


def _must_ask(
    services: Services, producer: Producer, base_sequences: Mapping[Partition, int], support: Support
) -> tuple[list[Partition], Refusals]:
    """The partitions that have no transaction of the producer open, and those that refuse it at once."""
    if support is not Support.ADD and not services.config.current.transaction_partition_verification_enable:
        return [], {}
    asked: list[Partition] = []
    refusals: Refusals = {}
    for (topic, partition), sequence in base_sequences.items():
        try:
            log = services.cluster.leader_partition(topic, partition).log
        except KafkaError as error:
            # Not left to the append: every use of a partition that is being recovered takes that further, so it may be
            # there by then. A group's coordinator answers for its own.
            if topic != OFFSETS_TOPIC:
                refusals[topic, partition] = error.code
            continue
        try:
            if log.start_verification(
                producer.producer_id, producer.producer_epoch, sequence, raises_epochs=support is Support.ADD
            ):
                asked.append((topic, partition))
        except KafkaError as error:
            refusals[topic, partition] = error.code
    return asked, refusals


def _ask(services: Services, producer: Producer, partitions: list[Partition], support: Support) -> Refusals:
    """Ask the coordinator, or add the partitions; why it refuses those that it does."""
    from oncelog.coordinator.transactions.partitions import add_partitions, verify_partitions
    from oncelog.coordinator.transactions.state import TRANSACTIONS_V2

    try:
        shard = services.transactions.shard(producer.transactional_id)
        if support is Support.ADD:
            add_partitions(shard, *producer, partitions, TRANSACTIONS_V2)
            return {}
        missing = verify_partitions(shard, *producer, partitions)
    except KafkaError as error:
        # Producers expect this of a Produce; the other is for what they ask of the coordinator.
        fenced = error.code is ErrorCode.PRODUCER_FENCED
        return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_EPOCH if fenced else error.code)
    code = ErrorCode.INVALID_TXN_STATE if support is Support.VERIFY else ErrorCode.TRANSACTION_ABORTABLE
    return dict.fromkeys(missing, code)


def _must_wait(services: Services, producer: Producer, refusals: Refusals, support: Support) -> bool:
    """Whether `enrol_later` would give a better answer."""
    if support is Support.ADD and ErrorCode.CONCURRENT_TRANSACTIONS in refusals.values():
        return True
    try:
        return not is_durable(services, producer)
    except KafkaError:
        return False


def is_durable(services: Services, producer: Producer) -> bool:
    """Whether the record that the coordinator's word rests on is as durable as the settings promise.

    Raises KafkaError as `Transactions.shard`.
    """
    shard = services.transactions.shard(producer.transactional_id)
    known = shard.transactions.get(producer.transactional_id)
    return known is None or services.transactions.journal_of(shard).is_durable_to(known.offset)
