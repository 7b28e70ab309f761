"""The rows of the table of rights about topics, records and groups."""

from __future__ import annotations

from compat_tests.security.rights import (
    CREATED,
    DENIED_DESCRIBES,
    ERRORS,
    LEFT_OUT,
    TOPIC_FAILED,
    ZERO,
    Case,
    Names,
    Right,
    cluster_right,
    fetch,
    group_right,
    id_right,
    offset_rows,
    own_rows,
    partitions_of,
    produce,
    topic_right,
)
from tests.common.definitions import Fields

TOPIC_AND_GROUP_CASES = (
    Case("Produce", 9, produce, (topic_right("WRITE"),), versions=(3, 12)),
    Case(
        "Produce",
        9,
        lambda names: produce(names, transactional=True),
        (id_right("WRITE"), topic_right("WRITE")),
        note="with transactional records",
        versions=(3, 12),
    ),
    Case("Fetch", 12, fetch, (topic_right("READ"),), versions=(4, 12)),
    Case(
        "Fetch",
        12,
        lambda names: fetch(names, 5),
        ((Right("CLUSTER_ACTION", "cluster", TOPIC_FAILED),),),
        note="of a replica",
    ),
    Case(
        "ListOffsets",
        8,
        lambda names: {
            "replica_id": -1,
            "topics": partitions_of(names, row={"partition_index": 0, "timestamp": -1}),
        },
        (DENIED_DESCRIBES,),
    ),
    Case(
        "Metadata",
        10,
        lambda names: {
            "topics": [{"name": names.topic}, {"name": names.missing}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
        (DENIED_DESCRIBES, cluster_right("DESCRIBE", ZERO, "for the cluster's operations")),
        note="of topics by name",
    ),
    Case(
        "Metadata",
        12,
        lambda names: {"topics": None},
        (topic_right("DESCRIBE", LEFT_OUT),),
        own_rows("topics", "name"),
        note="of all topics",
        versions=(1, 13),
    ),
    Case(
        "Metadata",
        9,
        lambda names: {"topics": [{"name": names.missing}], "allow_auto_topic_creation": True},
        (
            DENIED_DESCRIBES,
            (Right("CREATE", "cluster", TOPIC_FAILED), Right("CREATE", "topic", TOPIC_FAILED)),
        ),
        lambda response, names: response["topics"][0]["error_code"] == ERRORS[TOPIC_FAILED] and response,
        note="that creates a topic",
    ),
    Case(
        "OffsetCommit",
        9,
        lambda names: {
            "group_id": names.group,
            "generation_id_or_member_epoch": -1,
            "topics": offset_rows(names),
        },
        (group_right("READ"), topic_right("READ")),
    ),
    Case(
        "OffsetFetch",
        8,
        lambda names: {
            "groups": [
                {"group_id": names.group, "topics": partitions_of(names, "partition_indexes")},
                {"group_id": names.missing, "topics": partitions_of(names, "partition_indexes")},
            ]
        },
        (group_right("DESCRIBE"), DENIED_DESCRIBES),
        note="of some topics",
    ),
    Case(
        "OffsetFetch",
        8,
        lambda names: {"groups": [{"group_id": names.group, "topics": None}]},
        (group_right("DESCRIBE"), topic_right("DESCRIBE", LEFT_OUT)),
        note="of all topics",
    ),
    Case(
        "OffsetFetch",
        1,
        lambda names: {"group_id": names.group, "topics": partitions_of(names, "partition_indexes")},
        (group_right("DESCRIBE"), DENIED_DESCRIBES),
        note="before version 2",
    ),
    Case(
        "FindCoordinator",
        4,
        lambda names: {"key_type": 0, "coordinator_keys": [names.group, names.missing]},
        (group_right("DESCRIBE"),),
        note="of groups",
    ),
    Case(
        "FindCoordinator",
        3,
        lambda names: {"key_type": 1, "key": names.id},
        (id_right("DESCRIBE"),),
        note="of a transactional id",
    ),
    Case(
        "JoinGroup",
        9,
        lambda names: {
            "group_id": names.missing,
            "session_timeout_ms": 10000,
            "rebalance_timeout_ms": 10000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        (group_right("READ"),),
    ),
    Case(
        "Heartbeat",
        4,
        lambda names: {"group_id": names.group, "generation_id": 1, "member_id": "m"},
        (group_right("READ"),),
    ),
    Case(
        "LeaveGroup",
        5,
        lambda names: {"group_id": names.group, "members": [{"member_id": "m"}]},
        (group_right("READ"),),
    ),
    Case(
        "SyncGroup",
        5,
        lambda names: {
            "group_id": names.group,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
        (group_right("READ"),),
    ),
    Case(
        "DescribeGroups",
        5,
        lambda names: {"groups": [names.group, names.missing], "include_authorized_operations": True},
        (group_right("DESCRIBE"),),
    ),
    Case(
        "ListGroups",
        4,
        lambda names: {},
        ((Right("DESCRIBE", "cluster", LEFT_OUT), Right("DESCRIBE", "group", LEFT_OUT)),),
        own_rows("groups", "group_id"),
    ),
    Case(
        "DeleteGroups",
        2,
        lambda names: {"groups_names": [names.group]},
        (group_right("DELETE"),),
    ),
    Case(
        "OffsetDelete",
        0,
        lambda names: {
            "group_id": names.group,
            "topics": partitions_of(names, row={"partition_index": 0}),
        },
        (group_right("DELETE"), topic_right("READ")),
    ),
    Case(
        "ConsumerGroupHeartbeat",
        1,
        lambda names: {
            "group_id": names.missing,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "member_epoch": 5,
            "rebalance_timeout_ms": 10000,
            "subscribed_topic_names": [names.topic],
            "topic_partitions": [],
        },
        (group_right("READ"), topic_right("DESCRIBE", note="for subscribed names")),
    ),
    Case(
        "ConsumerGroupDescribe",
        1,
        lambda names: {"group_ids": [names.group, names.missing], "include_authorized_operations": True},
        (group_right("DESCRIBE"),),
        note="(also DESCRIBE on the topics of the members' assignments, else TOPIC_AUTHORIZATION_FAILED)",
    ),
    Case(
        "FindCoordinator",
        6,
        lambda names: {"key_type": 2, "coordinator_keys": [f"{names.group}:AAAAAAAAAAAAAAAAAAAAAQ:0"]},
        (cluster_right("CLUSTER_ACTION"),),
        note="of a share partition",
        versions=(6, 99),
    ),
    Case(
        "ShareGroupHeartbeat",
        1,
        lambda names: {
            "group_id": names.missing,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "member_epoch": 5,
            "subscribed_topic_names": [names.topic],
        },
        (group_right("READ"), topic_right("DESCRIBE", note="for subscribed names")),
    ),
    Case(
        "ShareGroupDescribe",
        1,
        lambda names: {
            "group_ids": [names.share_group, names.missing],
            "include_authorized_operations": True,
        },
        (group_right("DESCRIBE"),),
        note="(also DESCRIBE on the topics of the members' assignments, else TOPIC_AUTHORIZATION_FAILED)",
    ),
    Case(
        "ShareFetch",
        1,
        lambda names: {
            "group_id": names.share_group,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "share_session_epoch": 0,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_records": 1,
            "batch_size": 1,
            "topics": [
                {
                    "topic_id": names.topic_id,
                    "partitions": [{"partition_index": 0, "acknowledgement_batches": []}],
                }
            ],
            "forgotten_topics_data": [],
        },
        (group_right("READ"), topic_right("READ")),
        # A share partition that is still being loaded has no row.
        lambda response, names: (
            [row for row in response["responses"] if row["partitions"][0]["error_code"]]
            or response["error_code"]
        ),
    ),
    Case(
        "ShareAcknowledge",
        1,
        lambda names: {
            "group_id": names.share_group,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "share_session_epoch": 5,
            "topics": [],
        },
        (group_right("READ"),),
        note="(also READ on the topics, else TOPIC_AUTHORIZATION_FAILED in their rows)",
    ),
    Case(
        "DescribeShareGroupOffsets",
        1,
        lambda names: {
            "groups": [
                {
                    "group_id": names.share_group,
                    "topics": [
                        {"topic_name": names.topic, "partitions": [0]},
                        {"topic_name": names.missing, "partitions": [0]},
                    ],
                }
            ]
        },
        (group_right("DESCRIBE"), topic_right("DESCRIBE")),
        note="of some topics",
    ),
    Case(
        "DescribeShareGroupOffsets",
        1,
        lambda names: {"groups": [{"group_id": names.share_group, "topics": None}]},
        (group_right("DESCRIBE"), topic_right("DESCRIBE", LEFT_OUT)),
        note="of all topics",
    ),
    Case(
        "AlterShareGroupOffsets",
        0,
        lambda names: {
            "group_id": names.share_group,
            "topics": [
                {"topic_name": topic, "partitions": [{"partition_index": 0, "start_offset": 0}]}
                for topic in (names.topic, names.missing)
            ],
        },
        (group_right("READ"), topic_right("READ")),
    ),
    Case(
        "DeleteShareGroupOffsets",
        0,
        lambda names: {
            "group_id": names.share_group,
            "topics": [{"topic_name": names.topic}, {"topic_name": names.missing}],
        },
        (group_right("DELETE"), topic_right("READ")),
    ),
    Case(
        "CreateTopics",
        7,
        lambda names: {"topics": [{"name": names.missing, **CREATED}], "validate_only": True},
        (
            (Right("CREATE", "cluster", TOPIC_FAILED), Right("CREATE", "topic", TOPIC_FAILED)),
            (Right("DESCRIBE_CONFIGS", "topic", TOPIC_FAILED, "for its configuration in the response"),),
        ),
        lambda response, names: [
            (
                row["error_code"],
                row.get("topic_config_error_code"),
                row.get("num_partitions"),
                bool(row.get("configs")),
            )
            for row in response["topics"]
        ],
    ),
    Case(
        "DeleteTopics",
        6,
        lambda names: {"topics": [{"name": names.topic}, {"name": names.missing}], "timeout_ms": 15000},
        ((Right("DELETE", "cluster", TOPIC_FAILED), Right("DELETE", "topic", TOPIC_FAILED)),),
        also=topic_right("DESCRIBE", note="for whether the topic exists"),
    ),
    Case(
        "DeleteRecords",
        2,
        lambda names: {"topics": partitions_of(names, row={"partition_index": 0, "offset": 0})},
        (topic_right("DELETE"),),
    ),
    Case(
        "CreatePartitions",
        3,
        lambda names: {
            "topics": [{"name": names.topic, "count": 2}, {"name": names.missing, "count": 2}],
            "timeout_ms": 15000,
            "validate_only": True,
        },
        (topic_right("ALTER"),),
    ),
)


def share_state(names: Names) -> Fields:
    """Return a request of one of the APIs 83 to 87 about one share partition; all other fields have their defaults."""
    return {
        "group_id": names.group,
        "topics": [{"topic_id": names.topic_id, "partitions": [{"partition": 0}]}],
    }


SHARE_STATE_CASES = tuple(
    Case(api, 0, share_state, (cluster_right("CLUSTER_ACTION"),))
    for api in (
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "WriteShareGroupState",
        "DeleteShareGroupState",
        "ReadShareGroupStateSummary",
    )
)
