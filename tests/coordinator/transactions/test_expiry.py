"""Timeouts and expired ids take effect when Kafka's periodic checks would find them."""

from __future__ import annotations

import pytest

from oncelog.coordinator.transactions.admin import describe_transaction, list_transactions
from oncelog.coordinator.transactions.end import end_transaction
from oncelog.coordinator.transactions.init_producer_id import init_producer_id
from oncelog.coordinator.transactions.partitions import add_partitions
from oncelog.coordinator.transactions.state import TransactionState
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.harness.transaction_shard import NOW_MS, TransactionShardHarness

P = ("topic", 0)
DAY_MS = 24 * 3_600_000


def open_transaction(
    harness: TransactionShardHarness, name: str = "t", timeout_ms: int = 1_000
) -> tuple[int, int]:
    owner = init_producer_id(harness.shard, name, timeout_ms, None)
    add_partitions(harness.shard, name, *owner, [P], 0)
    return owner


@pytest.mark.parametrize("version", [0, 2])
def test_an_open_transaction_is_aborted_with_a_new_epoch(version: int) -> None:
    harness = TransactionShardHarness(version)
    owner = open_transaction(harness)
    harness.pass_time(9_999)
    assert harness.metadata().state is TransactionState.ONGOING
    harness.pass_time(1)
    [pending] = harness.prepared
    assert not pending.committed
    assert pending.metadata.producer_epoch == 1
    harness.finish()
    with pytest.raises(KafkaError) as caught:
        end_transaction(harness.shard, "t", *owner, commit=True, client_version=version)
    assert caught.value.code is (ErrorCode.INVALID_TXN_STATE if version else ErrorCode.PRODUCER_FENCED)


def test_the_timeout_counts_from_the_first_partition() -> None:
    harness = TransactionShardHarness()
    owner = open_transaction(harness, timeout_ms=15_000)
    harness.pass_time(9_000)
    add_partitions(harness.shard, "t", *owner, [("topic", 1)], 0)
    harness.pass_time(10_000)
    assert not harness.prepared
    harness.pass_time(1_000)
    assert len(harness.prepared) == 1


def test_a_commit_before_the_timeout_stands() -> None:
    harness = TransactionShardHarness()
    owner = open_transaction(harness)
    end_transaction(harness.shard, "t", *owner, commit=True, client_version=0)
    harness.pass_time(60_000)
    assert [pending.committed for pending in harness.prepared] == [True]
    harness.finish()
    harness.pass_time(60_000)
    assert not harness.prepared


def test_the_timeout_goes_on_over_a_crash() -> None:
    harness = TransactionShardHarness()
    open_transaction(harness)
    harness.now_ms += 20_000
    harness.crash()
    harness.pass_time(0)
    assert len(harness.prepared) == 1


def test_a_failed_append_is_retried() -> None:
    harness = TransactionShardHarness()
    open_transaction(harness)
    harness.log.fails_with = ErrorCode.KAFKA_STORAGE_ERROR
    harness.pass_time(10_000)
    assert harness.metadata().state is TransactionState.ONGOING
    harness.log.fails_with = None
    harness.pass_time(10_000)
    assert len(harness.prepared) == 1


def test_unused_ids_are_forgotten() -> None:
    harness = TransactionShardHarness()
    owner = init_producer_id(harness.shard, "used", 900_000, None)
    init_producer_id(harness.shard, "unused", 900_000, None)
    harness.pass_time(7 * DAY_MS - 3_600_000)
    add_partitions(harness.shard, "used", *owner, [P], 0)
    end_transaction(harness.shard, "used", *owner, commit=True, client_version=0)
    harness.finish()
    harness.pass_time(3_600_000)
    harness.pass_time(3_600_000)
    assert list(harness.shard.transactions) == ["used"]
    assert harness.log.entries[-1][1] is None
    harness.crash()
    assert list(harness.shard.transactions) == ["used"]
    harness.pass_time(8 * DAY_MS)
    assert not harness.shard.transactions


def test_an_open_transaction_does_not_expire() -> None:
    harness = TransactionShardHarness()
    harness.settings.transaction_max_timeout_ms = 2**31 - 1
    open_transaction(harness, timeout_ms=2**31 - 1)
    harness.pass_time(30 * DAY_MS)
    assert harness.metadata().state is TransactionState.ONGOING


def names(harness: TransactionShardHarness, **filters: object) -> list[tuple[str, int, str]]:
    rows = listed(harness, ListTransactionsRequest(**filters)).transaction_states  # type: ignore[arg-type]
    return [(row.transactional_id, row.producer_id, row.transaction_state) for row in rows]


def listed(harness: TransactionShardHarness, request: ListTransactionsRequest) -> ListTransactionsResponse:
    response = ListTransactionsResponse()
    for _ in list_transactions([harness.shard], request, response, lambda name: name != "hidden"):
        pass
    return response


def test_list_and_describe() -> None:
    harness = TransactionShardHarness()
    open_transaction(harness, "a-open", timeout_ms=60_000)
    harness.pass_time(500)
    init_producer_id(harness.shard, "b-empty", 60_000, None)
    init_producer_id(harness.shard, "hidden", 60_000, None)
    opened, empty = ("a-open", 1001, "Ongoing"), ("b-empty", 1002, "Empty")
    assert names(harness) == [opened, empty]
    assert names(harness, state_filters=["Ongoing", "Nonsense"]) == [opened]
    assert names(harness, state_filters=["Nonsense"]) == []
    assert names(harness, producer_id_filters=[1002]) == [empty]
    # As in Kafka, a transaction without a start time exceeds any duration.
    assert names(harness, duration_filter=499) == [opened, empty]
    assert names(harness, duration_filter=500) == [empty]
    assert names(harness, transactional_id_pattern="a-.*") == [opened]
    assert names(harness, transactional_id_pattern="a-") == []
    response = listed(harness, ListTransactionsRequest(["Nonsense"]))
    assert response.unknown_state_filters == ["Nonsense"]
    with pytest.raises(KafkaError) as caught:
        names(harness, transactional_id_pattern="(")
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    row = describe_transaction(harness.shard, "a-open")
    assert (row.transaction_state, row.transaction_timeout_ms, row.transaction_start_time_ms) == (
        "Ongoing",
        60_000,
        NOW_MS,
    )
    assert [(topic.topic, topic.partitions) for topic in row.topics] == [("topic", [0])]
    with pytest.raises(KafkaError) as caught:
        describe_transaction(harness.shard, "c")
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
