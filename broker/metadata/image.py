"""`MetadataImage`: topics, configurations, ACLs, features and brokers, as the records of the metadata log make them.

The image changes only in `MetadataImage.replay`, when loading as when running. `MetadataImage.records` is the reverse:
it yields the records that would make this image, as a snapshot holds them. Source: Kafka's
``org.apache.kafka.image.MetadataDelta`` and the images under it; KIP-631.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.acls import AclsImage
from oncelog.broker.metadata.client_quotas import ClientQuotasImage
from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.stored.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from oncelog.wire.schema import Message, Uuid

# Resource types of a ConfigRecord (``org.apache.kafka.common.config.ConfigResource.Type``).
TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

METADATA_VERSION = "metadata.version"
ELR_VERSION = "eligible.leader.replicas.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"

NO_LEADER = -1
NO_LEADER_CHANGE = -2
_NO_RECOVERY_STATE_CHANGE = -1
_FENCED, _UNFENCED = 1, -1


class Partition:
    """The state of a partition, named as in PartitionRecord. ``directories`` are those of ``replicas``, in that
    order.
    """

    __slots__ = (
        "adding_replicas",
        "directories",
        "eligible_leader_replicas",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "leader_recovery_state",
        "partition_epoch",
        "removing_replicas",
        "replicas",
    )

    def __init__(self, record: PartitionRecord) -> None:
        self.replicas: list[int] = record.replicas
        self.isr: list[int] = record.isr
        self.removing_replicas: list[int] = record.removing_replicas
        self.adding_replicas: list[int] = record.adding_replicas
        self.leader: int = record.leader
        self.leader_recovery_state: int = record.leader_recovery_state
        self.leader_epoch: int = record.leader_epoch
        self.partition_epoch: int = record.partition_epoch
        self.directories: list[Uuid] = record.directories
        self.eligible_leader_replicas: list[int] = record.eligible_leader_replicas or []
        self.last_known_elr: list[int] = record.last_known_elr or []

    def change(self, record: PartitionChangeRecord) -> None:
        """Apply the record's fields. A leader, even the same one, begins a new leader epoch."""
        for name in _CHANGED_LISTS:
            value = getattr(record, name)
            if value is not None:
                setattr(self, name, value)
        if record.leader != NO_LEADER_CHANGE:
            self.leader = record.leader
            self.leader_epoch += 1
        if record.leader_recovery_state != _NO_RECOVERY_STATE_CHANGE:
            self.leader_recovery_state = record.leader_recovery_state
        self.partition_epoch += 1

    def record(self, topic_id: Uuid, partition_id: int) -> PartitionRecord:
        """Return the record that creates this partition."""
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=self.directories,
            eligible_leader_replicas=self.eligible_leader_replicas or None,
            last_known_elr=self.last_known_elr or None,
        )


_CHANGED_LISTS = (
    "isr",
    "replicas",
    "removing_replicas",
    "adding_replicas",
    "directories",
    "eligible_leader_replicas",
    "last_known_elr",
)


class Topic:
    """A topic and its partitions by index."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[Partition] = []

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {len(self.partitions)} partitions)"


class MetadataImage:
    """The cluster after all records up to ``offset``.

    ``offset`` is the offset of the last record, control records included, or -1. It is also the epoch of the finalized
    features. ``configs`` maps (resource type, resource name) to overrides; a broker's name is its id in decimal, or
    empty for the defaults of all brokers.
    """

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[Uuid, Topic] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, RegisterBrokerRecord] = {}
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.next_producer_id = 0
        self.client_quotas = ClientQuotasImage()
        self.acls = AclsImage()
        self.scram_credentials: dict[tuple[str, int], UserScramCredentialRecord] = {}
        """By user and number of the mechanism."""
        self.delegation_tokens: dict[str, DelegationTokenRecord] = {}
        """By id."""
        self.offset = -1
        self._similar_names: dict[str, list[str]] = {}

    @property
    def elr_enabled(self) -> bool:
        """Whether partitions have eligible leader replicas (KIP-966)."""
        return self.features.get(ELR_VERSION, 0) > 0

    def colliding_topic(self, name: str) -> str | None:
        """Return a topic whose name equals ``name`` if ``.`` and ``_`` are the same, or None.

        The names of Kafka's metrics do not tell such topics apart.
        """
        return next(iter(self._similar_names.get(name.replace(".", "_"), ())), None)

    def replay(self, record: Message) -> Topic | None:
        """Apply a record. Returns the topic that it created, changed or removed, or None.

        Raises DecodeError for a record that contradicts the image, and for one of an unknown type: the next snapshot
        would lose what it said.
        """
        replay = _REPLAY.get(type(record))
        if replay is None:
            raise DecodeError(f"metadata record {record!r} is of a type that is not supported")
        return replay(self, record)

    def records(self) -> Iterator[Message]:
        """Yield the records that make this image, in the order of Kafka's snapshots."""
        for name in sorted(self.features, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name=name, feature_level=self.features[name])
        yield from self.brokers.values()
        yield from self.controllers.values()
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, partition in enumerate(topic.partitions):
                yield partition.record(topic.topic_id, index)
        for (resource_type, resource_name), overrides in self.configs.items():
            for name, value in overrides.items():
                yield ConfigRecord(
                    resource_type=resource_type, resource_name=resource_name, name=name, value=value
                )
        yield from self.client_quotas.records()
        if self.next_producer_id > 0:
            yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)
        yield from self.acls.records()
        yield from self.scram_credentials.values()
        yield from self.delegation_tokens.values()

    def version_of(self, record: Message) -> int:
        """Return the version that Kafka writes the record in, at each supported level of metadata.version."""
        if isinstance(record, BrokerRegistrationChangeRecord):
            if record.cordoned_log_dirs is not None:
                return 3
            return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
        return record.MAX_VERSION

    def _topic(self, topic_id: Uuid) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise DecodeError(f"metadata record names a topic id {topic_id.hex()} that does not exist")
        return topic

    def _replay_topic(self, record: TopicRecord) -> Topic:
        if record.name in self.topics or record.topic_id in self.topics_by_id or record.topic_id == ZERO_UUID:
            raise DecodeError(f"metadata record creates a topic that exists: {record!r}")
        topic = Topic(record.name, record.topic_id)
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic
        if "." in topic.name or "_" in topic.name:
            self._similar_names.setdefault(topic.name.replace(".", "_"), []).append(topic.name)
        return topic

    def _replay_partition(self, record: PartitionRecord) -> Topic:
        topic = self._topic(record.topic_id)
        if record.partition_id != len(topic.partitions):
            raise DecodeError(f"metadata record is not about the next partition of {topic!r}: {record!r}")
        topic.partitions.append(Partition(record))
        return topic

    def _replay_partition_change(self, record: PartitionChangeRecord) -> Topic:
        topic = self._topic(record.topic_id)
        if not 0 <= record.partition_id < len(topic.partitions):
            raise DecodeError(f"metadata record changes a partition that {topic!r} does not have: {record!r}")
        topic.partitions[record.partition_id].change(record)
        return topic

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> Topic:
        topic = self._topic(record.topic_id)
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        self.configs.pop((TOPIC, topic.name), None)
        similar = topic.name.replace(".", "_")
        if topic.name in self._similar_names.get(similar, ()):
            self._similar_names[similar].remove(topic.name)
            if not self._similar_names[similar]:
                del self._similar_names[similar]
        return topic

    def _replay_config(self, record: ConfigRecord) -> Topic | None:
        resource = (record.resource_type, record.resource_name)
        overrides = self.configs.setdefault(resource, {})
        if record.value is None:
            overrides.pop(record.name, None)
            if not overrides:
                del self.configs[resource]
        else:
            overrides[record.name] = record.value
        return self.topics.get(record.resource_name) if record.resource_type == TOPIC else None

    def _replay_clear_elr(self, record: ClearElrRecord) -> Topic | None:
        named = self.topics.get(record.topic_name)
        for topic in [named] if named is not None else [] if record.topic_name else self.topics.values():
            for partition in topic.partitions:
                partition.eligible_leader_replicas = []
                partition.last_known_elr = []
        return named

    def _replay_feature_level(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _replay_register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = record

    def _replay_unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _replay_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None or broker.broker_epoch != record.broker_epoch:
            raise DecodeError(f"metadata record changes a broker with another registration: {record!r}")
        if record.fenced:
            broker.fenced = record.fenced == _FENCED
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = True
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = record.cordoned_log_dirs

    def _replay_fence_broker(self, record: FenceBrokerRecord) -> None:
        self._replay_registration_change(
            BrokerRegistrationChangeRecord(record.id, record.epoch, fenced=_FENCED)
        )

    def _replay_unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        self._replay_registration_change(
            BrokerRegistrationChangeRecord(record.id, record.epoch, fenced=_UNFENCED)
        )

    def _replay_register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _replay_unregister_controller(self, record: UnregisterControllerRecord) -> None:
        self.controllers.pop(record.controller_id, None)

    def _replay_scram_credential(self, record: UserScramCredentialRecord) -> None:
        self.scram_credentials[record.name, record.mechanism] = record

    def _replay_remove_scram_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self.scram_credentials.pop((record.name, record.mechanism), None)

    def _replay_delegation_token(self, record: DelegationTokenRecord) -> None:
        self.delegation_tokens[record.token_id] = record

    def _replay_remove_delegation_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.delegation_tokens.pop(record.token_id, None)

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _replay_client_quota(self, record: ClientQuotaRecord) -> None:
        self.client_quotas.replay(record)

    def _replay_acl(self, record: AccessControlEntryRecord) -> None:
        self.acls.replay(record)

    def _replay_remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self.acls.replay_remove(record)

    def _replay_nothing(self, record: Message) -> None:
        """Replays a record that changes no state. The reader of the log leaves out aborted transactions."""


_REPLAY: dict[type[Message], Callable[[MetadataImage, Any], Topic | None]] = {
    TopicRecord: MetadataImage._replay_topic,
    PartitionRecord: MetadataImage._replay_partition,
    PartitionChangeRecord: MetadataImage._replay_partition_change,
    RemoveTopicRecord: MetadataImage._replay_remove_topic,
    ConfigRecord: MetadataImage._replay_config,
    ClearElrRecord: MetadataImage._replay_clear_elr,
    FeatureLevelRecord: MetadataImage._replay_feature_level,
    RegisterBrokerRecord: MetadataImage._replay_register_broker,
    UnregisterBrokerRecord: MetadataImage._replay_unregister_broker,
    BrokerRegistrationChangeRecord: MetadataImage._replay_registration_change,
    FenceBrokerRecord: MetadataImage._replay_fence_broker,
    UnfenceBrokerRecord: MetadataImage._replay_unfence_broker,
    RegisterControllerRecord: MetadataImage._replay_register_controller,
    UnregisterControllerRecord: MetadataImage._replay_unregister_controller,
    ClientQuotaRecord: MetadataImage._replay_client_quota,
    ProducerIdsRecord: MetadataImage._replay_producer_ids,
    AccessControlEntryRecord: MetadataImage._replay_acl,
    RemoveAccessControlEntryRecord: MetadataImage._replay_remove_acl,
    UserScramCredentialRecord: MetadataImage._replay_scram_credential,
    RemoveUserScramCredentialRecord: MetadataImage._replay_remove_scram_credential,
    DelegationTokenRecord: MetadataImage._replay_delegation_token,
    RemoveDelegationTokenRecord: MetadataImage._replay_remove_delegation_token,
    NoOpRecord: MetadataImage._replay_nothing,
    BeginTransactionRecord: MetadataImage._replay_nothing,
    EndTransactionRecord: MetadataImage._replay_nothing,
    AbortTransactionRecord: MetadataImage._replay_nothing,
}
