"""Operations: share groups, with the records that are in flight for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oncelog.broker.control.names import meant, not_found
from oncelog.broker.control.operations.waiting import wait_until_wanted
from oncelog.broker.control.share_types import (
    RecordsInFlight,
    ShareGroupInfo,
    SharePartitionInfo,
    share_group_info,
)
from oncelog.broker.control.views import share_group_shards
from oncelog.broker.control.wanted import wanted_share_group
from oncelog.broker.share.settings import LATEST
from oncelog.coordinator.share.state import DeliveryState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncelog.broker.control.controlled_broker import ControlledBroker
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.node.node import Node
    from oncelog.broker.share.window.window import Window
    from oncelog.coordinator.share.stored_state import StoredShareState
    from oncelog.wire.schema import Uuid


async def share_groups(broker: ControlledBroker) -> list[str]:
    """Return the ids of all share groups, sorted."""
    return sorted(await share_group_shards(broker.node))


async def share_group(broker: ControlledBroker, *, group_id: str) -> ShareGroupInfo:
    """Return a share group. Raises NotFoundError."""
    return await view(broker.node, group_id)


async def wait_for_share_group(
    broker: ControlledBroker,
    *,
    group_id: str,
    state: str | None = None,
    members: int | None = None,
    acquired: int | None = None,
    lag: int | None = None,
    timeout: float = 10,
) -> ShareGroupInfo:
    """Wait until a share group has that state, that number of members, which have that number of records, and at most
    that lag in all; return it.

    The group need not exist yet. Raises WaitTimeoutError, InvalidArgumentError.
    """

    def describe(found: ShareGroupInfo) -> str:
        return (
            f"it is {found.state} with {len(found.members)} members, which have {found.acquired} records; "
            f"lag {found.total_lag}, in flight {found.in_flight}{_assigned(found)}{_hints(broker.node, found)}"
        )

    return await wait_until_wanted(
        broker,
        wanted_share_group(group_id, describe, state=state, members=members, acquired=acquired, lag=lag),
        lambda: view(broker.node, group_id),
        lambda node: _logs_of(node, group_id),
        timeout,
    )


def _assigned(group: ShareGroupInfo) -> str:
    """Return which member has which partitions."""
    rows = []
    for member in group.members:
        partitions = [f"{name}-{number}" for name, numbers in member.assignment.items() for number in numbers]
        rows.append(f"{member.client_id} ({member.member_id}) {', '.join(partitions) or 'nothing'}")
    return f"; assigned: {'; '.join(rows)}" if rows else ""


def _hints(node: Node, group: ShareGroupInfo) -> str:
    """Return why members may get no records: unknown topics, and records before the group's first offset."""
    topics = node.metadata.image.topics
    subscribed = sorted({name for member in group.members for name in member.subscription})
    text = "".join(
        f"; members subscribe to {name}, and there is no such topic{meant(name, topics)}"
        for name in subscribed
        if name not in topics
    )
    passed = [
        f"{name}-{number} from offset {info.start_offset}"
        for name, partitions in group.partitions.items()
        for number, info in partitions.items()
        if info.start_offset and not info.in_flight and info.lag == 0
    ]
    if passed and not group.acquired and node.shares.settings(group.group_id).reset == LATEST:
        text += f"; share.auto.offset.reset is latest: it reads {', '.join(passed)}"
    return text


def _logs_of(node: Node, group_id: str) -> list[PartitionLog]:
    """Return the logs whose changes may be those of the group: its own, and those of its partitions and their state.
    Raises KafkaError if there are none yet.
    """
    runtime = node.groups.runtime
    logs = [context.partition_log for context in node.share_coordinator.runtime.loaded.values()]
    logs += [it.leader.log for it in node.shares.partitions_of(group_id)]
    logs.append(node.cluster.leader_partition(runtime.topic, runtime.partition_for(group_id)).log)
    return logs


# -- the view


async def view(node: Node, group_id: str) -> ShareGroupInfo:
    """Return a share group as it is now. Raises NotFoundError, KafkaError (such as KAFKA_STORAGE_ERROR)."""
    from oncelog.coordinator.groups.share.describe import describe

    shards = await share_group_shards(node)
    await node.share_coordinator.runtime.wait_loaded()
    if group_id not in shards:
        raise not_found("share group", group_id, shards)
    return share_group_info(describe(shards[group_id], group_id).whole(), _partitions(node, group_id))


def _partitions(node: Node, group_id: str) -> dict[str, dict[int, SharePartitionInfo]]:
    stored: dict[tuple[Uuid, int], StoredShareState] = {
        (key.topic_id, key.partition): state
        for shard in node.share_coordinator.runtime.shards()
        for key, state in shard.states.items()
        if key.group_id == group_id
    }
    windows = {
        (it.topic_id, it.partition): it.window
        for it in node.shares.partitions_of(group_id)
        if it.window is not None
    }
    found: dict[str, dict[int, SharePartitionInfo]] = {}
    for topic_id, partition in sorted(stored.keys() | windows.keys()):
        topic = node.metadata.image.topics_by_id.get(topic_id)
        if topic is None or partition >= len(topic.partitions):
            continue
        log = node.cluster.leader_partition(topic.name, partition).log
        window = windows.get((topic_id, partition))
        if window is None:
            state = stored[topic_id, partition]
            row = _info(log, state.start_offset, _stored_rows(state))
        else:
            row = _info(log, window.start_offset, _rows_of_window(node, window))
        found.setdefault(topic.name, {})[partition] = row
    return dict(sorted(found.items()))


def _rows_of_window(node: Node, window: Window) -> Iterator[RecordsInFlight]:
    """Yield the records in flight of a loaded share partition."""
    now, now_ms, start = node.clock.monotonic(), node.clock.now_ms(), window.start_offset
    for records in window.states():
        if records.last < start:
            continue
        is_held = bool(records.member_id)
        yield RecordsInFlight(
            max(records.first, start),
            records.last,
            _name(records.state),
            records.delivery_count,
            records.member_id if is_held else None,
            round(now_ms + (records.deadline - now) * 1000) if is_held else None,
        )


def _stored_rows(state: StoredShareState) -> Iterator[RecordsInFlight]:
    """Yield the stored records in flight of a share partition that no member has read since the start."""
    for first, last, delivery_state, count in state.batches:
        yield RecordsInFlight(first, last, _name(delivery_state), count)


def _info(log: PartitionLog, start: int, rows: Iterable[RecordsInFlight]) -> SharePartitionInfo:
    if start < 0:
        return SharePartitionInfo(None)
    joined = _joined(rows)
    begin = max(start, log.log_start_offset)
    done = sum(
        max(0, row.last_offset - max(row.first_offset, begin) + 1)
        for row in joined
        if row.state in ("acknowledged", "archived")
    )
    return SharePartitionInfo(start, joined, max(0, log.high_watermark - begin - done))


def _name(state: int) -> Any:
    return DeliveryState(state).name.lower()


def _joined(rows: Iterable[RecordsInFlight]) -> tuple[RecordsInFlight, ...]:
    """Return the rows with neighbours of one state, count, member and lock as one."""
    found: list[RecordsInFlight] = []
    for row in rows:
        if found and found[-1].last_offset + 1 == row.first_offset:
            longer = replace(found[-1], last_offset=row.last_offset)
            if longer == replace(row, first_offset=longer.first_offset):
                found[-1] = longer
                continue
        found.append(row)
    return tuple(found)
