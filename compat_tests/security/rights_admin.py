"""The rows of the table of rights about transactions, configurations and the cluster."""

from __future__ import annotations

from typing import Any

from compat_tests.security.rights import (
    ACL,
    ACL_FILTER,
    CLUSTER_FAILED,
    DENIED_DESCRIBES,
    LEFT_OUT,
    TOPIC_FAILED,
    ZERO,
    Case,
    Names,
    Right,
    cluster_right,
    configs,
    group_right,
    id_right,
    offset_rows,
    own_rows,
    partitions_of,
    topic_right,
)
from tests.common.batches import batch
from tests.common.definitions import Fields

PRODUCER = {"producer_id": 77, "producer_epoch": 0}
BROKER_ROLE = (Right("ALTER", "cluster", CLUSTER_FAILED), Right("CLUSTER_ACTION", "cluster", CLUSTER_FAILED))

TRANSACTION_CASES = (
    Case(
        "InitProducerId",
        4,
        lambda names: {"transactional_id": names.id, "transaction_timeout_ms": 60000},
        (id_right("WRITE"),),
        note="with an id",
    ),
    Case(
        "InitProducerId",
        6,
        lambda names: {"transactional_id": names.id, "transaction_timeout_ms": 60000, "enable2_pc": True},
        (id_right("WRITE"), id_right("TWO_PHASE_COMMIT")),
        note="for two-phase commit",
    ),
    Case(
        "InitProducerId",
        4,
        lambda names: {"transactional_id": None},
        (
            (
                Right("IDEMPOTENT_WRITE", "cluster", CLUSTER_FAILED),
                Right("WRITE", "topic", CLUSTER_FAILED, "any topic"),
            ),
        ),
        note="without an id",
    ),
    Case(
        "AddPartitionsToTxn",
        3,
        lambda names: {
            "v3_and_below_transactional_id": names.id,
            "v3_and_below_producer_id": 77,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [
                {"name": name, "partitions": [0]}
                for name in (names.topic, names.missing, "__consumer_offsets")
            ],
        },
        (id_right("WRITE"), topic_right("WRITE")),
        note="of clients",
    ),
    Case(
        "AddPartitionsToTxn",
        5,
        lambda names: {
            "transactions": [
                {
                    "transactional_id": names.id,
                    **PRODUCER,
                    "verify_only": True,
                    "topics": [{"name": names.topic, "partitions": [0]}],
                }
            ]
        },
        (cluster_right("CLUSTER_ACTION"),),
        note="of brokers",
    ),
    Case(
        "AddOffsetsToTxn",
        3,
        lambda names: {"transactional_id": names.id, **PRODUCER, "group_id": names.group},
        (id_right("WRITE"), group_right("READ")),
    ),
    Case(
        "TxnOffsetCommit",
        3,
        lambda names: {
            "transactional_id": names.id,
            "group_id": names.group,
            **PRODUCER,
            "topics": offset_rows(names),
        },
        (id_right("WRITE"), group_right("READ"), topic_right("READ")),
    ),
    Case(
        "EndTxn",
        3,
        lambda names: {"transactional_id": names.id, **PRODUCER, "committed": True},
        (id_right("WRITE"),),
    ),
    Case(
        "WriteTxnMarkers",
        1,
        lambda names: {
            "markers": [
                {
                    **PRODUCER,
                    "transaction_result": False,
                    "topics": [{"name": names.missing, "partition_indexes": [0, 1]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
        (BROKER_ROLE,),
    ),
    Case(
        "DescribeTransactions",
        0,
        lambda names: {"transactional_ids": [names.id]},
        (id_right("DESCRIBE"),),
        note="(topics of the transaction that the client may not DESCRIBE are left out)",
    ),
    Case(
        "ListTransactions",
        1,
        lambda names: {"duration_filter": -1},
        (id_right("DESCRIBE", LEFT_OUT),),
        own_rows("transaction_states", "transactional_id"),
    ),
    Case(
        "DescribeProducers",
        0,
        lambda names: {"topics": partitions_of(names, "partition_indexes")},
        (topic_right("READ"),),
    ),
)

CONFIG_CASES = (
    Case(
        "DescribeConfigs",
        4,
        lambda names: configs(names, "configuration_keys"),
        (topic_right("DESCRIBE_CONFIGS"), group_right("DESCRIBE_CONFIGS"), cluster_right("DESCRIBE_CONFIGS")),
    ),
    Case(
        "AlterConfigs",
        1,
        configs,
        (topic_right("ALTER_CONFIGS"), group_right("ALTER_CONFIGS"), cluster_right("ALTER_CONFIGS")),
    ),
    Case(
        "IncrementalAlterConfigs",
        1,
        configs,
        (topic_right("ALTER_CONFIGS"), group_right("ALTER_CONFIGS"), cluster_right("ALTER_CONFIGS")),
    ),
    Case(
        "IncrementalAlterConfigs",
        1,
        lambda names: {
            "resources": [
                {
                    "resource_type": 4,
                    "resource_name": "99",
                    "configs": [{"name": "log.retention.ms", "config_operation": 0, "value": "abc"}],
                }
            ]
        },
        (cluster_right("ALTER_CONFIGS"),),
        note="of a broker that is not there",
    ),
    Case(
        "ListConfigResources",
        1,
        lambda names: {"resource_types": [2]},
        (cluster_right("DESCRIBE_CONFIGS"),),
        lambda response, names: response["error_code"],
    ),
)

CLUSTER_CASES = (
    Case(
        "OffsetForLeaderEpoch",
        4,
        lambda names: {
            "replica_id": -2,
            "topics": partitions_of(names, name="topic", row={"partition": 0, "leader_epoch": 0}),
        },
        ((Right("CLUSTER_ACTION", "cluster", TOPIC_FAILED), Right("DESCRIBE", "topic", TOPIC_FAILED)),),
    ),
    Case("DescribeAcls", 3, lambda names: ACL_FILTER, (cluster_right("DESCRIBE"),)),
    Case("CreateAcls", 3, lambda names: {"creations": [ACL, ACL]}, (cluster_right("ALTER"),)),
    Case("DeleteAcls", 3, lambda names: {"filters": [ACL_FILTER]}, (cluster_right("ALTER"),)),
    Case(
        "AlterReplicaLogDirs",
        2,
        lambda names: {
            "dirs": [
                {"path": "/none", "topics": [{"name": names.topic, "partitions": [0]}]},
                {"path": "/other", "topics": [{"name": names.missing, "partitions": [0]}]},
            ]
        },
        (cluster_right("ALTER"),),
    ),
    Case("UnregisterBroker", 0, lambda names: {"broker_id": 77}, (cluster_right("ALTER"),)),
    Case("UnregisterController", 0, lambda names: {"controller_id": 77}, (cluster_right("ALTER"),)),
    Case("AddRaftVoter", 1, lambda names: {"voter_id": -1}, (cluster_right("ALTER"),)),
    Case("RemoveRaftVoter", 0, lambda names: {"voter_id": -1}, (cluster_right("ALTER"),)),
    Case(
        "DescribeLogDirs",
        4,
        lambda names: {"topics": partitions_of(names, name="topic")},
        (cluster_right("DESCRIBE"),),
        lambda response, names: (response["error_code"], len(response["results"])),
        versions=(3, 5),
    ),
    Case(
        "DescribeLogDirs",
        1,
        lambda names: {"topics": partitions_of(names, name="topic")},
        (cluster_right("DESCRIBE", LEFT_OUT),),
        lambda response, names: len(response["results"]),
        note="before version 3",
    ),
    Case(
        "ElectLeaders",
        2,
        lambda names: {
            "election_type": 0,
            "topic_partitions": partitions_of(names, name="topic"),
            "timeout_ms": 9000,
        },
        (cluster_right("ALTER"),),
    ),
    Case(
        "ElectLeaders",
        0,
        lambda names: {"topic_partitions": partitions_of(names, name="topic"), "timeout_ms": 9000},
        (cluster_right("ALTER"),),
        note="before version 1",
    ),
    Case(
        "AlterPartitionReassignments",
        1,
        lambda names: {
            "timeout_ms": 9000,
            "topics": partitions_of(names, row={"partition_index": 0, "replicas": [1]}),
        },
        (cluster_right("ALTER"),),
    ),
    Case(
        "ListPartitionReassignments",
        0,
        lambda names: {"timeout_ms": 9000, "topics": partitions_of(names, "partition_indexes")},
        (cluster_right("DESCRIBE"),),
    ),
    Case(
        "DescribeClientQuotas",
        1,
        lambda names: {"components": [], "strict": True},
        (cluster_right("DESCRIBE_CONFIGS"),),
    ),
    Case(
        "AlterClientQuotas",
        1,
        lambda names: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": names.missing}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": True}],
                }
            ],
            "validate_only": False,
        },
        (cluster_right("ALTER_CONFIGS"),),
    ),
    Case(
        "DescribeUserScramCredentials",
        0,
        lambda names: {"users": [{"name": names.missing}]},
        (cluster_right("DESCRIBE"),),
    ),
    Case(
        "AlterUserScramCredentials",
        0,
        lambda names: {
            "deletions": [{"name": names.missing, "mechanism": 1}, {"name": names.group, "mechanism": 1}],
            "upsertions": [],
        },
        (cluster_right("ALTER"),),
    ),
    Case(
        "DescribeQuorum",
        2,
        lambda names: {"topics": [{"topic_name": "none", "partitions": [{"partition_index": 0}]}]},
        (cluster_right("DESCRIBE"),),
        lambda response, names: response["error_code"],
    ),
    Case(
        "UpdateFeatures",
        1,
        lambda names: {"timeout_ms": 9000, "feature_updates": [], "validate_only": True},
        (cluster_right("ALTER"),),
    ),
    Case(
        "DescribeCluster",
        1,
        lambda names: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        (cluster_right("DESCRIBE", ZERO, "for the cluster's operations"),),
    ),
    Case(
        "DescribeTopicPartitions",
        0,
        lambda names: {
            "topics": [{"name": names.topic}, {"name": names.missing}],
            "response_partition_limit": 100,
        },
        (DENIED_DESCRIBES,),
    ),
)

NO_SUCH_ID = bytes(range(1, 17))


def by_id(names: Names, rows: str, row: Any) -> list[Fields]:
    """The topic, and one that does not exist, by id."""
    return [{"topic_id": one, rows: [row]} for one in (names.topic_id, NO_SUCH_ID)]


ID_CASES = (
    Case(
        "Produce",
        13,
        lambda names: {
            "acks": -1,
            "timeout_ms": 9000,
            "topic_data": by_id(names, "partition_data", {"index": 0, "records": batch(1)}),
        },
        (topic_right("WRITE"),),
        note="by topic id",
        versions=(13, 13),
    ),
    Case(
        "Fetch",
        16,
        lambda names: {
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "topics": by_id(names, "partitions", {"partition": 0, "partition_max_bytes": 1 << 20}),
        },
        (topic_right("READ"),),
        note="by topic id",
        versions=(13, 17),
    ),
    Case(
        "Metadata",
        12,
        lambda names: {
            "topics": [{"name": None, "topic_id": one} for one in (names.topic_id, NO_SUCH_ID)],
            "include_topic_authorized_operations": True,
        },
        (DENIED_DESCRIBES,),
        note="by topic id",
        versions=(12, 13),
    ),
    Case(
        "OffsetCommit",
        10,
        lambda names: {
            "group_id": names.group,
            "generation_id_or_member_epoch": -1,
            "topics": by_id(names, "partitions", {"partition_index": 0, "committed_offset": 0}),
        },
        (group_right("READ"), topic_right("READ")),
        note="by topic id",
        versions=(10, 10),
    ),
    Case(
        "OffsetFetch",
        10,
        lambda names: {
            "groups": [{"group_id": names.group, "topics": by_id(names, "partition_indexes", 0)}],
        },
        (group_right("DESCRIBE"), DENIED_DESCRIBES),
        note="by topic id",
        versions=(10, 10),
    ),
    Case(
        "TxnOffsetCommit",
        6,
        lambda names: {
            "transactional_id": names.id,
            "group_id": names.group,
            **PRODUCER,
            "topics": by_id(names, "partitions", {"partition_index": 0, "committed_offset": 0}),
        },
        (id_right("WRITE"), group_right("READ"), topic_right("READ")),
        note="by topic id",
        versions=(6, 6),
    ),
    Case(
        "DeleteTopics",
        6,
        lambda names: {
            "topics": [{"name": None, "topic_id": one} for one in (names.topic_id, NO_SUCH_ID)],
            "timeout_ms": 15000,
        },
        ((Right("DELETE", "cluster", TOPIC_FAILED), Right("DELETE", "topic", TOPIC_FAILED)),),
        lambda response, names: sorted(
            (str(row["name"]), row["topic_id"] == names.topic_id, row["error_code"])
            for row in response["responses"]
        ),
        note="by topic id",
        versions=(6, 6),
        also=topic_right("DESCRIBE", note="for whether its name is told"),
    ),
)


ADMIN_CASES = ID_CASES + TRANSACTION_CASES + CONFIG_CASES + CLUSTER_CASES
