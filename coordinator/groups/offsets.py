"""Committed offsets (skeleton; being written)."""

from __future__ import annotations

from typing import Any


class OffsetStore:
    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        raise NotImplementedError


def replay_offset(shard: Any, key: Any, value: Any, offset: int, producer_id: int) -> None:
    raise NotImplementedError
