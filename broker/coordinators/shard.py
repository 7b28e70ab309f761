"""The interfaces that `CoordinatorRuntime` needs, `Shard` and `ShardBuilder`, and `ShardContext`, a shard with its
log.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from oncelog.broker.coordinators.loader import Replayable
from oncelog.coordinator.deadlines import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from oncelog.broker.coordinators.log import CoordinatorLog
    from oncelog.broker.log.partition_log import PartitionLog
    from oncelog.broker.log.results import FileRange
    from oncelog.broker.seams.clock import Clock
    from oncelog.wire.schema import Message


class Shard(Replayable, Protocol):
    partition: int

    def on_loaded(self) -> None: ...

    def on_unloaded(self) -> None: ...


S = TypeVar("S", bound=Shard)


class _WithDeadlines(Protocol):
    deadlines: Deadlines


C = TypeVar("C", bound=_WithDeadlines)


class ShardBuilder(Protocol[S]):
    """Builds the shards of one topic (Kafka: ``CoordinatorShardBuilder``, ``Deserializer``)."""

    BASE_SEQUENCE: int
    """The base sequence of every batch. The batches have no sequence numbers, but Kafka writes this value."""
    SKIPS_VERSIONS: bool
    """Whether loading skips values of unknown versions. Otherwise it fails."""
    RELOADS: bool
    """Whether a shard is loaded again where the same node goes on to lead with a new epoch. Otherwise it stays."""

    IS_ACKS_ALL: bool
    """Whether records are refused while the ISR is below ``min.insync.replicas``. Otherwise responses wait."""

    def build(self, partition: int, log: CoordinatorLog) -> S:
        """Return an empty shard."""
        ...

    def build_view(self, partition: int, log: CoordinatorLog) -> S:
        """Return an empty shard that is only replayed and read: it touches no timer of the shard that serves."""
        ...

    def record_types(self) -> tuple[Mapping[int, type[Message]], Mapping[int, type[Message]]]:
        """Return the classes of keys and of values by record type."""
        ...

    def codec(self) -> int:
        """Return the compression codec of new batches."""
        ...

    def write_timeout_ms(self) -> int:
        """Return for how long a response waits until its records are committed."""
        ...

    def on_shard_loaded(self, shard: S) -> None:
        """Called after a shard was loaded, when requests can use it."""
        ...


def without_timers(context: C, clock: Clock) -> C:
    """Return the context of a shard that is only read (`ShardBuilder.build_view`)."""
    context = copy(context)
    context.deadlines = Deadlines(clock.monotonic)
    return context


class ShardContext(Generic[S]):
    """A shard, loaded or loading, with its log (Kafka: ``CoordinatorContext``). It is a waiter of the log, so that it
    notices when the log goes offline, or another leader epoch begins.
    """

    __slots__ = ("_on_lost", "log", "partition_log", "shard", "steps")

    def __init__(
        self,
        shard: S,
        log: CoordinatorLog,
        partition_log: PartitionLog,
        steps: Generator[FileRange | None, None, None],
        on_lost: Callable[[], None],
    ) -> None:
        self.shard = shard
        self.log = log
        self.partition_log = partition_log
        self.steps = steps
        """The steps that load the shard, one record each."""
        self._on_lost = on_lost
        partition_log.waiters.add(self)

    def is_lost(self) -> bool:
        """Whether the log is offline or deleted, or its leader epoch is over."""
        return self.partition_log.offline or self.partition_log.deleted or not self.log.is_current()

    def notify(self, log: PartitionLog) -> None:
        if self.is_lost():
            self._on_lost()

    def close(self) -> None:
        self.steps.close()
        self.partition_log.waiters.discard(self)
