"""Timeouts and expired ids take effect when Kafka's periodic checks would find them."""

from __future__ import annotations

import pytest

from oncelog.coordinator.transactions.admin import describe_transaction, list_transactions
from oncelog.coordinator.transactions.end import end_transaction
from oncelog.coordinator.transactions.init_producer_id import init_producer_id
from oncelog.coordinator.transactions.partitions import add_partitions
from oncelog.coordinator.transactions.state import TransactionState
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from tests.coordinator.transactions.rig import NOW_MS, Rig

P = ("topic", 0)
DAY_MS = 24 * 3_600_000


def open_transaction(rig: Rig, name: str = "t", timeout_ms: int = 1_000) -> tuple[int, int]:
    owner = init_producer_id(rig.shard, name, timeout_ms, None)
    add_partitions(rig.shard, name, *owner, [P], 0)
    return owner


@pytest.mark.parametrize("version", [0, 2])
def test_an_open_transaction_is_aborted_with_a_new_epoch(version: int) -> None:
    rig = Rig(version)
    owner = open_transaction(rig)
    rig.pass_time(9_999)
    assert rig.metadata().state is TransactionState.ONGOING
    rig.pass_time(1)
    [pending] = rig.prepared
    assert not pending.committed
    assert pending.metadata.producer_epoch == 1
    rig.finish()
    with pytest.raises(KafkaError) as caught:
        end_transaction(rig.shard, "t", *owner, commit=True, client_version=version)
    assert caught.value.code is (ErrorCode.INVALID_TXN_STATE if version else ErrorCode.PRODUCER_FENCED)


def test_the_timeout_counts_from_the_first_partition() -> None:
    rig = Rig()
    owner = open_transaction(rig, timeout_ms=15_000)
    rig.pass_time(9_000)
    add_partitions(rig.shard, "t", *owner, [("topic", 1)], 0)
    rig.pass_time(10_000)
    assert not rig.prepared
    rig.pass_time(1_000)
    assert len(rig.prepared) == 1


def test_a_commit_before_the_timeout_stands() -> None:
    rig = Rig()
    owner = open_transaction(rig)
    end_transaction(rig.shard, "t", *owner, commit=True, client_version=0)
    rig.pass_time(60_000)
    assert [pending.committed for pending in rig.prepared] == [True]
    rig.finish()
    rig.pass_time(60_000)
    assert not rig.prepared


def test_the_timeout_goes_on_over_a_crash() -> None:
    rig = Rig()
    open_transaction(rig)
    rig.now_ms += 20_000
    rig.crash()
    rig.pass_time(0)
    assert len(rig.prepared) == 1


def test_a_log_that_takes_nothing_is_asked_again() -> None:
    rig = Rig()
    open_transaction(rig)
    rig.log.fails_with = ErrorCode.KAFKA_STORAGE_ERROR
    rig.pass_time(10_000)
    assert rig.metadata().state is TransactionState.ONGOING
    rig.log.fails_with = None
    rig.pass_time(10_000)
    assert len(rig.prepared) == 1


def test_unused_ids_are_forgotten() -> None:
    rig = Rig()
    owner = init_producer_id(rig.shard, "used", 900_000, None)
    init_producer_id(rig.shard, "unused", 900_000, None)
    rig.pass_time(7 * DAY_MS - 3_600_000)
    add_partitions(rig.shard, "used", *owner, [P], 0)
    end_transaction(rig.shard, "used", *owner, commit=True, client_version=0)
    rig.finish()
    rig.pass_time(3_600_000)
    rig.pass_time(3_600_000)
    assert list(rig.shard.transactions) == ["used"]
    assert rig.log.records[-1][1] is None
    rig.crash()
    assert list(rig.shard.transactions) == ["used"]
    rig.pass_time(8 * DAY_MS)
    assert not rig.shard.transactions


def test_an_open_transaction_does_not_expire() -> None:
    rig = Rig()
    rig.settings.transaction_max_timeout_ms = 2**31 - 1
    open_transaction(rig, timeout_ms=2**31 - 1)
    rig.pass_time(30 * DAY_MS)
    assert rig.metadata().state is TransactionState.ONGOING


def names(rig: Rig, **filters: object) -> list[tuple[str, int, str]]:
    request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
    response = list_transactions([rig.shard], request)
    return [
        (row.transactional_id, row.producer_id, row.transaction_state) for row in response.transaction_states
    ]


def test_list_and_describe() -> None:
    rig = Rig()
    open_transaction(rig, "a-open", timeout_ms=60_000)
    rig.pass_time(500)
    init_producer_id(rig.shard, "b-empty", 60_000, None)
    opened, empty = ("a-open", 1001, "Ongoing"), ("b-empty", 1002, "Empty")
    assert names(rig) == [opened, empty]
    assert names(rig, state_filters=["Ongoing", "Nonsense"]) == [opened]
    assert names(rig, state_filters=["Nonsense"]) == []
    assert names(rig, producer_id_filters=[1002]) == [empty]
    # As in Kafka, a transaction without a start time exceeds any duration.
    assert names(rig, duration_filter=499) == [opened, empty]
    assert names(rig, duration_filter=500) == [empty]
    assert names(rig, transactional_id_pattern="a-.*") == [opened]
    assert names(rig, transactional_id_pattern="a-") == []
    response = list_transactions([rig.shard], ListTransactionsRequest(["Nonsense"]))
    assert response.unknown_state_filters == ["Nonsense"]
    with pytest.raises(KafkaError) as caught:
        names(rig, transactional_id_pattern="(")
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    row = describe_transaction(rig.shard, "a-open")
    assert (row.transaction_state, row.transaction_timeout_ms, row.transaction_start_time_ms) == (
        "Ongoing",
        60_000,
        NOW_MS,
    )
    assert [(topic.topic, topic.partitions) for topic in row.topics] == [("topic", [0])]
    with pytest.raises(KafkaError) as caught:
        describe_transaction(rig.shard, "c")
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
