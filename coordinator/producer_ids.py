"""Producer ids, each of which is used only once.

Ids come from blocks of 1000. A block is allocated durably before its first id is used, and the rest of a block is lost
at a stop or crash: ids are unique without a write for each. Source: Kafka's ``ProducerIdManager`` and
``ProducerIdControlManager``; KIP-730.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog.wire.errors import ErrorCode, KafkaError

BLOCK_SIZE = 1000
"""Ids in a block."""
PRODUCER_ID_MAX = 2**63 - 1


def next_block(next_producer_id: int) -> tuple[int, int]:
    """The next block as its first id and the first id after it, which the caller stores. ``next_producer_id`` is the
    first id that no block contains.

    Raises KafkaError (UNKNOWN_SERVER_ERROR) where no whole block is left.
    """
    if next_producer_id > PRODUCER_ID_MAX - BLOCK_SIZE:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    return next_producer_id, next_producer_id + BLOCK_SIZE


class ProducerIds:
    """Generates ids. ``take_block`` allocates a block durably and returns its first id; `next` raises what it
    raises.
    """

    __slots__ = ("_end", "_next", "_take_block")

    def __init__(self, take_block: Callable[[], int]) -> None:
        self._take_block = take_block
        self._next = self._end = 0

    def next(self) -> int:
        """An id that was never returned before."""
        if self._next == self._end:
            first = self._take_block()
            self._next, self._end = first, first + BLOCK_SIZE
        producer_id = self._next
        self._next += 1
        return producer_id
