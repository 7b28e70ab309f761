"""`MetadataStore`: the metadata log and its image. All changes of metadata go through `MetadataStore.commit`.

`commit` appends a batch of records, replays it into the image and calls the listeners, without waiting in between: no
task sees half of a batch. This is what a KRaft controller and its brokers do together. Source: Kafka's
``QuorumController``, ``MetadataLoader``, ``SnapshotGenerator``; KIP-631.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata import features, snapshots
from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
from oncelog.broker.metadata.features import OUR_FEATURES
from oncelog.broker.metadata.image import METADATA_VERSION, MetadataImage
from oncelog.broker.metadata.log import MetadataLog
from oncelog.broker.metadata.placement import regain_leaders
from oncelog.coordinator.producer_ids import next_block
from oncelog.wire.errors import DecodeError, ErrorCode, KafkaError
from oncelog.wire.schema import Uuid
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
    from oncelog.broker.metadata.log import LoadedMetadata
    from oncelog.broker.scheduling.background_work import BackgroundWork
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.wire.messages.describe_quorum import ReplicaState
    from oncelog.wire.schema import Message


START_TAIL_BYTES_MAX = 1 << 20
"""How much log after the snapshot, in bytes, makes a start write a new snapshot, so that the next start is quick."""
_UNFENCED, _FENCED = -1, 1
_IN_CONTROLLED_SHUTDOWN = 1

log = get_logger(__name__)


class MetadataStore(ClusterMetadata):
    """The metadata of a controller, in the data directory ``data_dir``. See `ClusterMetadata`."""

    is_controller = True

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
        super().__init__(
            clock, rng, config, cluster_id=cluster_id, directory_id=directory_id, supported=supported
        )
        self._data_dir = data_dir
        self._files = files
        self._log = MetadataLog(data_dir, files, clock)
        self._snapshot_ms = 0
        self._bytes_at_failure = 0
        self.observers: Callable[[], list[ReplicaState]] = list
        """Returns how far each node that follows has fetched."""

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
        controller = self._controller_record()
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
                cordon_record(broker, is_cordoned=is_cordoned),
                *self._fence_others(),
                *regain_leaders(self.image, node_id),
            ]
        )

    def register_controller(self) -> None:
        """Register a controller that is no broker. Raises KafkaError as `commit`."""
        self.commit([self._controller_record()])

    def _controller_record(self) -> RegisterControllerRecord:
        supported = OUR_FEATURES.supported.items()
        return RegisterControllerRecord(
            controller_id=self.config.node_id,
            incarnation_id=self.new_uuid(),
            features=[ControllerFeature(name, low, high) for name, (low, high) in supported],
        )

    def _fence_others(self) -> list[Message]:
        """Return the records that fence the other nodes of a directory's former cluster: they are not running."""
        return [
            BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, fenced=_FENCED)
            for broker_id, broker in self.image.brokers.items()
            if broker_id != self.config.node_id and not broker.fenced
        ]

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
        self._replay(records, last_offset)
        self._maybe_snapshot()
        return last_offset

    def feed(self, on_append: Callable[[int, bytearray], None]) -> None:
        """Call ``on_append`` with the base offset and the bytes of each batch, once it is written."""
        self._log.on_append = on_append

    def encoded_snapshot(self) -> tuple[snapshots.SnapshotId, bytes]:
        """Return a snapshot of the image as it is now, which is not stored."""
        now_ms = self._clock.now_ms()
        data = snapshots.encode(
            self._versioned_records(),
            epoch=self.epoch,
            timestamp=now_ms,
            last_contained_log_timestamp=self._log.last_timestamp,
        )
        return snapshots.SnapshotId(self.end_offset, self.epoch), data

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

    def take_producer_ids(self) -> int:
        """Do as `give_producer_ids`, to this node."""
        return self.give_producer_ids(self.config.node_id, self.broker_epoch)

    def give_producer_ids(self, broker_id: int, broker_epoch: int) -> int:
        """Return the first id of the next block of producer ids, after making it durable that a broker has it.

        Raises KafkaError: UNKNOWN_SERVER_ERROR if no ids are left, and as `commit`.
        """
        first, after = next_block(self.image.next_producer_id)
        record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=after)
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

    def flush(self) -> None:
        """Sync all committed records to the disk. Blocks. Raises OSError."""
        self._log.sync()

    async def flush_in_background(self) -> None:
        """Sync in a worker thread. A failure is logged, and no further record can be committed."""
        try:
            await self._log.sync_in_background()
        except OSError as error:
            log.error("cluster metadata not flushed", error=str(error))

    async def flush_regularly(self, background: BackgroundWork, interval_s: float) -> None:
        """Flush what is new every ``interval_s`` seconds, until cancelled."""
        flushed = -1
        while True:
            await self._clock.pause(interval_s)
            offset = self.image.offset
            if offset != flushed:
                with background.running("flush of the metadata"):
                    await self.flush_in_background()
                flushed = offset

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


def cordon_record(broker: RegisterBrokerRecord, *, is_cordoned: bool) -> Message:
    """Return the record by which a broker's data directories take no new partitions, or take them again."""
    cordoned = list(broker.log_dirs) if is_cordoned else []
    return BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, cordoned_log_dirs=cordoned)


def store_of(metadata: ClusterMetadata) -> MetadataStore:
    """Return the metadata of a controller as such. Raises KafkaError: NOT_CONTROLLER."""
    if not isinstance(metadata, MetadataStore):
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    return metadata
