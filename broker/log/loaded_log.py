"""`LoadedLog`: what a partition's directory was found to hold."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.broker.log.leader_epochs import LeaderEpochs
from oncelog.broker.log.producers.snapshots import ProducerSnapshots
from oncelog.broker.log.producers.state import ProducerStateManager
from oncelog.broker.log.segment import Segment


class LoadedLog(NamedTuple):
    """The parts that make a `PartitionLog`."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStateManager
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    metadata_synced: bool
    """Whether the directory's name and ``partition.metadata`` are on the disk."""
    high_watermark: int | None = None
    """The checkpointed one of a replicated log, None for a log with one replica."""
