"""Records of ``__share_group_state``: the state of each share partition, as snapshots and updates of them.

Source: the share coordinator's record definitions, ``ShareCoordinatorRecordHelpers``, KIP-932, KIP-1226.
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Struct, Uuid, array, int8, int16, int32, int64, string, uuid


class ShareSnapshotKey(Message, api_key=0, kind="coordinator-key", versions="0", flexible="none"):
    """Also the key of a tombstone, which deletes the state."""

    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotValue(Message, api_key=0, kind="coordinator-value", versions="0", flexible="0+"):
    """The whole state. Times in milliseconds."""

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(Message, api_key=1, kind="coordinator-key", versions="0", flexible="none"):
    group_id: str = string()
    topic_id: Uuid = uuid()
    partition: int = int32()


class ShareUpdateValue(Message, api_key=1, kind="coordinator-value", versions="0", flexible="0+"):
    """What changed since the snapshot of that epoch and the updates after it. The start offset is -1 if it stays."""

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch)


KEY_TYPES: dict[int, type[Message]] = {key.API_KEY: key for key in (ShareSnapshotKey, ShareUpdateKey)}
VALUE_TYPES: dict[int, type[Message]] = {
    value.API_KEY: value for value in (ShareSnapshotValue, ShareUpdateValue)
}
