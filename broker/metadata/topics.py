"""CreateTopics, CreatePartitions and DeleteTopics: the records for them, and a result for each topic.

All changes of one request are committed as one batch; a refused topic does not affect the others. Source: Kafka's
``ReplicationControlManager``, ``ControllerApis``, ``AutoTopicCreationManager``, ``Topic``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from oncelog.broker.metadata.configs import check_topic_overrides, creation_rows
from oncelog.broker.metadata.image import TOPIC
from oncelog.broker.metadata.placement import check_assignment, partition_record, place
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicResult
from oncelog.wire.messages.delete_topics import DeletableTopicResult
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.stored.metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from oncelog.wire.topic_names import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.image import MetadataImage, Topic
    from oncelog.wire.messages.create_partitions import CreatePartitionsTopic
    from oncelog.wire.messages.delete_topics import DeleteTopicState
    from oncelog.wire.schema import Message, Uuid
    from oncelog.wire.steps import Steps

T = TypeVar("T")
Charge = Callable[[int], None]
"""Takes a number of partitions. Raises KafkaError (THROTTLING_QUOTA_EXCEEDED)."""

NAME_CHARS_MAX = 249
PARTITIONS_PER_REQUEST_MAX = 10_000
"""How many partitions one request may create or add (``MAX_PARTITIONS_PER_BATCH``)."""
RECORDS_PER_REQUEST_MAX = 10_000
"""How many metadata records one request may need (``MAX_RECORDS_PER_USER_OP``)."""

_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
UNSET = -1
"""In CreateTopics: the broker's default holds (number of partitions, replication factor)."""


def check_name(name: str) -> None:
    """Raise KafkaError (INVALID_TOPIC_EXCEPTION) if no topic may have that name."""
    reason = ""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_CHARS_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_CHARS_MAX}"
    elif not _NAME_CHARS.issuperset(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


class TopicRights(NamedTuple):
    """The rights of a client by topic name: to know of the topic, and to create or delete it."""

    may_describe: Callable[[str], bool]
    may_change: Callable[[str], bool]


def create(
    store: ClusterMetadata,
    config: DynamicBrokerConfig,
    wanted: list[CreatableTopic],
    *,
    validate_only: bool = False,
    describe: bool = False,
    rights: TopicRights | None = None,
    charge: Charge | None = None,
) -> Steps[list[CreatableTopicResult]]:
    """Create topics, in steps, all in one batch. Returns a result for each in the request's order, then one for each
    name that occurs twice.

    ``describe``: whether the results have the topics' configurations, which take longer than all the rest. ``rights``
    tells which topics the client may create, and whose configurations it may see (None: all). ``charge`` is called with
    each topic's number of partitions; a KafkaError refuses the topic.
    """
    names = [topic.name for topic in wanted]
    _, twice = once_and_twice(names)
    refused = {*twice, CLUSTER_METADATA_TOPIC}
    denied = set()
    if rights is not None:
        for name in names:
            if not rights.may_change(name) and name not in refused:
                denied.add(name)
            yield
    left_out = denied | refused
    total = sum(_partitions_wanted(config.current, topic) for topic in wanted if topic.name not in left_out)
    if total > PARTITIONS_PER_REQUEST_MAX:
        too_many = KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
        rows = []
        for topic in wanted:
            rows.append(_refused(topic.name, too_many))
            yield
        return rows
    records_of: dict[str, list[Message]] = {}
    count = 0
    began = store.image.offset
    rows = []
    for topic in wanted:
        yield
        if topic.name in refused or topic.name in denied:
            continue
        try:
            made, row = _create(store, config, topic, describe)
            if charge is not None:
                charge(row.num_partitions)
            if rights is not None and not rights.may_describe(topic.name):
                row.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                row.num_partitions = row.replication_factor = -1
                row.configs = []
            check_record_count(count + len(made))
            count += len(made)
            records_of[topic.name] = made
            rows.append(row)
        except KafkaError as error:
            rows.append(_refused(topic.name, error))
    if store.image.offset != began:
        # The metadata changed between the steps: somebody else may have created one of them.
        for at, row in enumerate(rows):
            if row.name in records_of:
                try:
                    _check_new_name(store.image, row.name)
                except KafkaError as error:
                    del records_of[row.name]
                    rows[at] = _refused(row.name, error)
    if records_of and not validate_only:
        try:
            store.commit([record for made in records_of.values() for record in made])
        except KafkaError as error:
            rows = [row if row.error_code else _refused(row.name, error) for row in rows]
    for name in twice:
        rows.append(_refused(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
        yield
    if CLUSTER_METADATA_TOPIC in names and CLUSTER_METADATA_TOPIC not in twice:
        text = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
        rows.append(_refused(CLUSTER_METADATA_TOPIC, KafkaError(ErrorCode.INVALID_REQUEST, text)))
    not_allowed = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The client may not create the topic.")
    for name in names:
        if name in denied:
            rows.append(_refused(name, not_allowed))
        yield
    return rows


def _partitions_wanted(config: BrokerConfig, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return config.num_partitions if topic.num_partitions == UNSET else max(topic.num_partitions, 0)


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)


def check_record_count(count: int) -> None:
    """Raise KafkaError (POLICY_VIOLATION) if one request needs too many records."""
    if count > RECORDS_PER_REQUEST_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def _create(
    store: ClusterMetadata, config: DynamicBrokerConfig, topic: CreatableTopic, describe: bool
) -> tuple[list[Message], CreatableTopicResult]:
    """Return the records that create the topic, and its result. Raises KafkaError if it is refused."""
    image = store.image
    _check_new_name(image, topic.name)
    overrides = {config.name: config.value for config in topic.configs}
    values = check_topic_overrides(config.current, overrides)
    replicas = _assigned(image, topic) if topic.assignments else _placed(store, config.current, topic)
    topic_id = store.new_uuid()
    while topic_id in image.topics_by_id:
        topic_id = store.new_uuid()
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [ConfigRecord(TOPIC, topic.name, name, value) for name, value in values.items()]
    records += [partition_record(image, topic_id, index, brokers) for index, brokers in enumerate(replicas)]
    row = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=creation_rows(image, config, values) if describe else [],
    )
    return records, row


def _check_new_name(image: MetadataImage, name: str) -> None:
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = image.colliding_topic(name)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
        )
    check_name(name)


def _assigned(image: MetadataImage, topic: CreatableTopic) -> list[list[int]]:
    """Return the replicas of each partition as the request assigns them. Raises KafkaError if it may not."""
    for count, what in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if count != UNSET:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    by_index: dict[int, list[int]] = {}
    expected = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in by_index:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_assignment(image, assignment.broker_ids, index, expected)
        expected = len(assignment.broker_ids)
        by_index[index] = assignment.broker_ids
    if sorted(by_index) != list(range(len(by_index))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [by_index[index] for index in range(len(by_index))]


def _placed(store: ClusterMetadata, config: BrokerConfig, topic: CreatableTopic) -> list[list[int]]:
    """Return replicas for the request's number of partitions and replication factor, or for their defaults.

    Raises KafkaError: INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS.
    """
    if topic.replication_factor < UNSET or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < UNSET or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    factor = topic.replication_factor
    if factor == UNSET:
        factor = config.default_replication_factor
    try:
        return place(store.image, _partitions_wanted(config, topic), factor, store.rng)
    except KafkaError as error:
        raise KafkaError(
            error.code, f"Unable to replicate the partition {factor} time(s): {error.message}"
        ) from None


def bump_leader_epoch(topic: Topic, partitions: Iterable[int]) -> list[Message]:
    """Return the records that begin a new leader epoch, with the same leader, in these partitions.

    After a start had to cut a log, consumers that have read beyond the cut notice it by the epoch (KIP-320).
    """
    return [
        PartitionChangeRecord(
            partition_id=index, topic_id=topic.topic_id, leader=topic.partitions[index].leader
        )
        for index in partitions
    ]


def check_more_partitions(image: MetadataImage, wanted: Iterable[CreatePartitionsTopic]) -> None:
    """Raise KafkaError (POLICY_VIOLATION) if the topics want too many more partitions together.

    Source: ``ReplicationControlManager.validateTotalNumberOfPartitions``.
    """
    more = 0
    for topic in wanted:
        known = image.topics.get(topic.name)
        if known is not None:
            more += max(0, topic.count - len(known.partitions))
    if more > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of additional partitions per request."
        )


def create_partitions(
    store: ClusterMetadata, topic: CreatePartitionsTopic, charge: Charge | None = None
) -> list[Message]:
    """Return the records that give a topic more partitions. Raises KafkaError if it is refused, also by ``charge``."""
    image = store.image
    known = image.topics.get(topic.name)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    first = len(known.partitions)
    if topic.count == first:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {first} partition(s).")
    if topic.count < first:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {first} partition(s); {topic.count} would not be an increase.",
        )
    more = topic.count - first
    factor = len(known.partitions[0].replicas)
    if topic.assignments is not None and len(topic.assignments) != more:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only {len(topic.assignments)} assignment(s) "
            "were specified.",
        )
    if charge is not None:
        charge(more)
    if topic.assignments is None:
        replicas = place(image, more, factor, store.rng)
    else:
        replicas = [assignment.broker_ids for assignment in topic.assignments]
        for offset, brokers in enumerate(replicas):
            check_assignment(image, brokers, first + offset, factor)
    return [
        partition_record(image, known.topic_id, first + offset, brokers)
        for offset, brokers in enumerate(replicas)
    ]


NOT_ALLOWED = "The client may not delete the topic."
UNKNOWN_ID = "This server does not host this topic ID."


def delete(
    store: ClusterMetadata,
    wanted: Iterable[DeleteTopicState],
    rows: list[DeletableTopicResult],
    rights: TopicRights | None = None,
    charge: Charge | None = None,
) -> Iterator[None]:
    """Delete topics by name or id, in steps, all in one batch by the last. ``rows`` gets a result for each name and
    id. ``rights`` tells which topics the client may delete, and know of (None: all). ``charge``: as in `create`.
    """
    image = store.image
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def refuse(name: str | None, topic_id: Uuid, code: ErrorCode, text: str | None = None) -> None:
        rows.append(DeletableTopicResult(name, topic_id, code, KafkaError(code, text).message))

    names: list[str] = []
    ids: list[Uuid] = []
    for asked in wanted:
        if asked.name is None and asked.topic_id == ZERO_UUID:
            refuse(None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif asked.name is None:
            ids.append(asked.topic_id)
        elif asked.topic_id == ZERO_UUID:
            names.append(asked.name)
        else:
            refuse(
                asked.name,
                asked.topic_id,
                ErrorCode.INVALID_REQUEST,
                "You may not specify both topic name and topic id.",
            )
        yield
    found: dict[Uuid, str] = {}
    once_ids, twice_ids = once_and_twice(ids)
    once_names, twice_names = once_and_twice(names)
    refused_ids = frozenset(twice_ids)
    for name in twice_names:
        refuse(name, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        yield
    for topic_id in twice_ids:
        refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        yield
    for topic_id in once_ids:
        by_id = image.topics_by_id.get(topic_id)
        if by_id is None:
            refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID)
        elif rights is not None and not rights.may_change(by_id.name):
            refuse(by_id.name if rights.may_describe(by_id.name) else None, topic_id, denied, NOT_ALLOWED)
        else:
            found[topic_id] = by_id.name
        yield
    for name in once_names:
        by_name = image.topics.get(name)
        if rights is not None and not rights.may_describe(name):
            refuse(name, ZERO_UUID, denied, NOT_ALLOWED)
        elif by_name is None:
            text = "This server does not host this topic-partition."
            refuse(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        elif rights is not None and not rights.may_change(name):
            refuse(name, ZERO_UUID, denied, NOT_ALLOWED)
        elif by_name.topic_id in found or by_name.topic_id in refused_ids:
            found.pop(by_name.topic_id, None)
            refuse(
                name,
                by_name.topic_id,
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
        else:
            found[by_name.topic_id] = name
        yield
    for topic_id in [gone for gone in found if gone not in image.topics_by_id]:  # deleted between the steps
        refuse(found.pop(topic_id), topic_id, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID)
    if charge is not None:
        for topic_id in list(found):
            try:
                charge(len(image.topics_by_id[topic_id].partitions))
            except KafkaError as error:
                rows.append(DeletableTopicResult(found.pop(topic_id), topic_id, error.code, error.message))
    rows += _remove(store, found)


def once_and_twice(items: list[T]) -> tuple[list[T], list[T]]:
    """Return the items that occur once, and those that occur more often."""
    counts = Counter(items)
    return [item for item in counts if counts[item] == 1], [item for item in counts if counts[item] > 1]


def _remove(store: ClusterMetadata, found: dict[Uuid, str]) -> list[DeletableTopicResult]:
    """Delete all of them in one batch."""
    code, text = ErrorCode.NONE, None
    try:
        store.commit([RemoveTopicRecord(topic_id=topic_id) for topic_id in found])
    except KafkaError as error:
        code, text = error.code, error.message
    return [DeletableTopicResult(name, topic_id, code, text) for topic_id, name in found.items()]
