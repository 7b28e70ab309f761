"""`LoadedLog`: what a partition's directory was found to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.broker.log.leader_epochs import LeaderEpochs
    from oncelog.broker.log.producers.snapshots import ProducerSnapshots
    from oncelog.broker.log.producers.state import ProducerState
    from oncelog.broker.log.segment import Segment


class LoadedLog:
    """What `PartitionLog` is made from."""

    __slots__ = (
        "epochs",
        "log_end_offset",
        "log_start_offset",
        "metadata_synced",
        "producers",
        "producers_complete",
        "recovery_point",
        "segments",
        "snapshots",
    )

    def __init__(
        self,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        producers_complete: bool = True,
        metadata_synced: bool = True,
    ) -> None:
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.snapshots = snapshots
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.producers_complete = producers_complete
        """Whether ``producers`` has the last five batches of each producer. A snapshot has only the last
        one."""
        self.metadata_synced = metadata_synced
        """Whether the directory's name and ``partition.metadata`` are on the disk."""
