"""A shard of share partitions over a log in memory, with a manual clock and topics that the test makes."""

from __future__ import annotations

from typing import Any

from oncelog.coordinator.share.shard import ShareContext, ShareShard
from oncelog.coordinator.share.stored_state import StoredShareState
from oncelog.wire.schema import Uuid
from oncelog.wire.stored.coordinator import decode_key, decode_value
from oncelog.wire.stored.share import KEY_TYPES, VALUE_TYPES
from tests.harness.memory_log import MemoryLog

NOW_MS = 1_900_000_000_000


class Settings:
    share_coordinator_snapshot_update_records_per_snapshot = 500
    share_coordinator_cold_partition_snapshot_interval_ms = 300_000


class ShareShardHarness:
    """One partition of ``__share_group_state``, whose log survives crashes of its coordinator."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.log = MemoryLog()
        self.log_start = 0
        self.settings = Settings()
        self.topics: dict[Uuid, int] = {}
        """The number of partitions of each topic."""
        self.shard = self.loaded()

    def loaded(self) -> ShareShard:
        """A shard that another coordinator would load."""
        context = ShareContext(
            now_ms=lambda: self.now_ms,
            settings=lambda: self.settings,
            partition_count=lambda topic_id: self.topics.get(topic_id, 0),
        )
        shard = ShareShard(0, self.log, context)
        for offset, (key, value, _) in enumerate(self.log.entries):
            if offset < self.log_start:
                continue
            decoded = decode_key(key, KEY_TYPES)
            assert decoded is not None
            read = None if value is None else decode_value(value, VALUE_TYPES[decoded.API_KEY])
            shard.replay(decoded, read, offset)
        shard.on_loaded()
        return shard

    def crash(self) -> None:
        """Crash the coordinator; another one loads the log."""
        self.shard = self.loaded()

    def prune(self) -> None:
        """Drop the records that nobody needs."""
        assert self.shard.redundant_offset() >= self.log_start
        self.log_start = self.shard.redundant_offset()

    def records(self) -> list[tuple[str, Any]]:
        """The name of each record's key and its value, from the log start."""
        found = []
        for key, value, _ in self.log.entries[self.log_start :]:
            decoded = decode_key(key, KEY_TYPES)
            assert decoded is not None
            read = None if value is None else decode_value(value, VALUE_TYPES[decoded.API_KEY])
            found.append((type(decoded).__name__, read))
        return found


def contents(state: StoredShareState, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Everything in a state, but for the fields ``without``."""
    return {name: getattr(state, name) for name in StoredShareState.__slots__ if name not in without}
