"""The requests and responses of Kafka's APIs, for filters: ``ProduceRequest``, and ``produce.TopicProduceData`` for a
row of it. docs/reference/messages.md lists their fields.

`make docs` makes this module of `oncelog.wire.messages`. Its names are imported with their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.wire.messages import (
        add_offsets_to_txn,
        add_partitions_to_txn,
        add_raft_voter,
        alter_client_quotas,
        alter_configs,
        alter_partition_reassignments,
        alter_replica_log_dirs,
        alter_share_group_offsets,
        alter_user_scram_credentials,
        api_versions,
        consumer_group_describe,
        consumer_group_heartbeat,
        create_acls,
        create_delegation_token,
        create_partitions,
        create_topics,
        delete_acls,
        delete_groups,
        delete_records,
        delete_share_group_offsets,
        delete_share_group_state,
        delete_topics,
        describe_acls,
        describe_client_quotas,
        describe_cluster,
        describe_configs,
        describe_delegation_token,
        describe_groups,
        describe_log_dirs,
        describe_producers,
        describe_quorum,
        describe_share_group_offsets,
        describe_topic_partitions,
        describe_transactions,
        describe_user_scram_credentials,
        elect_leaders,
        end_txn,
        expire_delegation_token,
        fetch,
        find_coordinator,
        get_telemetry_subscriptions,
        heartbeat,
        incremental_alter_configs,
        init_producer_id,
        initialize_share_group_state,
        join_group,
        leave_group,
        list_config_resources,
        list_groups,
        list_offsets,
        list_partition_reassignments,
        list_transactions,
        metadata,
        offset_commit,
        offset_delete,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        push_telemetry,
        read_share_group_state,
        read_share_group_state_summary,
        remove_raft_voter,
        renew_delegation_token,
        sasl_authenticate,
        sasl_handshake,
        share_acknowledge,
        share_fetch,
        share_group_describe,
        share_group_heartbeat,
        sync_group,
        txn_offset_commit,
        unregister_broker,
        unregister_controller,
        update_features,
        write_share_group_state,
        write_txn_markers,
    )
    from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
    from oncelog.wire.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )
    from oncelog.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
    from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from oncelog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from oncelog.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from oncelog.wire.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
    )
    from oncelog.wire.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse,
    )
    from oncelog.wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
    from oncelog.wire.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )
    from oncelog.wire.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from oncelog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from oncelog.wire.messages.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from oncelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from oncelog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from oncelog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from oncelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
    from oncelog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
    from oncelog.wire.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
    )
    from oncelog.wire.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from oncelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
    from oncelog.wire.messages.describe_client_quotas import (
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )
    from oncelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
    from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
    from oncelog.wire.messages.describe_delegation_token import (
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    )
    from oncelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
    from oncelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
    from oncelog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
    from oncelog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
    from oncelog.wire.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
    )
    from oncelog.wire.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    )
    from oncelog.wire.messages.describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )
    from oncelog.wire.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    )
    from oncelog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
    from oncelog.wire.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from oncelog.wire.messages.fetch import FetchRequest, FetchResponse
    from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
    from oncelog.wire.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
    )
    from oncelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from oncelog.wire.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from oncelog.wire.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )
    from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from oncelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from oncelog.wire.messages.list_config_resources import (
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
    )
    from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
    from oncelog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
    from oncelog.wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
    from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
    from oncelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from oncelog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from oncelog.wire.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
    )
    from oncelog.wire.messages.produce import ProduceRequest, ProduceResponse
    from oncelog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
    from oncelog.wire.messages.read_share_group_state import (
        ReadShareGroupStateRequest,
        ReadShareGroupStateResponse,
    )
    from oncelog.wire.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )
    from oncelog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
    from oncelog.wire.messages.renew_delegation_token import (
        RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
    )
    from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
    from oncelog.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
    from oncelog.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
    from oncelog.wire.messages.share_group_describe import (
        ShareGroupDescribeRequest,
        ShareGroupDescribeResponse,
    )
    from oncelog.wire.messages.share_group_heartbeat import (
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
    )
    from oncelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from oncelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
    from oncelog.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from oncelog.wire.messages.unregister_controller import (
        UnregisterControllerRequest,
        UnregisterControllerResponse,
    )
    from oncelog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
    from oncelog.wire.messages.write_share_group_state import (
        WriteShareGroupStateRequest,
        WriteShareGroupStateResponse,
    )
    from oncelog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddRaftVoterRequest",
    "AddRaftVoterResponse",
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
    "AlterShareGroupOffsetsRequest",
    "AlterShareGroupOffsetsResponse",
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "CreateDelegationTokenRequest",
    "CreateDelegationTokenResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteShareGroupOffsetsRequest",
    "DeleteShareGroupOffsetsResponse",
    "DeleteShareGroupStateRequest",
    "DeleteShareGroupStateResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeDelegationTokenRequest",
    "DescribeDelegationTokenResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "ExpireDelegationTokenRequest",
    "ExpireDelegationTokenResponse",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "GetTelemetrySubscriptionsRequest",
    "GetTelemetrySubscriptionsResponse",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "InitializeShareGroupStateRequest",
    "InitializeShareGroupStateResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "ProduceRequest",
    "ProduceResponse",
    "PushTelemetryRequest",
    "PushTelemetryResponse",
    "ReadShareGroupStateRequest",
    "ReadShareGroupStateResponse",
    "ReadShareGroupStateSummaryRequest",
    "ReadShareGroupStateSummaryResponse",
    "RemoveRaftVoterRequest",
    "RemoveRaftVoterResponse",
    "RenewDelegationTokenRequest",
    "RenewDelegationTokenResponse",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeResponse",
    "ShareFetchRequest",
    "ShareFetchResponse",
    "ShareGroupDescribeRequest",
    "ShareGroupDescribeResponse",
    "ShareGroupHeartbeatRequest",
    "ShareGroupHeartbeatResponse",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "UnregisterBrokerRequest",
    "UnregisterBrokerResponse",
    "UnregisterControllerRequest",
    "UnregisterControllerResponse",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
    "WriteShareGroupStateRequest",
    "WriteShareGroupStateResponse",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "add_raft_voter",
    "alter_client_quotas",
    "alter_configs",
    "alter_partition_reassignments",
    "alter_replica_log_dirs",
    "alter_share_group_offsets",
    "alter_user_scram_credentials",
    "api_versions",
    "consumer_group_describe",
    "consumer_group_heartbeat",
    "create_acls",
    "create_delegation_token",
    "create_partitions",
    "create_topics",
    "delete_acls",
    "delete_groups",
    "delete_records",
    "delete_share_group_offsets",
    "delete_share_group_state",
    "delete_topics",
    "describe_acls",
    "describe_client_quotas",
    "describe_cluster",
    "describe_configs",
    "describe_delegation_token",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_quorum",
    "describe_share_group_offsets",
    "describe_topic_partitions",
    "describe_transactions",
    "describe_user_scram_credentials",
    "elect_leaders",
    "end_txn",
    "expire_delegation_token",
    "fetch",
    "find_coordinator",
    "get_telemetry_subscriptions",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "initialize_share_group_state",
    "join_group",
    "leave_group",
    "list_config_resources",
    "list_groups",
    "list_offsets",
    "list_partition_reassignments",
    "list_transactions",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "push_telemetry",
    "read_share_group_state",
    "read_share_group_state_summary",
    "remove_raft_voter",
    "renew_delegation_token",
    "sasl_authenticate",
    "sasl_handshake",
    "share_acknowledge",
    "share_fetch",
    "share_group_describe",
    "share_group_heartbeat",
    "sync_group",
    "txn_offset_commit",
    "unregister_broker",
    "unregister_controller",
    "update_features",
    "write_share_group_state",
    "write_txn_markers",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'oncelog.messages' has no attribute {name!r}")
        from importlib import import_module

        from oncelog.broker.handlers.table import api_names

        api = name.removesuffix("Request").removesuffix("Response")
        module = import_module(f"oncelog.wire.messages.{api_names().get(api, name)}")
        value = globals()[name] = getattr(module, name, module)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
