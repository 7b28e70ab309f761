"""Records of the cluster metadata log, as KRaft writes them; ``api_key`` is the record's type.

The framing (frame version, type and version before the fields) is not declared here. The default of a field in a change
record means "no change".

Source: Kafka's metadata record definitions, ``MetadataRecordSerde``, KIP-631, KIP-858 (directories),
KIP-866 (migration), KIP-868 (transactions), KIP-966 (eligible leader replicas).
"""

from __future__ import annotations

from oncelog.wire.schema import (
    Message,
    Struct,
    Uuid,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Message, api_key=0, kind="metadata", versions="0-4", flexible="0+"):
    """A broker registered with a new epoch; if ``fenced``, until an UnfenceBrokerRecord."""

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: Uuid = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[Uuid] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(Message, api_key=1, kind="metadata", versions="0", flexible="0+"):
    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Message, api_key=2, kind="metadata", versions="0", flexible="0+"):
    name: str = string()
    topic_id: Uuid = uuid()


class PartitionRecord(Message, api_key=3, kind="metadata", versions="0-2", flexible="0+"):
    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[Uuid] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Message, api_key=4, kind="metadata", versions="0", flexible="0+"):
    """Sets one config of a resource (2: topic, 4: broker); a null ``value`` removes it."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class PartitionChangeRecord(Message, api_key=5, kind="metadata", versions="0-2", flexible="0+"):
    """Changes of a partition. ``leader``: -2 no change, -1 no leader. Null lists: no change."""

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    isr: list[int] | None = array(int32, nullable="0+", default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: list[Uuid] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class FenceBrokerRecord(Message, api_key=7, kind="metadata", versions="0", flexible="0+"):
    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Message, api_key=8, kind="metadata", versions="0", flexible="0+"):
    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Message, api_key=9, kind="metadata", versions="0", flexible="0+"):
    """Removes a topic with its partitions; its configs go with it."""

    topic_id: Uuid = uuid()


class DelegationTokenRecord(Message, api_key=10, kind="metadata", versions="0", flexible="0+"):
    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class UserScramCredentialRecord(Message, api_key=11, kind="metadata", versions="0", flexible="0+"):
    name: str = string()
    mechanism: int = int8()
    salt: bytes = bytes_()
    stored_key: bytes = bytes_()
    server_key: bytes = bytes_()
    iterations: int = int32()


class FeatureLevelRecord(Message, api_key=12, kind="metadata", versions="0", flexible="0+"):
    """Finalizes a feature at a level; 0 removes it."""

    name: str = string()
    feature_level: int = int16()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ClientQuotaRecord(Message, api_key=14, kind="metadata", versions="0", flexible="0+"):
    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Message, api_key=15, kind="metadata", versions="0", flexible="0+"):
    """Producer ids below ``next_producer_id`` have been allocated, in blocks."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Message, api_key=17, kind="metadata", versions="0-3", flexible="0+"):
    """``fenced``: -1 unfenced, 0 no change, 1 fenced; ``in_controlled_shutdown``: 0 no change, 1 yes."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[Uuid] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[Uuid] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


class AccessControlEntryRecord(Message, api_key=18, kind="metadata", versions="0", flexible="0+"):
    id: Uuid = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Message, api_key=19, kind="metadata", versions="0", flexible="0+"):
    id: Uuid = uuid()


class NoOpRecord(Message, api_key=20, kind="metadata", versions="0", flexible="0+"):
    pass


class ZkMigrationStateRecord(Message, api_key=21, kind="metadata", versions="0", flexible="0+"):
    zk_migration_state: int = int8()


class RemoveUserScramCredentialRecord(Message, api_key=22, kind="metadata", versions="0", flexible="0+"):
    name: str = string()
    mechanism: int = int8()


class BeginTransactionRecord(Message, api_key=23, kind="metadata", versions="0", flexible="0+"):
    """Records after this one take effect only with an EndTransactionRecord."""

    name: str | None = string(nullable="0+", default=None, tag=0)


class EndTransactionRecord(Message, api_key=24, kind="metadata", versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, api_key=25, kind="metadata", versions="0", flexible="0+"):
    reason: str | None = string(nullable="0+", default=None, tag=0)


class RemoveDelegationTokenRecord(Message, api_key=26, kind="metadata", versions="0", flexible="0+"):
    token_id: str = string()


class ControllerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class ControllerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterControllerRecord(Message, api_key=27, kind="metadata", versions="0", flexible="0+"):
    controller_id: int = int32()
    incarnation_id: Uuid = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)


class ClearElrRecord(Message, api_key=28, kind="metadata", versions="0", flexible="0+"):
    """Empties the eligible leader replicas of a topic, or of all topics for an empty name."""

    topic_name: str = string()


class UnregisterControllerRecord(Message, api_key=29, kind="metadata", versions="0", flexible="0+"):
    controller_id: int = int32()


RECORD_TYPES: dict[int, type[Message]] = {
    record.API_KEY: record for record in Message.__subclasses__() if record.__module__ == __name__
}
"""Record type -> class."""
