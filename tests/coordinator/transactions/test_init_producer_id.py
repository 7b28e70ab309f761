"""InitProducerId with a transactional id, as Kafka's TransactionCoordinator and TransactionMetadata decide it."""

from __future__ import annotations

import pytest

from oncelog.coordinator.transactions.end import end_transaction
from oncelog.coordinator.transactions.init_producer_id import init_producer_id
from oncelog.coordinator.transactions.partitions import add_partitions
from oncelog.coordinator.transactions.state import PRODUCER_EPOCH_MAX, ProducerIdAndEpoch, TransactionState
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.coordinator.transactions.rig import Rig

P = ("topic", 0)


def init(rig: Rig, expected: tuple[int, int] | None = None, timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
    return init_producer_id(
        rig.shard, "t", timeout_ms, None if expected is None else ProducerIdAndEpoch(*expected)
    )


def refused(rig: Rig, code: ErrorCode, expected: tuple[int, int] | None = None) -> None:
    before = len(rig.log.records)
    with pytest.raises(KafkaError) as caught:
        init(rig, expected)
    assert caught.value.code is code
    assert len(rig.log.records) == before


def set_epoch(rig: Rig, epoch: int) -> None:
    rig.shard.transition_to("t", rig.metadata()._replace(producer_epoch=epoch))


def test_every_initialisation_raises_the_epoch() -> None:
    rig = Rig()
    assert init(rig) == (1001, 0)
    assert init(rig) == (1001, 1)
    rig.crash()
    assert init(rig) == (1001, 2)
    assert rig.metadata().state is TransactionState.EMPTY


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_is_none(timeout_ms: int) -> None:
    with pytest.raises(KafkaError) as caught:
        init(Rig(), timeout_ms=timeout_ms)
    assert caught.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_producer_that_goes_on_after_an_error_raises_its_own_epoch() -> None:
    rig = Rig()
    init(rig)
    assert init(rig, (1001, 0)) == (1001, 1)
    # The response was lost: the repeated request changes nothing.
    assert init(rig, (1001, 0)) == (1001, 1)
    assert init(rig, (1001, 1)) == (1001, 2)
    refused(rig, ErrorCode.PRODUCER_FENCED, (1001, 0))


def test_who_was_replaced_is_fenced() -> None:
    rig = Rig()
    init(rig)
    init(rig)
    refused(rig, ErrorCode.PRODUCER_FENCED, (1001, 0))
    refused(rig, ErrorCode.PRODUCER_FENCED, (77, 0))


def test_an_expired_id_begins_anew_whatever_its_producer_believes() -> None:
    assert init(Rig(), (77, 12)) == (1001, 0)


@pytest.mark.parametrize(("transaction_version", "epoch"), [(0, 2), (1, 2), (2, 2)])
def test_an_open_transaction_is_aborted_first(transaction_version: int, epoch: int) -> None:
    rig = Rig(transaction_version)
    init(rig)
    add_partitions(rig.shard, "t", 1001, 0, [P], 0)
    with pytest.raises(KafkaError) as caught:
        init(rig)
    assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    [pending] = rig.prepared
    assert not pending.committed
    assert pending.metadata.producer_epoch == 1
    refused(rig, ErrorCode.CONCURRENT_TRANSACTIONS)
    rig.finish()
    assert rig.metadata().state is TransactionState.COMPLETE_ABORT
    assert init(rig) == (1001, epoch)


def test_the_old_producer_cannot_commit_what_a_new_one_aborts() -> None:
    rig = Rig()
    init(rig)
    add_partitions(rig.shard, "t", 1001, 0, [P], 0)
    with pytest.raises(KafkaError):
        init(rig)
    rig.finish()
    init(rig)
    for version in (0, 2):
        with pytest.raises(KafkaError) as caught:
            end_transaction(rig.shard, "t", 1001, 0, commit=True, client_version=version)
        assert caught.value.code is ErrorCode.PRODUCER_FENCED


def test_used_up_epochs_bring_a_new_producer_id() -> None:
    rig = Rig()
    init(rig)
    set_epoch(rig, PRODUCER_EPOCH_MAX - 2)
    assert init(rig) == (1001, PRODUCER_EPOCH_MAX - 1)
    assert init(rig) == (1002, 0)
    refused(rig, ErrorCode.PRODUCER_FENCED, (1001, PRODUCER_EPOCH_MAX - 1))


def test_the_owner_of_the_last_epoch_may_repeat_its_request() -> None:
    rig = Rig()
    init(rig)
    set_epoch(rig, PRODUCER_EPOCH_MAX - 1)
    assert init(rig, (1001, PRODUCER_EPOCH_MAX - 1)) == (1002, 0)
    assert init(rig, (1001, PRODUCER_EPOCH_MAX - 1)) == (1002, 0)
    refused(rig, ErrorCode.PRODUCER_FENCED, (1001, PRODUCER_EPOCH_MAX - 2))


def test_fencing_uses_the_epoch_that_is_nobodys() -> None:
    """A producer with the last epoch but one can still be fenced; the next one gets a new producer id."""
    rig = Rig(1)
    init(rig)
    set_epoch(rig, PRODUCER_EPOCH_MAX - 1)
    add_partitions(rig.shard, "t", 1001, PRODUCER_EPOCH_MAX - 1, [P], 0)
    with pytest.raises(KafkaError):
        init(rig)
    assert rig.prepared[0].metadata.producer_epoch == PRODUCER_EPOCH_MAX
    rig.finish()
    assert init(rig) == (1002, 0)


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
def test_a_log_that_takes_nothing(code: ErrorCode, told: ErrorCode) -> None:
    rig = Rig()
    rig.log.fails_with = code
    refused(rig, told)
    assert not rig.shard.transactions
    rig.log.fails_with = None
    assert init(rig).producer_epoch == 0
    rig.log.fails_with = code
    refused(rig, told)
    rig.log.fails_with = None
    assert init(rig).producer_epoch == 1


def test_two_answers_after_a_restart_are_not_remembered() -> None:
    """Kafka does not store the last epoch either: a repeated request is fenced then."""
    rig = Rig()
    init(rig)
    init(rig, (1001, 0))
    rig.crash()
    refused(rig, ErrorCode.PRODUCER_FENCED, (1001, 0))
