"""`CleanedTransactions`: what the cleaner knows of transactions while it reads a log from its start.

Source: Kafka's ``CleanedTransactionMetadata``. The cleaner stays below the last stable offset, so every
transaction that it meets has ended, and the transaction indexes list the aborted ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from oncelog.broker.log.indexes import AbortedTxn, TransactionIndex
from oncelog.wire.batch import BatchHeader
from oncelog.wire.control import ABORT_MARKER, COMMIT_MARKER


class _Aborted:
    __slots__ = ("seen_batch", "transaction")

    def __init__(self, transaction: AbortedTxn) -> None:
        self.transaction = transaction
        self.seen_batch = False


class CleanedTransactions:
    """Is shown every batch in the order of the log, and says which can be removed.

    ``cleaned_index``: where aborted transactions are noted whose marker stays; None for nowhere.
    """

    def __init__(self) -> None:
        self.cleaned_index: TransactionIndex | None = None
        self._expected: list[tuple[int, AbortedTxn]] = []
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()

    def expect(self, aborted: Iterable[AbortedTxn]) -> None:
        """Note the aborted transactions of the part of the log that comes next."""
        for transaction in aborted:
            heappush(self._expected, (transaction.first_offset, transaction))

    def on_batch(self, header: BatchHeader) -> bool:
        """Show it a data batch. Returns whether it can be removed: its transaction was aborted."""
        self._advance_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.seen_batch = True
        return True

    def on_control(self, header: BatchHeader, control_type: int | None) -> bool:
        """Show it a control batch of this type (None: an earlier cleaning has emptied it). Returns whether it
        can be removed.

        A marker stays as long as its transaction has a batch, which would be undecided without it.
        """
        self._advance_to(header.last_offset)
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

    def _advance_to(self, offset: int) -> None:
        expected = self._expected
        while expected and expected[0][0] <= offset:
            transaction = heappop(expected)[1]
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))
