"""Records as other implementations may write them."""

from __future__ import annotations

from oncelog.coordinator.transactions.state import TransactionState, from_value
from oncelog.wire.stored.transactions import PartitionsSchema, TransactionLogValue


def test_a_topic_may_have_several_rows() -> None:
    """Kafka writes one row for each topic but reads any number: all partitions must get a marker."""
    rows = [PartitionsSchema("a", [0]), PartitionsSchema("b", [3]), PartitionsSchema("a", [2, 1])]
    value = TransactionLogValue(1, producer_epoch=0, transaction_status=2, transaction_partitions=rows)
    found = from_value(value)
    assert found.state is TransactionState.PREPARE_COMMIT
    assert found.partitions == {"a": (0, 2, 1), "b": (3,)}
