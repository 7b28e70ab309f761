"""EndTxn with and without transactions v2, and adding partitions to a transaction."""

from __future__ import annotations

import pytest

from oncelog.coordinator.transactions.end import end_transaction
from oncelog.coordinator.transactions.init_producer_id import init_producer_id
from oncelog.coordinator.transactions.partitions import add_partitions, verify_partitions
from oncelog.coordinator.transactions.state import PRODUCER_EPOCH_MAX, ProducerIdAndEpoch, TransactionState
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.harness.transaction_shard import TransactionShardHarness

P, Q = ("topic", 0), ("topic", 1)
ID = 1001


def begun(transaction_version: int = 2) -> TransactionShardHarness:
    harness = TransactionShardHarness(transaction_version)
    init_producer_id(harness.shard, "t", 60_000, None)
    return harness


def end(
    harness: TransactionShardHarness, epoch: int, *, commit: bool, version: int, producer_id: int = ID
) -> ProducerIdAndEpoch:
    return end_transaction(harness.shard, "t", producer_id, epoch, commit=commit, client_version=version)


def end_refused(
    harness: TransactionShardHarness, epoch: int, *, commit: bool, version: int, producer_id: int = ID
) -> ErrorCode:
    before = (harness.durable(), len(harness.log.entries))
    with pytest.raises(KafkaError) as caught:
        end(harness, epoch, commit=commit, version=version, producer_id=producer_id)
    assert (harness.durable(), len(harness.log.entries)) == before
    return caught.value.code


def add(
    harness: TransactionShardHarness,
    epoch: int,
    *partitions: tuple[str, int],
    version: int,
    producer_id: int = ID,
) -> None:
    add_partitions(harness.shard, "t", producer_id, epoch, partitions, version)


@pytest.mark.parametrize("commit", [True, False])
def test_classic(commit: bool) -> None:
    harness = begun()
    add(harness, 0, P, version=0)
    add(harness, 0, Q, version=0)
    assert harness.metadata().partitions == {"topic": (0, 1)}
    assert end(harness, 0, commit=commit, version=0) == (-1, -1)
    written = harness.finish()
    assert [partition for _, partition in written] == [P, Q]
    assert written[0][0].committed is commit
    assert written[0][0].metadata.producer_epoch == 0
    # A repeated request succeeds; the opposite decision is an error.
    end(harness, 0, commit=commit, version=0)
    assert end_refused(harness, 0, commit=not commit, version=0) is ErrorCode.INVALID_TXN_STATE
    add(harness, 0, Q, version=0)
    assert harness.metadata().partitions == {"topic": (1,)}


def test_classic_without_a_transaction() -> None:
    harness = begun()
    for commit in (True, False):
        assert end_refused(harness, 0, commit=commit, version=0) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("commit", [True, False])
def test_v2_raises_the_epoch_with_every_end(commit: bool) -> None:
    harness = begun()
    for epoch in range(3):
        add(harness, epoch, P, version=2)
        assert end(harness, epoch, commit=commit, version=2) == (ID, epoch + 1)
        [(pending, _)] = harness.finish()
        assert pending.metadata.producer_epoch == epoch + 1
        # The response was lost: repeat the request.
        assert end(harness, epoch, commit=commit, version=2) == (ID, epoch + 1)
        assert end_refused(harness, epoch, commit=not commit, version=2) is ErrorCode.INVALID_TXN_STATE
    assert end_refused(harness, 1, commit=commit, version=2) is ErrorCode.PRODUCER_FENCED


E, A, C = TransactionState.EMPTY, TransactionState.COMPLETE_ABORT, TransactionState.COMPLETE_COMMIT
FENCED, INVALID = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("state", "commit", "repeated", "expected"),
    [
        (E, False, True, FENCED),
        (E, False, False, "new epoch"),
        (E, True, True, FENCED),
        (E, True, False, INVALID),
        (A, False, True, "as before"),
        (A, False, False, "new epoch"),
        (A, True, True, INVALID),
        (A, True, False, INVALID),
        (C, False, True, INVALID),
        (C, False, False, "new epoch"),
        (C, True, True, "as before"),
        (C, True, False, INVALID),
    ],
)
def test_v2_ends_of_what_is_not_open(
    state: TransactionState, commit: bool, repeated: bool, expected: ErrorCode | str
) -> None:
    """The table above Kafka's ``TransactionCoordinator.endTransaction``."""
    harness = begun()
    init_producer_id(harness.shard, "t", 60_000, None)
    epoch = 1
    if state is not E:
        add(harness, epoch, P, version=2)
        end(harness, epoch, commit=state is C, version=2)
        harness.finish()
        epoch = 2
    assert harness.metadata().state is state
    sent = epoch - 1 if repeated else epoch
    if isinstance(expected, ErrorCode):
        assert end_refused(harness, sent, commit=commit, version=2) is expected
    elif expected == "as before":
        assert end(harness, sent, commit=commit, version=2) == (ID, epoch)
        assert not harness.prepared
    else:
        assert end(harness, sent, commit=commit, version=2) == (ID, epoch + 1)
        [pending] = harness.prepared
        assert not pending.partitions
        harness.finish()
        assert harness.metadata().state is A
        assert harness.metadata().producer_epoch == epoch + 1


@pytest.mark.parametrize("version", [0, 2])
def test_requests_are_refused_while_markers_are_due(version: int) -> None:
    harness = begun()
    add(harness, 0, P, version=version)
    end(harness, 0, commit=True, version=version)
    after = harness.metadata().producer_epoch
    for epoch in {0, after}:
        with pytest.raises(KafkaError) as caught:
            add(harness, epoch, P, version=version)
        assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        for commit in (True, False):
            found = end_refused(harness, epoch, commit=commit, version=version)
            assert found is ErrorCode.CONCURRENT_TRANSACTIONS
    with pytest.raises(KafkaError) as caught:
        verify_partitions(harness.shard, "t", ID, after, [P])
    assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_a_crash_after_the_decision_ends_it_once(commit: bool, version: int) -> None:
    harness = begun()
    add(harness, 0, P, Q, version=version)
    end(harness, 0, commit=commit, version=version)
    decided = harness.metadata()
    for _ in range(2):
        harness.crash()
        [pending] = harness.prepared
        assert pending.committed is commit
        assert pending.metadata == decided
        assert list(pending.partitions) == [P, Q]
    harness.finish()
    harness.crash()
    assert not harness.prepared
    assert harness.metadata().state is (C if commit else A)


def test_v2_used_up_epochs_bring_a_new_producer_id() -> None:
    harness = begun()
    last = PRODUCER_EPOCH_MAX - 1
    harness.shard.transition_to("t", harness.metadata()._replace(producer_epoch=last))
    add(harness, last, P, version=2)
    assert end(harness, last, commit=True, version=2) == (ID + 1, 0)
    assert harness.prepared[0].metadata.producer_id == ID
    assert harness.prepared[0].metadata.producer_epoch == PRODUCER_EPOCH_MAX
    harness.crash()
    harness.finish()
    assert (harness.metadata().producer_id, harness.metadata().producer_epoch) == (ID + 1, 0)
    # The response was lost, also with a restart in between.
    harness.crash()
    assert end(harness, last, commit=True, version=2) == (ID + 1, 0)
    assert end_refused(harness, last, commit=False, version=2) is ErrorCode.INVALID_TXN_STATE
    add(harness, 0, P, version=2, producer_id=ID + 1)
    assert end_refused(harness, last, commit=True, version=2) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_errors_by_producer_and_state() -> None:
    harness = begun()
    add(harness, 0, P, version=0)
    for version in (0, 2):
        assert end_refused(harness, 0, commit=True, version=version, producer_id=7) is (
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )
        assert end_refused(harness, 1, commit=True, version=version) is ErrorCode.PRODUCER_FENCED
        for name, code in (("", ErrorCode.INVALID_REQUEST), ("x", ErrorCode.INVALID_PRODUCER_ID_MAPPING)):
            with pytest.raises(KafkaError) as caught:
                end_transaction(harness.shard, name, ID, 0, commit=True, client_version=version)
            assert caught.value.code is code
    for producer_id, epoch, code in (
        (7, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ID, 1, ErrorCode.PRODUCER_FENCED),
    ):
        with pytest.raises(KafkaError) as caught:
            add(harness, epoch, P, version=0, producer_id=producer_id)
        assert caught.value.code is code
        with pytest.raises(KafkaError) as caught:
            verify_partitions(harness.shard, "t", producer_id, epoch, [P])
        assert caught.value.code is code


def test_asking_which_partitions_were_added_adds_none() -> None:
    harness = begun()
    add(harness, 0, P, version=0)
    before = len(harness.log.entries)
    assert verify_partitions(harness.shard, "t", ID, 0, [P, Q]) == [Q]
    add(harness, 0, P, version=0)
    assert len(harness.log.entries) == before


def test_v2_needs_records_that_can_hold_it() -> None:
    harness = begun(transaction_version=0)
    with pytest.raises(KafkaError) as caught:
        add(harness, 0, P, version=2)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    add(harness, 0, P, version=0)
    assert end_refused(harness, 0, commit=True, version=2) is ErrorCode.UNSUPPORTED_VERSION
    end(harness, 0, commit=True, version=0)
    harness.finish()


def test_a_transaction_of_v2_outlives_the_downgrade() -> None:
    harness = begun()
    last = PRODUCER_EPOCH_MAX - 1
    harness.shard.transition_to("t", harness.metadata()._replace(producer_epoch=last))
    add(harness, last, P, version=2)
    end(harness, last, commit=True, version=2)
    harness.transaction_version = 0
    harness.crash()
    harness.finish()
    assert (harness.metadata().producer_id, harness.metadata().producer_epoch) == (ID + 1, 0)
    assert harness.log.entries[-1][1] is not None
    assert harness.log.entries[-1][1][:2] == b"\0\0"
    before = harness.durable()
    harness.crash()
    assert harness.durable() == before
