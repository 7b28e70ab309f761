"""`MetadataStore`: the metadata log and its image. All changes of metadata go through `MetadataStore.commit`.

`commit` appends a batch of records, replays it into the image and calls the listeners, without waiting in between: no
task sees half of a batch. This is what a KRaft controller and its brokers do together. Source: Kafka's
``QuorumController``, ``MetadataLoader``, ``SnapshotGenerator``; KIP-631.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.logging.line_limiter import LineLimiter
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata import features, snapshots
from oncelog.broker.metadata.features import OUR_FEATURES
from oncelog.broker.metadata.image import METADATA_VERSION, MetadataImage
from oncelog.broker.metadata.log import MetadataLog
from oncelog.broker.metadata.placement import regain_leaders
from oncelog.coordinator.producer_ids import next_block
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.schema import ZERO_UUID, Uuid
from oncelog.wire.stored.metadata import (
    AbortTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ControllerFeature,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.features import Features
    from oncelog.broker.metadata.image import Topic
    from oncelog.broker.metadata.log import LoadedMetadata
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.wire.schema import Message

    RecordListener = Callable[[Message, Topic | None], None]

START_TAIL_BYTES_MAX = 1 << 20
"""How much log after the snapshot, in bytes, makes a start write a new snapshot, so that the next start is quick."""
_RESERVED_UUIDS = frozenset({ZERO_UUID, bytes(15) + b"\x01"})
_UNFENCED, _FENCED = -1, 1
_IN_CONTROLLED_SHUTDOWN = 1

log = get_logger(__name__)


class MetadataStore:
    """``config`` is the static configuration, without dynamic changes.

    ``broker_epoch`` is the epoch of this start's registration, -1 before `register`. ``features`` are those that
    clients are told of and may finalize. ``rng`` makes ids, and places replicas.
    """

    def __init__(
        self,
        data_dir: str,
        files: FileSystem,
        clock: Clock,
        rng: random.Random,
        config: BrokerConfig,
        *,
        cluster_id: str,
        directory_id: Uuid,
        supported: Features = OUR_FEATURES,
    ) -> None:
        self.config = config
        self.features = supported
        self.cluster_id = cluster_id
        self.directory_id = directory_id
        self.image = MetadataImage()
        self.broker_epoch = -1
        self._data_dir = data_dir
        self._files = files
        self._clock = clock
        self.lines = LineLimiter(clock)
        self.rng = rng
        self._log = MetadataLog(data_dir, files, clock)
        self._listeners: list[RecordListener] = []
        self._snapshot_ms = 0
        self._bytes_at_failure = 0

    def start(self) -> LoadedMetadata:
        """Load the image, become leader of a new epoch, and format the log if it is new. Returns what was found.

        Raises DecodeError if the log cannot be read, KafkaError if it needs an unsupported feature level, OSError.
        """
        loaded = self._log.load()
        self.image = loaded.image
        if loaded.cut_bytes:
            log.warning("cluster metadata cut", bytes=loaded.cut_bytes, reason=loaded.cut_reason)
        for reason in loaded.bad_snapshots:
            log.error("cluster metadata snapshot unreadable", reason=reason)
        is_new = METADATA_VERSION not in self.image.features
        if is_new and loaded.bad_snapshots:
            raise DecodeError(loaded.bad_snapshots[-1])
        self.features.check(self.image)
        self._log.lead(self.config.node_id)
        self.image.offset = self._log.end_offset - 1
        self._snapshot_ms = self._clock.now_ms()
        if loaded.open_transaction:
            self.commit([AbortTransactionRecord(reason="the controller was restarted")])
        if is_new:
            self._format(loaded.first_records)
        elif self._log.bytes_since_snapshot > START_TAIL_BYTES_MAX:
            self.snapshot()
        return loaded

    def _format(self, first: Sequence[Message]) -> None:
        """Begin a new log with the ``first`` records that were found in it; without them with those of
        ``bootstrap.checkpoint``, which is written if there is none.
        """
        others: list[Message] = []
        path = f"{self._data_dir}/{snapshots.BOOTSTRAP}"
        if not first and self._files.exists(path):
            first = snapshots.read(self._files, path)[0]
        if first:
            bootstrap = MetadataImage()
            for record in first:
                bootstrap.replay(record)
            self.features.check(bootstrap)
            levels = bootstrap.features
            others = [one for one in bootstrap.records() if not isinstance(one, FeatureLevelRecord)]
        else:
            levels = self.features.stored_at_format()
            snapshots.write(
                self._files,
                path,
                [(record, 0) for record in features.bootstrap_records(levels)],
                epoch=0,
                timestamp=self._clock.now_ms(),
                last_contained_log_timestamp=0,
            )
        records = features.format_records(levels, self.config.min_insync_replicas, others)
        self.commit(records, durable=True)

    def register(self, endpoints: Sequence[BrokerEndpoint], *, is_cordoned: bool = False) -> None:
        """Register this node as controller and broker with its ``endpoints`` for clients, and unfence it.

        ``is_cordoned``: its data directory takes no new partitions. Raises KafkaError as `commit`.
        """
        node_id = self.config.node_id
        supported = OUR_FEATURES.supported.items()
        controller = RegisterControllerRecord(
            controller_id=node_id,
            incarnation_id=self.new_uuid(),
            features=[ControllerFeature(name, low, high) for name, (low, high) in supported],
        )
        self.broker_epoch = self._log.end_offset + 1
        broker = RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=self.new_uuid(),
            broker_epoch=self.broker_epoch,
            end_points=list(endpoints),
            features=features.broker_features(),
            rack=self.config.broker_rack,
            fenced=True,
            log_dirs=[self.directory_id],
        )
        self.commit(
            [
                controller,
                broker,
                BrokerRegistrationChangeRecord(node_id, self.broker_epoch, fenced=_UNFENCED),
                self.cordon_record(is_cordoned=is_cordoned),
                *self._fence_others(),
                *regain_leaders(self.image, node_id),
            ]
        )

    def _fence_others(self) -> list[Message]:
        """Return the records that fence the other nodes of a directory's former cluster: they are not running."""
        return [
            BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, fenced=_FENCED)
            for broker_id, broker in self.image.brokers.items()
            if broker_id != self.config.node_id and not broker.fenced
        ]

    def cordon_record(self, *, is_cordoned: bool) -> Message:
        """Return the record by which this node's data directory takes no new partitions, or takes them again."""
        cordoned = [self.directory_id] if is_cordoned else []
        return BrokerRegistrationChangeRecord(
            self.config.node_id, self.broker_epoch, cordoned_log_dirs=cordoned
        )

    def fence(self) -> None:
        """Say that this node stops: the records of a controlled shutdown. Without them a Kafka on the directory would
        wait for the end of the node's session before it registers its broker. Raises KafkaError as `commit`.

        Kafka also takes the node's partitions from it. Here it keeps them, so that no leader epoch rises.
        """
        if self.broker_epoch < 0:
            return
        who = self.config.node_id, self.broker_epoch
        self.commit(
            [
                BrokerRegistrationChangeRecord(*who, in_controlled_shutdown=_IN_CONTROLLED_SHUTDOWN),
                BrokerRegistrationChangeRecord(*who, fenced=_FENCED),
            ]
        )

    def commit(self, records: Sequence[Message], *, durable: bool = False) -> int:
        """Append the records as one batch, replay them, and call the listeners for each. Returns the last offset.

        ``durable``: sync to the disk before the replay, as it always happens with ``log.flush.interval.messages=1``. It
        blocks the loop for one fsync: metadata changes seldom, and no task may see a change that a power loss could
        undo. Raises KafkaError (KAFKA_STORAGE_ERROR) without changing anything.
        """
        if not records:
            return self.image.offset
        image = self.image
        versions = [(record, image.version_of(record)) for record in records]
        try:
            last_offset = self._log.append(
                versions, durable=durable or self.config.log_flush_interval_messages == 1
            )
        except OSError as error:
            self.lines.write(log.error, "cluster metadata not written", {}, error=error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Cluster metadata not written: {error}"
            ) from error
        changes = [(record, image.replay(record)) for record in records]
        image.offset = last_offset
        for record, topic in changes:
            for listener in self._listeners:
                listener(record, topic)
        self._maybe_snapshot()
        return last_offset

    @property
    def has_voters(self) -> bool:
        """Whether the voters of the quorum are in the log (``kraft.version`` 1); else the configuration has them."""
        return self._log.has_voters

    @property
    def epoch(self) -> int:
        """The leader epoch that began with this start."""
        return self._log.epoch

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.end_offset

    def subscribe(self, listener: RecordListener) -> None:
        """Call ``listener(record, topic)`` for every record committed from now on, after the image has the whole batch.
        ``topic`` is the topic that the record created, changed or removed, or None."""
        self._listeners.append(listener)

    def take_producer_ids(self) -> int:
        """Return the first id of the next block of producer ids, after making it durable that the block is taken.

        For `ProducerIds`. Raises KafkaError: UNKNOWN_SERVER_ERROR if no ids are left, and as `commit`.
        """
        first, after = next_block(self.image.next_producer_id)
        record = ProducerIdsRecord(
            broker_id=self.config.node_id, broker_epoch=self.broker_epoch, next_producer_id=after
        )
        self.commit([record], durable=True)
        return first

    def skip_producer_ids(self, next_producer_id: int) -> None:
        """Give out no producer id below ``next_producer_id`` from now on. Raises as `commit`."""
        if self.image.next_producer_id < next_producer_id:
            record = ProducerIdsRecord(
                broker_id=self.config.node_id,
                broker_epoch=self.broker_epoch,
                next_producer_id=next_producer_id,
            )
            self.commit([record])

    def new_uuid(self) -> Uuid:
        """Return a random (version 4) UUID that Kafka would give out (``Uuid.randomUuid``): not a reserved one, and its
        text does not begin with ``-``, which command lines would take for an option."""
        while True:
            bits = self.rng.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62
            uuid = bits.to_bytes(16, "big")
            if uuid not in _RESERVED_UUIDS and uuid[0] >> 2 != _DASH:
                return uuid

    def flush(self) -> None:
        """Sync all committed records to the disk. Blocks. Raises OSError."""
        self._log.sync()

    async def flush_in_background(self) -> None:
        """Sync in a worker thread. A failure is logged, and no further record can be committed."""
        try:
            await self._log.sync_in_background()
        except OSError as error:
            log.error("cluster metadata not flushed", error=str(error))

    def close(self, *, sync: bool = True) -> None:
        """Sync, unless nobody will read the log again, and close it, as the last step of a stop. Raises OSError."""
        self._log.close(sync=sync)

    def _maybe_snapshot(self) -> None:
        interval_ms = self.config.metadata_log_max_snapshot_interval_ms
        new_bytes = self._log.bytes_since_snapshot - self._bytes_at_failure
        too_much = new_bytes >= self.config.metadata_log_max_record_bytes_between_snapshots
        if too_much or 0 < interval_ms <= self._clock.now_ms() - self._snapshot_ms:
            self.snapshot()

    def snapshot(self) -> None:
        """Write a snapshot. If that fails, the log stays longer, and the next interval tries again."""
        self._snapshot_ms = self._clock.now_ms()
        try:
            self._log.snapshot(self._versioned_records())
            self._bytes_at_failure = 0
        except OSError as error:
            self._bytes_at_failure = self._log.bytes_since_snapshot
            log.error("cluster metadata snapshot not written", error=str(error))

    def _versioned_records(self) -> Iterator[tuple[Message, int]]:
        for record in self.image.records():
            yield record, self.image.version_of(record)


_DASH = 62
"""The index of ``-`` in URL-safe base64."""
