"""Which function applies which record of ``__consumer_offsets``: one row per record type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.coordinator.groups.classic.replay import replay_group_metadata
from oncelog.coordinator.groups.consumer.replay import REPLAYS as CONSUMER_GROUP_REPLAYS
from oncelog.coordinator.groups.offset_store import replay_offset
from oncelog.wire.stored.groups import GroupMetadataKey, LegacyOffsetCommitKey, OffsetCommitKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.wire.schema import Message

# Of the shard, the key, the value (None: a tombstone), the record's offset and its producer id (-1: none).
REPLAYS: dict[type[Message], Callable[[Any, Any, Any, int, int], None]] = {
    LegacyOffsetCommitKey: replay_offset,
    OffsetCommitKey: replay_offset,
    GroupMetadataKey: replay_group_metadata,
    **CONSUMER_GROUP_REPLAYS,
}
