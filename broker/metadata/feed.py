"""`MetadataFeed`: gives the metadata of a controller to the nodes that follow it.

A node that joins fetches a snapshot, and after it every batch by its offset, as Kafka's brokers fetch
``__cluster_metadata-0``. The batches since the controller's start are kept in memory until all registered nodes have
them: one that is cut off goes on where it was.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import trio

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_quorum import ReplicaState
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData, SnapshotId
from oncelog.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionResult,
    TopicResult,
)
from oncelog.wire.messages.fetch_snapshot import SnapshotId as WantedSnapshotId
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.topic_names import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from oncelog.broker.metadata import snapshots
    from oncelog.broker.metadata.store import MetadataStore
    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.messages.fetch import FetchRequest

METADATA_TOPIC_ID = bytes(15) + b"\x01"
"""The topic id of ``__cluster_metadata`` (``Uuid.METADATA_TOPIC_ID``)."""
OBSERVER_SESSION_MS = 300_000
"""For so long a node that does not fetch any more is described (``LeaderState.OBSERVER_SESSION_TIMEOUT_MS``)."""


class Observer:
    """What the controller knows of a node that follows its log (Kafka: ``LeaderState.ReplicaState``)."""

    __slots__ = ("directory_id", "end_offset", "last_caught_up_ms", "last_fetch_ms")

    def __init__(self) -> None:
        self.directory_id = ZERO_UUID
        """Known from its first Fetch on."""
        self.end_offset = 0
        """The offset of the next batch that it wants."""
        self.last_fetch_ms = -1
        self.last_caught_up_ms = -1


class FeedFetch(NamedTuple):
    """A node's request that waits for a batch (`WaitingFetch`)."""

    feed: MetadataFeed
    offset: int
    timeout_s: float
    event: trio.Event

    def respond(self, *, is_over: bool) -> FetchResponse:
        """See `WaitingFetch`."""
        return self.feed.respond(self)


class MetadataFeed:
    """Feeds the nodes of ``store`` from now on."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._bases: list[int] = []
        self._batches: list[bytes] = []
        """The batches from `_first` on; `_bases` has their base offsets."""
        self._first = store.end_offset
        self._waiting: list[trio.Event] = []
        """Of the nodes that wait for a batch, and perhaps of some that wait no longer."""
        self._snapshot: tuple[snapshots.SnapshotId, bytes] | None = None
        """The last one that was fetched, until a batch follows it: nodes that start together fetch the same."""
        self._observers: dict[int, Observer] = {}
        """The nodes that follow, by id."""
        store.feed(self._on_append)

    def _on_append(self, base_offset: int, batch: bytearray) -> None:
        self._bases.append(base_offset)
        self._batches.append(bytes(batch))
        self._snapshot = None
        for event in self._waiting:
            event.set()
        self._waiting.clear()

    def fetch(self, request: FetchRequest) -> FetchResponse | FeedFetch:
        """Return the batches from the offset of a node's Fetch on; if there are none, a response that waits for one."""
        assert request.replica_state is not None
        wanted = request.topics[0].partitions[0]
        offset = wanted.fetch_offset
        self._note(request.replica_state.replica_id, offset).directory_id = wanted.replica_directory_id
        if offset == self._store.end_offset:
            event = trio.Event()
            self._waiting.append(event)
            return FeedFetch(self, offset, request.max_wait_ms / 1000, event)
        return self._from(offset)

    def respond(self, fetch: FeedFetch) -> FetchResponse:
        """Return the response to a node that has waited: there is a batch, or its time is over."""
        if fetch.event in self._waiting:
            self._waiting.remove(fetch.event)
        return self._from(fetch.offset)

    def _from(self, offset: int) -> FetchResponse:
        """Return the batches from an offset on."""
        row = PartitionData(0, 0, self._store.end_offset, log_start_offset=self._first, records=b"")
        row.aborted_transactions = None
        if not self._first <= offset <= self._store.end_offset:
            row.snapshot_id = SnapshotId(self._store.end_offset, self._store.epoch)
        else:
            row.records = b"".join(self._batches[bisect_left(self._bases, offset) :])
        return FetchResponse(responses=[FetchableTopicResponse("", METADATA_TOPIC_ID, [row])])

    def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """Return the whole snapshot of the present image, whichever is asked for. The batches after it are kept for the
        node from now on.
        """
        self._note(request.replica_id, self._store.end_offset)
        if self._snapshot is None:
            self._snapshot = self._store.encoded_snapshot()
        snapshot_id, data = self._snapshot
        row = PartitionResult(
            0, ErrorCode.NONE, WantedSnapshotId(*snapshot_id), size=len(data), unaligned_records=data
        )
        return FetchSnapshotResponse(topics=[TopicResult(CLUSTER_METADATA_TOPIC, [row])])

    def _note(self, node_id: int, offset: int) -> Observer:
        now_ms = self._clock.now_ms()
        observer = self._observers.setdefault(node_id, Observer())
        observer.end_offset = offset
        observer.last_fetch_ms = now_ms
        if offset == self._store.end_offset:
            observer.last_caught_up_ms = now_ms
        self._drop_before(min(one.end_offset for one in self._observers.values()))
        return observer

    def forget(self, node_id: int) -> None:
        """Keep nothing for a node's last run: the next one has registered, and begins with a snapshot."""
        self._observers.pop(node_id, None)

    def states(self) -> list[ReplicaState]:
        """Return how far each node has fetched, for DescribeQuorum; none that has been away for long."""
        from_ms, brokers = self._clock.now_ms() - OBSERVER_SESSION_MS, self._store.image.brokers
        live = {node_id for node_id, broker in brokers.items() if not broker.fenced}
        return [
            ReplicaState(
                node_id,
                one.directory_id,
                log_end_offset=one.end_offset,
                last_fetch_timestamp=one.last_fetch_ms,
                last_caught_up_timestamp=one.last_caught_up_ms,
            )
            for node_id, one in sorted(self._observers.items())
            if node_id in live or one.last_fetch_ms > from_ms
        ]

    def _drop_before(self, offset: int) -> None:
        count = bisect_left(self._bases, offset)
        if count:
            del self._bases[:count], self._batches[:count]
            self._first = offset
