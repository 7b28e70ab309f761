"""`change_partition`: the one record that brings a partition from what it is to what is wanted of it.

Every change of a leader, an ISR or an assignment is made here. The caller says what it wants (an ISR, replicas, an
election); what follows from that is decided in this order, each step on what the steps before it left:

1. A reassignment ends as soon as it can: all added replicas are in the ISR, and somebody in it stays. If more replicas
   go than come, all that stay have to be in the ISR, too.
2. The eligible leader replicas (ELR, KIP-966) are those that left an ISR with fewer than min.insync.replicas members:
   each has all records below the high watermark, which stands still below that number. Whoever lost its page cache is
   not among them, nor a replica that is taken away: its log is deleted (Kafka keeps it, docs/reference/differences.md).
   An ISR that is large enough has no ELR.
3. The election. A replica may lead if its broker serves (`MayLead`) and its directory is online. Of those, the first:

   | candidates, in this order                        | who of them                                | the leader is |
   |--------------------------------------------------|--------------------------------------------|---------------|
   | PREFERRED: the first replica                     | in the ISR; if that is empty, in the ELR   | clean         |
   | the present leader, then the replicas in order   | the same                                   | clean         |
   | the last known leader, if ISR and ELR are empty  | anybody (only with the ELR)                | unclean       |
   | UNCLEAN: the replicas in order                   | anybody                                    | unclean       |

   Without any of them the partition has no leader. An unclean leader is the whole ISR, and RECOVERING until it asks
   for an ISR.
4. The leader epoch rises with a new leader, when there is none any more, and if a replica is taken from the
   assignment: then its fetches are refused. A replica that leaves or joins the ISR changes nothing for those who
   fetch, so there the epoch stays. The partition epoch rises with each record.
5. Only with the ELR the ISR may become empty, and the leader that went last is kept as the last known one. Without it
   the last member of the ISR stays there, although it does not lead.

The record has only what differs. Source: Kafka's ``PartitionChangeBuilder``, ``PartitionReassignmentReplicas``;
KIP-455, KIP-704, KIP-858, KIP-966. Rules for a ``metadata.version`` below 3.6, which oncelog does not open, are left
out.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.metadata.configs import effective_topic_config
from oncelog.broker.metadata.image import NO_LEADER
from oncelog.broker.metadata.placement import default_directory, is_active
from oncelog.broker.metadata.replica_directories import (
    MIGRATING,
    directories_of,
    is_directory_online,
)
from oncelog.wire.stored.metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.image import MetadataImage, Partition, Topic
    from oncelog.wire.schema import Uuid

RECOVERED, RECOVERING = 0, 1
"""States of a leader (``LeaderRecoveryState``): RECOVERING after an unclean election."""
MayLead = Callable[[int], bool]
"""Whether a broker serves, or will once the records are replayed."""


class Election(Enum):
    """How a partition whose leader does not go on gets another; PREFERRED also replaces one that could go on."""

    ONLINE = 0
    PREFERRED = 1
    UNCLEAN = 2


class TopicRules(NamedTuple):
    """What a topic's configuration says about ISRs and elections."""

    min_isr: int
    """The smaller of min.insync.replicas and the number of replicas of the first partition."""
    election: Election
    """UNCLEAN if the topic allows it (unclean.leader.election.enable), else ONLINE."""

    @classmethod
    def of(cls, image: MetadataImage, config: BrokerConfig, topic: Topic) -> TopicRules:
        """``config`` is the controller's current configuration, which has the defaults of the topic's keys."""
        effective = effective_topic_config(image, config, topic.name)
        return cls(
            min(effective.min_insync_replicas, len(topic.partitions[0].replicas)),
            Election.UNCLEAN if effective.unclean_leader_election_enable else Election.ONLINE,
        )


class _Assignment(NamedTuple):
    """The replicas of a partition. ``adding`` and ``removing`` are both empty unless a reassignment is under way."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


def change_partition(
    image: MetadataImage,
    topic: Topic,
    index: int,
    rules: TopicRules,
    *,
    may_lead: MayLead | None = None,
    election: Election = Election.ONLINE,
    isr: list[int] | None = None,
    replicas: list[int] | None = None,
    adding: list[int] | None = None,
    removing: list[int] | None = None,
    recovery_state: int | None = None,
    unclean_shutdown: int | None = None,
    directories: dict[int, Uuid] | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that makes of a partition what is wanted and what follows from it; None if nothing changes.

    ``may_lead``: as the image says if None. What is None elsewhere stays as it is, as far as the rest allows.
    ``unclean_shutdown`` is a broker that may have lost what it had not flushed. ``directories`` are other ones than
    before, by replica.
    """
    state = topic.partitions[index]
    wanted = _Assignment(
        state.replicas if replicas is None else replicas,
        state.adding_replicas if adding is None else adding,
        state.removing_replicas if removing is None else removing,
    )
    wanted, isr = _end_reassignment(wanted, state.isr if isr is None else isr)
    elr = _eligible_leaders(image, state, wanted.replicas, rules, isr, unclean_shutdown)
    leads = may_lead or (lambda broker: is_active(image, broker))
    leader, is_unclean = _elect(
        image,
        state,
        wanted.replicas,
        isr,
        elr,
        election,
        lambda broker: _is_online(image, state, broker, leads),
    )

    record = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id)
    if leader != state.leader:
        record.leader = leader
        if leader in elr:
            isr, elr = [leader], [replica for replica in elr if replica != leader]
        if is_unclean:
            isr, elr = [leader], []
            if state.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
    elif not set(state.replicas).issubset(wanted.replicas):
        record.leader = (
            state.leader
        )  # the record names a leader, so the leader epoch rises: a replica is taken away
    if not image.elr_enabled:
        elr = []
    if elr != state.eligible_leader_replicas:
        record.eligible_leader_replicas = elr
    if isr != state.isr and (isr or image.elr_enabled):
        record.isr = isr
    if image.elr_enabled:
        if record.leader == NO_LEADER and not state.last_known_elr:
            record.last_known_elr = [state.leader]
        elif record.leader >= 0 and state.last_known_elr:
            record.last_known_elr = []
    _assign(image, state, wanted, directories or {}, record)
    if recovery_state is not None and recovery_state != state.leader_recovery_state:
        record.leader_recovery_state = recovery_state
    is_same = record == PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id)
    return None if is_same else record


def _end_reassignment(wanted: _Assignment, isr: list[int]) -> tuple[_Assignment, list[int]]:
    """Return the assignment and the ISR after a reassignment that can end with this ISR, else as they were."""
    _, adding, removing = wanted
    staying = [replica for replica in wanted.replicas if replica not in removing]
    staying_isr = [replica for replica in isr if replica not in removing]
    if (
        (adding or removing)
        and staying
        and set(adding).issubset(staying_isr)
        and (len(adding) >= len(removing) or set(staying).issubset(staying_isr))
    ):
        return _Assignment(staying, [], []), staying_isr
    return wanted, isr


def _eligible_leaders(
    image: MetadataImage,
    state: Partition,
    replicas: list[int],
    rules: TopicRules,
    isr: list[int],
    unclean_shutdown: int | None,
) -> list[int]:
    if not image.elr_enabled:
        return state.eligible_leader_replicas
    if len(isr) >= rules.min_isr:
        return []
    candidates = {*state.eligible_leader_replicas, *state.isr}
    removed = set(state.replicas).difference(replicas)
    return sorted(candidates.difference(isr, removed, (unclean_shutdown,)))


def _elect(
    image: MetadataImage,
    state: Partition,
    replicas: list[int],
    isr: list[int],
    elr: list[int],
    election: Election,
    is_online: MayLead,
) -> tuple[int, bool]:
    """Return the leader, or `NO_LEADER`, and whether its election is unclean."""
    preferred = replicas[:1] if election is Election.PREFERRED else []
    for broker in (*preferred, state.leader, *replicas):
        if broker in (isr or elr) and is_online(broker):
            return broker, False
    unclean: Sequence[int] = ()
    if image.elr_enabled and not isr and not elr and len(state.last_known_elr) == 1:
        unclean = state.last_known_elr
    if election is Election.UNCLEAN:
        unclean = (*unclean, *replicas)
    for broker in unclean:
        if is_online(broker):
            return broker, True
    return NO_LEADER, False


def _is_online(image: MetadataImage, state: Partition, broker: int, may_lead: MayLead) -> bool:
    """Whether a replica may lead: its broker may, and the directory is not lost."""
    if broker not in state.replicas or not may_lead(broker):
        return False
    known = image.brokers.get(broker)
    directory = dict(directories_of(state)).get(broker, MIGRATING)
    return known is not None and is_directory_online(known, directory)


def _assign(
    image: MetadataImage,
    state: Partition,
    wanted: _Assignment,
    changed_directories: dict[int, Uuid],
    record: PartitionChangeRecord,
) -> None:
    """Put what changes of the assignment into the record."""
    if wanted.replicas and wanted.replicas != state.replicas:
        record.replicas = wanted.replicas
    if record.replicas is not None or changed_directories:
        known = {**dict(directories_of(state)), **changed_directories}
        directories = [known.get(replica, default_directory(image, replica)) for replica in wanted.replicas]
        if directories != state.directories:
            record.directories = directories
    if wanted.removing != state.removing_replicas:
        record.removing_replicas = wanted.removing
    if wanted.adding != state.adding_replicas:
        record.adding_replicas = wanted.adding
