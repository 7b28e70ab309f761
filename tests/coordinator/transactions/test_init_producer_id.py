"""InitProducerId with a transactional id, as Kafka's TransactionCoordinator and TransactionMetadata decide it."""

from __future__ import annotations

import pytest

from oncelog.coordinator.transactions.end import end_transaction
from oncelog.coordinator.transactions.init_producer_id import init_producer_id
from oncelog.coordinator.transactions.partitions import add_partitions
from oncelog.coordinator.transactions.state import PRODUCER_EPOCH_MAX, ProducerIdAndEpoch, TransactionState
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.transaction_shard import TransactionShardHarness

P = ("topic", 0)


def init(
    harness: TransactionShardHarness, expected: tuple[int, int] | None = None, timeout_ms: int = 60_000
) -> ProducerIdAndEpoch:
    return init_producer_id(
        harness.shard, "t", timeout_ms, None if expected is None else ProducerIdAndEpoch(*expected)
    )


def refused(
    harness: TransactionShardHarness, code: ErrorCode, expected: tuple[int, int] | None = None
) -> None:
    before = len(harness.log.entries)
    with pytest.raises(KafkaError) as caught:
        init(harness, expected)
    assert caught.value.code is code
    assert len(harness.log.entries) == before


def set_epoch(harness: TransactionShardHarness, epoch: int) -> None:
    harness.shard.transition_to("t", harness.metadata()._replace(producer_epoch=epoch))


def test_every_initialisation_raises_the_epoch() -> None:
    harness = TransactionShardHarness()
    assert init(harness) == (1001, 0)
    assert init(harness) == (1001, 1)
    harness.crash()
    assert init(harness) == (1001, 2)
    assert harness.metadata().state is TransactionState.EMPTY


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_invalid_timeouts(timeout_ms: int) -> None:
    with pytest.raises(KafkaError) as caught:
        init(TransactionShardHarness(), timeout_ms=timeout_ms)
    assert caught.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_that_goes_on_after_an_error_raises_its_own_epoch() -> None:
    harness = TransactionShardHarness()
    init(harness)
    assert init(harness, (1001, 0)) == (1001, 1)
    # The response was lost: the repeated request changes nothing.
    assert init(harness, (1001, 0)) == (1001, 1)
    assert init(harness, (1001, 1)) == (1001, 2)
    refused(harness, ErrorCode.PRODUCER_FENCED, (1001, 0))


def test_a_replaced_producer_is_fenced() -> None:
    harness = TransactionShardHarness()
    init(harness)
    init(harness)
    refused(harness, ErrorCode.PRODUCER_FENCED, (1001, 0))
    refused(harness, ErrorCode.PRODUCER_FENCED, (77, 0))


def test_an_expired_id_begins_anew_whatever_its_producer_believes() -> None:
    assert init(TransactionShardHarness(), (77, 12)) == (1001, 0)


@pytest.mark.parametrize(("transaction_version", "epoch"), [(0, 2), (1, 2), (2, 2)])
def test_an_open_transaction_is_aborted_first(transaction_version: int, epoch: int) -> None:
    harness = TransactionShardHarness(transaction_version)
    init(harness)
    add_partitions(harness.shard, "t", 1001, 0, [P], 0)
    with pytest.raises(KafkaError) as caught:
        init(harness)
    assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    [pending] = harness.prepared
    assert not pending.committed
    assert pending.metadata.producer_epoch == 1
    refused(harness, ErrorCode.CONCURRENT_TRANSACTIONS)
    harness.finish()
    assert harness.metadata().state is TransactionState.COMPLETE_ABORT
    assert init(harness) == (1001, epoch)


def test_the_old_producer_cannot_commit_what_a_new_one_aborts() -> None:
    harness = TransactionShardHarness()
    init(harness)
    add_partitions(harness.shard, "t", 1001, 0, [P], 0)
    with pytest.raises(KafkaError):
        init(harness)
    harness.finish()
    init(harness)
    for version in (0, 2):
        with pytest.raises(KafkaError) as caught:
            end_transaction(harness.shard, "t", 1001, 0, commit=True, client_version=version)
        assert caught.value.code is ErrorCode.PRODUCER_FENCED


def test_used_up_epochs_bring_a_new_producer_id() -> None:
    harness = TransactionShardHarness()
    init(harness)
    set_epoch(harness, PRODUCER_EPOCH_MAX - 2)
    assert init(harness) == (1001, PRODUCER_EPOCH_MAX - 1)
    assert init(harness) == (1002, 0)
    refused(harness, ErrorCode.PRODUCER_FENCED, (1001, PRODUCER_EPOCH_MAX - 1))


def test_the_owner_of_the_last_epoch_may_repeat_its_request() -> None:
    harness = TransactionShardHarness()
    init(harness)
    set_epoch(harness, PRODUCER_EPOCH_MAX - 1)
    assert init(harness, (1001, PRODUCER_EPOCH_MAX - 1)) == (1002, 0)
    assert init(harness, (1001, PRODUCER_EPOCH_MAX - 1)) == (1002, 0)
    refused(harness, ErrorCode.PRODUCER_FENCED, (1001, PRODUCER_EPOCH_MAX - 2))


def test_fencing_uses_the_reserved_highest_epoch() -> None:
    """A producer with the last epoch but one can still be fenced; the next one gets a new producer id."""
    harness = TransactionShardHarness(1)
    init(harness)
    set_epoch(harness, PRODUCER_EPOCH_MAX - 1)
    add_partitions(harness.shard, "t", 1001, PRODUCER_EPOCH_MAX - 1, [P], 0)
    with pytest.raises(KafkaError):
        init(harness)
    assert harness.prepared[0].metadata.producer_epoch == PRODUCER_EPOCH_MAX
    harness.finish()
    assert init(harness) == (1002, 0)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_of_the_log(code: ErrorCode, told: ErrorCode) -> None:
    harness = TransactionShardHarness()
    harness.log.fails_with = code
    refused(harness, told)
    assert not harness.shard.transactions
    harness.log.fails_with = None
    assert init(harness).producer_epoch == 0
    harness.log.fails_with = code
    refused(harness, told)
    harness.log.fails_with = None
    assert init(harness).producer_epoch == 1


def test_the_last_epoch_is_forgotten_at_a_restart() -> None:
    """Kafka does not store the last epoch either: a repeated request is fenced then."""
    harness = TransactionShardHarness()
    init(harness)
    init(harness, (1001, 0))
    harness.crash()
    refused(harness, ErrorCode.PRODUCER_FENCED, (1001, 0))
