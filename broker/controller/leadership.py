"""What becomes of partitions when a broker comes or goes, and elections that somebody or a timer asks for.

    what happens                              which partitions                  what it is to them
    a broker is fenced                        it is in the ISR                  it leaves the ISR, and cannot lead
    its controlled shutdown begins            it is in the ISR                  the same
    a directory of it fails (`directories`)   its replica is in the directory   the same
    it registers again after a clean stop     it is in the ISR                  the same
    it is unregistered                        it is in the ISR or the ELR       the same
    it registers again after any other stop   it is in the ISR or the ELR       the same, and it leaves the ELR
    it is unfenced                            nobody leads                      it may lead

Whoever leaves an ISR with fewer than min.insync.replicas members becomes an eligible leader, unless it stopped
uncleanly: then its page cache may be lost, and with it records that were acknowledged. Without ELR
(eligible.leader.replicas.version 0) nobody tells the two kinds of stop apart.

Functions return records in the order in which they have to be replayed; the caller commits them as one batch. Source:
Kafka's ``ReplicationControlManager`` (``generateLeaderAndIsrUpdates`` and its callers); KIP-841, KIP-966.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from oncelog.broker.controller.partition_change import Election, TopicRules, change_partition
from oncelog.broker.metadata.image import NO_LEADER
from oncelog.broker.metadata.placement import is_active
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.image import MetadataImage, Partition, Topic
    from oncelog.wire.schema import Message
    from oncelog.wire.stored.metadata import PartitionChangeRecord

ELECTIONS_AT_ONCE = 1_000
"""How many partitions a timer's election changes in one batch (``MAX_ELECTIONS_PER_IMBALANCE``)."""
PREFERRED, UNCLEAN = 0, 1
"""Election types of ElectLeaders."""
_UNFENCED, _FENCED = -1, 1
_IN_CONTROLLED_SHUTDOWN = 1
_NOBODY = -1


def fence(image: MetadataImage, config: BrokerConfig, broker_id: int) -> list[Message]:
    """Return the records that fence a registered broker. ``config``: as in `TopicRules.of`."""
    epoch = image.brokers[broker_id].broker_epoch
    return [
        *leader_and_isr_changes(image, config, _is_in_isr(broker_id), leaving=broker_id),
        BrokerRegistrationChangeRecord(broker_id, epoch, fenced=_FENCED),
    ]


def unfence(image: MetadataImage, config: BrokerConfig, broker_id: int) -> list[Message]:
    """Return the records that unfence a registered broker and make it the leader where nobody leads and it may."""
    epoch = image.brokers[broker_id].broker_epoch
    return [
        BrokerRegistrationChangeRecord(broker_id, epoch, fenced=_UNFENCED),
        *leader_and_isr_changes(image, config, _has_no_leader, joining=broker_id),
    ]


def begin_controlled_shutdown(image: MetadataImage, config: BrokerConfig, broker_id: int) -> list[Message]:
    """Return the records by which a registered broker leads nothing any more."""
    broker = image.brokers[broker_id]
    records: list[Message] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id, broker.broker_epoch, in_controlled_shutdown=_IN_CONTROLLED_SHUTDOWN
            )
        )
    return [*records, *leader_and_isr_changes(image, config, _is_in_isr(broker_id), leaving=broker_id)]


def unregister(image: MetadataImage, config: BrokerConfig, broker_id: int) -> list[Message]:
    """Return the records that remove a broker from the metadata. Raises KafkaError (BROKER_ID_NOT_REGISTERED)."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        text = f"Broker ID {broker_id} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
    return [
        *leader_and_isr_changes(image, config, _is_in_isr(broker_id), leaving=broker_id),
        *leader_and_isr_changes(image, config, _is_in_elr(broker_id), leaving=broker_id),
        UnregisterBrokerRecord(broker_id, broker.broker_epoch),
    ]


def forget_last_run(
    image: MetadataImage, config: BrokerConfig, broker_id: int, *, was_clean: bool
) -> list[Message]:
    """Return the changes of partitions before a new incarnation of a broker registers. ``was_clean``: the one before
    stopped cleanly.
    """
    if was_clean or not image.elr_enabled:
        return leader_and_isr_changes(image, config, _is_in_isr(broker_id), leaving=broker_id)
    return [
        *leader_and_isr_changes(image, config, _is_in_isr(broker_id), leaving=broker_id, is_unclean=True),
        *leader_and_isr_changes(image, config, _is_in_elr(broker_id), leaving=broker_id, is_unclean=True),
    ]


def elect(
    image: MetadataImage, config: BrokerConfig, name: str, index: int, election_type: int
) -> PartitionChangeRecord:
    """Return the record by which a partition gets another leader, as ElectLeaders asks for it.

    Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
    ELIGIBLE_LEADERS_NOT_AVAILABLE; INVALID_REQUEST for another type than `PREFERRED` and `UNCLEAN`.
    """
    if election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    state = topic.partitions[index]
    is_preferred = election_type == PREFERRED
    if _has_preferred_leader(state) if is_preferred else not _has_no_leader(state):
        text = "Leader election not needed for topic partition."
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, text)
    rules = TopicRules.of(image, config, topic)
    election = Election.PREFERRED if is_preferred else Election.UNCLEAN
    record = change_partition(image, topic, index, rules, election=election)
    if record is not None:
        return record
    if is_preferred:
        text = "The preferred leader was not available."
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
    text = "Eligible topic partition leaders are not available."
    raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)


def balance(image: MetadataImage, config: BrokerConfig) -> list[PartitionChangeRecord]:
    """Return the records that give partitions to their first replica, where it is in sync and its broker serves
    (auto.leader.rebalance.enable). If they are `ELECTIONS_AT_ONCE`, there may be more.
    """
    elections = (
        change_partition(image, topic, index, rules, election=Election.PREFERRED)
        for topic, index, rules in _concerned(image, config, lambda state: not _has_preferred_leader(state))
    )
    return list(islice((record for record in elections if record is not None), ELECTIONS_AT_ONCE))


def elect_unclean(image: MetadataImage, config: BrokerConfig) -> list[PartitionChangeRecord]:
    """Return the records that give leaders to partitions without one, of topics that allow any replica to lead.

    Kafka looks for them every unclean.leader.election.interval.ms: a topic may have begun to allow it. If the records
    are `ELECTIONS_AT_ONCE`, there may be more.
    """
    elections = (
        change_partition(image, topic, index, rules, election=Election.UNCLEAN)
        for topic, index, rules in _concerned(image, config, _has_no_leader)
        if rules.election is Election.UNCLEAN
    )
    return list(islice((record for record in elections if record is not None), ELECTIONS_AT_ONCE))


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> None:
    """Raise KafkaError (STALE_BROKER_EPOCH) unless a broker is registered with this epoch."""
    known = image.brokers.get(broker_id)
    if known is None:
        text = f"No broker registration found for broker id {broker_id}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)
    if known.broker_epoch != epoch:
        text = f"Expected broker epoch {known.broker_epoch}, but got broker epoch {epoch}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    """Whether a broker is the leader of a partition."""
    return any(state.leader == broker_id for topic in image.topics.values() for state in topic.partitions)


def _has_no_leader(state: Partition) -> bool:
    return state.leader == NO_LEADER


def _has_preferred_leader(state: Partition) -> bool:
    return state.leader == (state.replicas[0] if state.replicas else NO_LEADER)


def _is_in_isr(broker_id: int) -> Callable[[Partition], bool]:
    return lambda state: broker_id in state.isr


def _is_in_elr(broker_id: int) -> Callable[[Partition], bool]:
    return lambda state: broker_id in state.eligible_leader_replicas


def _concerned(
    image: MetadataImage, config: BrokerConfig, concerns: Callable[[Partition], bool]
) -> Iterator[tuple[Topic, int, TopicRules]]:
    for topic in image.topics.values():
        rules = None
        for index, state in enumerate(topic.partitions):
            if concerns(state):
                rules = rules or TopicRules.of(image, config, topic)
                yield topic, index, rules


def leader_and_isr_changes(
    image: MetadataImage,
    config: BrokerConfig,
    concerns: Callable[[Partition], bool],
    *,
    leaving: int = _NOBODY,
    joining: int = _NOBODY,
    is_unclean: bool = False,
) -> list[Message]:
    """Return the changes of the partitions that it ``concerns`` when the broker ``leaving`` leaves their ISRs, or the
    broker ``joining`` may lead from now on (``generateLeaderAndIsrUpdates``). ``is_unclean``: the former may have lost
    what it had not flushed.
    """

    def may_lead(replica: int) -> bool:
        return replica != leaving and (replica == joining or is_active(image, replica))

    changes = (
        change_partition(
            image,
            topic,
            index,
            rules,
            may_lead=may_lead,
            election=rules.election,
            isr=[replica for replica in topic.partitions[index].isr if replica != leaving],
            unclean_shutdown=leaving if is_unclean else None,
        )
        for topic, index, rules in _concerned(image, config, concerns)
    )
    return [record for record in changes if record is not None]
