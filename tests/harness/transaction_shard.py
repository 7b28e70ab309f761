"""A transaction shard over a log in memory, with a manual clock and partitions that accept markers."""

from __future__ import annotations

from oncelog.coordinator.deadlines import Deadlines
from oncelog.coordinator.transactions import markers
from oncelog.coordinator.transactions.shard import TransactionContext, TransactionShard
from oncelog.coordinator.transactions.state import PendingEnd, TransactionMetadata
from oncelog.wire.errors import ErrorCode
from oncelog.wire.stored.coordinator import decode_key, decode_value
from oncelog.wire.stored.transactions import KEY_TYPES, VALUE_TYPES
from tests.harness.memory_log import MemoryLog

NOW_MS = 1_900_000_000_000


class Settings:
    transaction_max_timeout_ms = 900_000
    transactional_id_expiration_ms = 7 * 24 * 3_600_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms = 3_600_000


class TransactionShardHarness:
    """One partition of ``__transaction_state``, whose log survives crashes of its coordinator."""

    def __init__(self, transaction_version: int = 2) -> None:
        self.now_ms = NOW_MS
        self.transaction_version = transaction_version
        self.log = MemoryLog()
        self.settings = Settings()
        self.next_producer_id = 1000
        self.prepared: list[PendingEnd] = []
        self.coordinator_epoch = 0
        self.shard = self._load()

    def _load(self) -> TransactionShard:
        self.prepared = []
        self.deadlines = Deadlines(lambda: self.now_ms / 1000)
        context = TransactionContext(
            now_ms=lambda: self.now_ms,
            deadlines=self.deadlines,
            settings=lambda: self.settings,
            transaction_version=lambda: self.transaction_version,
            next_producer_id=self._take_producer_id,
            on_prepared=lambda shard, pending: self.prepared.append(pending),
        )
        shard = TransactionShard(0, self.coordinator_epoch, self.log, context)
        for offset, (key, value, _) in enumerate(self.log.entries):
            decoded = decode_key(key, KEY_TYPES)
            assert decoded is not None
            shard.replay(
                decoded, None if value is None else decode_value(value, VALUE_TYPES[decoded.API_KEY]), offset
            )
        shard.on_loaded()
        return shard

    def _take_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def crash(self) -> None:
        """Crash the coordinator; another one loads the log."""
        self.coordinator_epoch += 1
        self.shard = self._load()

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.deadlines.run_due()

    def finish(self) -> list[tuple[PendingEnd, tuple[str, int]]]:
        """Write all due markers and complete the transactions. Returns the written markers."""
        written = []
        while self.prepared:
            pending = self.prepared.pop(0)
            for partition in list(pending.partitions):
                written.append((pending, partition))
                assert (
                    markers.on_marker_appended(pending, *partition, ErrorCode.NONE, exists=True)
                    is markers.MarkerOutcome.DONE
                )
            markers.complete(self.shard, pending)
        return written

    def metadata(self, transactional_id: str = "t") -> TransactionMetadata:
        return self.shard.transactions[transactional_id].metadata

    def durable(self) -> dict[str, TransactionMetadata]:
        return {name: known.metadata for name, known in self.shard.transactions.items()}
