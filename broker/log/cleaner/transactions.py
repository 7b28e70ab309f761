"""What the cleaner knows of transactions while it walks a log from its start.

Source: Kafka's ``CleanedTransactionMetadata``. The cleaner stays below the last stable offset, so every
transaction it meets is decided, and the transaction indexes tell ahead which ones were aborted.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from oncelog.wire.control import ABORT_MARKER, COMMIT_MARKER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from oncelog.broker.log.indexes import AbortedTransaction, TransactionIndex
    from oncelog.wire.batch import BatchHeader


class _Aborted:
    __slots__ = ("seen_batch", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.seen_batch = False


class CleanedTransactions:
    """Told of every batch in the order of the log; says which can go.

    ``cleaned_index``: where the aborted transactions that stay are written, if anywhere.
    """

    def __init__(self) -> None:
        self.cleaned_index: TransactionIndex | None = None
        self._coming: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Transactions that were aborted, in the part of the log that comes next."""
        for transaction in aborted:
            heappush(self._coming, (transaction.first_offset, transaction))

    def on_batch(self, header: BatchHeader) -> bool:
        """A data batch; whether it was part of an aborted transaction, and can go."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.seen_batch = True
        return True

    def on_control(self, header: BatchHeader, control_type: int | None) -> bool:
        """A control batch, of this type (None: it has been emptied before); whether it can go.

        A marker stays as long as there is a batch of its transaction: without it those would be undecided.
        """
        self._reach(header.last_offset)
        if control_type is None:
            return True
        producer_id = header.producer_id
        if control_type == ABORT_MARKER:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or not aborted.seen_batch:
                return True
            if self.cleaned_index is not None:
                self.cleaned_index.append(aborted.transaction)
            return False
        if control_type == COMMIT_MARKER:
            if producer_id in self._committed:
                self._committed.discard(producer_id)
                return False
            return True
        return False

    def _reach(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[0][0] <= offset:
            transaction = heappop(coming)[1]
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))
