"""Changes of partitions, which a request asks for row by row and which are committed as one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.alter_partition_reassignments import ReassignablePartitionResponse
from oncelog.wire.messages.elect_leaders import PartitionResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.wire.schema import Message
    from oncelog.wire.stored.metadata import PartitionChangeRecord

Row = PartitionResult | ReassignablePartitionResponse
Change = Callable[[], "PartitionChangeRecord | None"]
"""Returns the record for a row, or None if nothing changes. Raises KafkaError."""


def change_partitions(store: ClusterMetadata, asked: list[tuple[Row, Change]]) -> Iterator[None]:
    """Make the change for each row, in steps; what follows the last of them commits all. A KafkaError goes into its
    row.
    """
    began = store.image.offset
    records: list[Message] = []
    for row, change in asked:
        records += _made(row, change)
        yield
    if store.image.offset != began:
        # The metadata changed between the steps: a partition may be gone now, or need another change.
        records = [record for row, change in asked if not row.error_code for record in _made(row, change)]
    try:
        store.commit(records)
    except KafkaError as error:
        for row, _ in asked:
            if not row.error_code:
                row.error_code, row.error_message = error.code, error.message


def _made(row: Row, change: Change) -> list[Message]:
    try:
        record = change()
    except KafkaError as error:
        row.error_code, row.error_message = error.code, error.message
        return []
    return [] if record is None else [record]
