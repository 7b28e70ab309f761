"""What clients of a replicated partition may see: a model that is told what happened, and fails at what must not.

A *safe* partition has min.insync.replicas 2 and clean elections; there nothing that was acknowledged with acks=all, or
read, is ever lost. In any other one it is lost only if an unclean election lies between, in a higher epoch. The
election of a last known leader is an unclean one, which a safe partition survives if its nodes lose nothing (KIP-966).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.metadata.image import NO_LEADER, NO_LEADER_CHANGE, Partition
from oncelog.wire.batch import read_header
from oncelog.wire.stored.metadata import PartitionChangeRecord
from tests.harness.sim_nodes import batches_of

MARKER = b"marker"
"""What stands for the value of a control record."""


class Election(NamedTuple):
    epoch: int
    leader: int
    is_unclean: bool


class Read(NamedTuple):
    """A record at an offset."""

    epoch: int
    value: bytes


class Acknowledged(NamedTuple):
    """``epoch`` is the leader's when the record was sent, or an earlier one."""

    offset: int
    epoch: int


class StoredBatch(NamedTuple):
    """What tells a batch of a log from others."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


class PartitionModel:
    """What is known of one partition."""

    def __init__(self, name: str, state: Partition, *, is_safe: bool) -> None:
        self.name = name
        self.is_safe = is_safe
        self.elections = [Election(state.leader_epoch, state.leader, is_unclean=False)]
        self._isr, self._elr = list(state.isr), list(state.eligible_leader_replicas)
        self._adding = list(state.adding_replicas)
        self.acknowledged: dict[bytes, Acknowledged] = {}
        self.sent = {MARKER}
        self.deleted_below = 0
        """Somebody has asked to delete the records below this offset; logs may begin up to there."""
        self.renewed: set[bytes] = set()
        """Values that a producer has sent again with a new id: what it had sent before may be there, too."""
        self._reads: dict[int, Read] = {}
        self._batches: dict[tuple[int, int], StoredBatch] = {}
        """All batches that any log ever had, by epoch and base offset."""

    # -- the controller

    def on_change(self, record: PartitionChangeRecord) -> None:
        """The controller has committed a change."""
        # A reassignment ends in one record: who has just joined the ISR may lead.
        known = {*self._isr, *self._elr, *(self._adding if record.replicas is not None else ())}
        # The cancellation of a reassignment may go back to a replica that was not in sync.
        is_reverted = bool(record.isr) and known.isdisjoint(record.isr or ())
        if record.leader != NO_LEADER_CHANGE:
            last = self.elections[-1]
            is_unclean = record.replicas is None and record.leader not in (NO_LEADER, *known)
            self.elections.append(Election(last.epoch + 1, record.leader, is_unclean or is_reverted))
        if record.isr is not None:
            self._isr = list(record.isr)
        if record.eligible_leader_replicas is not None:
            self._elr = list(record.eligible_leader_replicas)
        if record.adding_replicas is not None:
            self._adding = list(record.adding_replicas)

    @property
    def epoch(self) -> int:
        return self.elections[-1].epoch

    def has_unclean_election(self, after: int = -1) -> bool:
        """Whether an epoch above ``after`` began with an unclean election."""
        return not self.is_safe and any(one.is_unclean and one.epoch > after for one in self.elections)

    # -- clients

    def may_forget_sequences(self) -> bool:
        """Return whether a leader may not know a producer's last batches: an unclean election has taken them, or their
        records were deleted, and the leader has started since. A producer snapshot has the last batch only; the others
        come from the log.
        """
        return self.deleted_below > 0 or self.has_unclean_election()

    def on_read(self, offset: int, read: Read) -> None:
        """A consumer has read a record."""
        assert read.value in self.sent, f"{self.name}: {read.value!r} at {offset} was never sent"
        known = self._reads.get(offset)
        if known is not None and known != read:
            # An unclean leader may bring back what an earlier epoch had there.
            assert self.has_unclean_election(min(known.epoch, read.epoch)), (
                f"{self.name}: at {offset} was {known}, and is {read} now; elections: {self.elections}"
            )
        self._reads[offset] = read

    # -- logs

    def on_log(self, node_id: int, log: PartitionLog) -> list[StoredBatch]:
        """A replica has this log; return its batches."""
        stored = stored_batches(log)
        leaders = {one.epoch: one.leader for one in self.elections}
        epoch = 0
        for batch in stored:
            assert batch.epoch >= epoch, f"{self.name}: node {node_id}'s log goes back to epoch {batch.epoch}"
            epoch = batch.epoch
            assert leaders.get(epoch, NO_LEADER) != NO_LEADER, (
                f"{self.name}: node {node_id} has records of epoch {epoch}, in which nobody led"
            )
            known = self._batches.setdefault((epoch, batch.base_offset), batch)
            assert known == batch, f"{self.name}: epoch {epoch} has two leaders: {known} and {batch}"
        return stored

    def check_logs(self, logs: dict[int, PartitionLog], in_sync: Sequence[int]) -> None:
        """Compare the logs of replicas that run, by node id."""
        found = {node_id: self.on_log(node_id, log) for node_id, log in logs.items()}
        if not self.is_safe and any(one.is_unclean for one in self.elections):
            return  # a leader that does not know of its successor has what it had
        committed: list[StoredBatch] = []
        reached = 0
        start = max((log.log_start_offset for log in logs.values()), default=0)
        for node_id, log in logs.items():
            assert log.log_start_offset <= self.deleted_below, (
                f"{self.name}: node {node_id} has deleted too much"
            )
            below = [
                one
                for one in found[node_id]
                if one.base_offset >= start and one.next_offset <= log.high_watermark
            ]
            both = min(len(below), len(committed))
            assert below[:both] == committed[:both], (
                f"{self.name}: node {node_id} differs below the watermark: {below[:both]}, not {committed[:both]}"
            )
            committed = max(committed, below, key=len)
            reached = max(reached, log.high_watermark)
        for node_id in in_sync:
            if node_id in logs:
                end_offset = logs[node_id].log_end_offset
                assert end_offset >= reached, (
                    f"{self.name}: node {node_id} is in sync, and ends at {end_offset} below the watermark {reached}"
                )

    def check_end(self, values: dict[int, Read]) -> None:
        """Compare all records at the end, by their offsets in order, with what was acknowledged and read."""
        there = [read.value for read in values.values()]
        assert set(there) <= self.sent, f"{self.name}: {set(there) - self.sent} were never sent"
        known = set(there)
        for value, acknowledged in self.acknowledged.items():
            is_deleted = acknowledged.offset < self.deleted_below
            assert value in known or is_deleted or self.has_unclean_election(acknowledged.epoch), (
                f"{self.name}: {value!r}, acknowledged as {acknowledged}, is lost; elections: {self.elections}"
            )
        for offset, read in self._reads.items():
            is_deleted = offset < self.deleted_below and offset not in values
            assert values.get(offset) == read or is_deleted or self.has_unclean_election(read.epoch), (
                f"{self.name}: {read} was read at {offset}, and is lost"
            )
        if not self.has_unclean_election():
            # A producer's values end with a number.
            once = [value for value in there if value not in self.renewed]
            for writer in {value.rpartition(b":")[0] for value in once if value != MARKER}:
                own = [int(value.rpartition(b":")[2]) for value in once if value.startswith(writer + b":")]
                assert own == sorted(set(own)), f"{self.name}: {writer!r} is doubled or reordered: {own}"


def stored_batches(log: PartitionLog) -> list[StoredBatch]:
    """The batches of a log to its end."""
    headers = (read_header(batch) for batch in batches_of(log, log.log_start_offset))
    return [
        StoredBatch(one.base_offset, one.next_offset, one.partition_leader_epoch, one.crc) for one in headers
    ]
