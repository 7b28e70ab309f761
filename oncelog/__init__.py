"""oncelog: a Kafka-compatible broker in one Python process.

This package is what programs import; the packages below it are its inside and may change. `wire`, `coordinator`,
`broker` and `spark` stand at the top of the repository (`spark` as `spark_it/sink`); links lead there from here.

The names below are imported with their first use: ``import oncelog`` alone costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.broker.control.acl_options import Acl
    from oncelog.broker.control.client_metric_types import ClientMetric, ClientMetricsPush
    from oncelog.broker.control.errors import (
        BrokerFailedError,
        InvalidArgumentError,
        LeftClientWarning,
        NotFoundError,
        NotRunningError,
        OncelogError,
        SnapshotError,
        UnsupportedError,
        WaitTimeoutError,
    )
    from oncelog.broker.control.request_types import FailedLogin, Outcome, Request
    from oncelog.broker.control.share_types import (
        DeadLetter,
        RecordsInFlight,
        ShareGroupInfo,
        ShareMember,
        SharePartitionInfo,
    )
    from oncelog.broker.control.types import (
        Assignment,
        GroupInfo,
        Headers,
        HeadersGiven,
        IsolationLevel,
        Member,
        NodeInfo,
        Occurrence,
        Offsets,
        PartitionInfo,
        PartitionState,
        ProducerInfo,
        Record,
        RecordGiven,
        ReplicaInfo,
        TimestampType,
        TopicInfo,
        TransactionInfo,
    )
    from oncelog.broker.dispatch.interfaces import Interceptor
    from oncelog.broker.embedded.async_api.broker import AsyncBroker
    from oncelog.broker.embedded.async_api.clock import AsyncClock
    from oncelog.broker.embedded.async_api.faults import AsyncFaults, AsyncRule, AsyncRuleDraft
    from oncelog.broker.embedded.async_api.groups import AsyncGroup
    from oncelog.broker.embedded.async_api.nodes import (
        AsyncNetwork,
        AsyncNode,
        AsyncNodeClock,
        AsyncReplica,
    )
    from oncelog.broker.embedded.async_api.proxy import AsyncProxy
    from oncelog.broker.embedded.async_api.share_groups import AsyncShareGroup
    from oncelog.broker.embedded.async_api.topics import AsyncTopic
    from oncelog.broker.embedded.async_api.transactions import AsyncTransaction, AsyncTransactions
    from oncelog.broker.embedded.certificates import BrokerCertificate
    from oncelog.broker.embedded.sync_api.broker import Broker
    from oncelog.broker.embedded.sync_api.clock import Clock
    from oncelog.broker.embedded.sync_api.faults import Faults, Rule, RuleDraft
    from oncelog.broker.embedded.sync_api.groups import Group
    from oncelog.broker.embedded.sync_api.nodes import Network, Node, NodeClock, Replica
    from oncelog.broker.embedded.sync_api.proxy import Proxy
    from oncelog.broker.embedded.sync_api.share_groups import ShareGroup
    from oncelog.broker.embedded.sync_api.topics import Topic
    from oncelog.broker.embedded.sync_api.transactions import Transaction, Transactions
    from oncelog.broker.faults.state import RuleState
    from oncelog.broker.filters.passing_records import PassingRecord
    from oncelog.broker.filters.record_filter import RecordFilter
    from oncelog.broker.filters.renaming import rename_groups, rename_topics, rename_transactional_ids
    from oncelog.broker.prove.api import prove
    from oncelog.broker.prove.disturbances import Disturbance
    from oncelog.broker.prove.judging.judge import MovedOffset, Problem
    from oncelog.broker.prove.judging.outputs import Output
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.trial_result import LastWords
    from oncelog.broker.prove.verdict import Finding, Verdict
    from oncelog.broker.requests.request import NO_RESPONSE, CloseConnection, RequestContext
    from oncelog.wire.errors import ErrorCode, KafkaError

__all__ = [
    "NO_RESPONSE",
    "Acl",
    "Assignment",
    "AsyncBroker",
    "AsyncClock",
    "AsyncFaults",
    "AsyncGroup",
    "AsyncNetwork",
    "AsyncNode",
    "AsyncNodeClock",
    "AsyncProxy",
    "AsyncReplica",
    "AsyncRule",
    "AsyncRuleDraft",
    "AsyncShareGroup",
    "AsyncTopic",
    "AsyncTransaction",
    "AsyncTransactions",
    "Broker",
    "BrokerCertificate",
    "BrokerFailedError",
    "ClientMetric",
    "ClientMetricsPush",
    "Clock",
    "CloseConnection",
    "DeadLetter",
    "Disturbance",
    "ErrorCode",
    "FailedLogin",
    "Faults",
    "Finding",
    "Group",
    "GroupInfo",
    "Headers",
    "HeadersGiven",
    "Interceptor",
    "InvalidArgumentError",
    "IsolationLevel",
    "KafkaError",
    "LastWords",
    "LeftClientWarning",
    "Member",
    "MovedOffset",
    "Network",
    "Node",
    "NodeClock",
    "NodeInfo",
    "NotFoundError",
    "NotRunningError",
    "Occurrence",
    "Offsets",
    "OncelogError",
    "Outcome",
    "Output",
    "PartitionInfo",
    "PartitionState",
    "PassingRecord",
    "Problem",
    "ProducerInfo",
    "ProofPlan",
    "Proxy",
    "Record",
    "RecordFilter",
    "RecordGiven",
    "RecordsInFlight",
    "Replica",
    "ReplicaInfo",
    "Request",
    "RequestContext",
    "Rule",
    "RuleDraft",
    "RuleState",
    "ShareGroup",
    "ShareGroupInfo",
    "ShareMember",
    "SharePartitionInfo",
    "SnapshotError",
    "TimestampType",
    "Topic",
    "TopicInfo",
    "Transaction",
    "TransactionInfo",
    "Transactions",
    "UnsupportedError",
    "Verdict",
    "WaitTimeoutError",
    "__version__",
    "prove",
    "rename_groups",
    "rename_topics",
    "rename_transactional_ids",
]

__version__ = "0.1.0"

_MODULES = {
    "Acl": "oncelog.broker.control.acl_options",
    "Assignment": "oncelog.broker.control.types",
    "AsyncBroker": "oncelog.broker.embedded.async_api.broker",
    "AsyncClock": "oncelog.broker.embedded.async_api.clock",
    "AsyncFaults": "oncelog.broker.embedded.async_api.faults",
    "AsyncGroup": "oncelog.broker.embedded.async_api.groups",
    "AsyncNetwork": "oncelog.broker.embedded.async_api.nodes",
    "AsyncNode": "oncelog.broker.embedded.async_api.nodes",
    "AsyncNodeClock": "oncelog.broker.embedded.async_api.nodes",
    "AsyncProxy": "oncelog.broker.embedded.async_api.proxy",
    "AsyncReplica": "oncelog.broker.embedded.async_api.nodes",
    "AsyncRule": "oncelog.broker.embedded.async_api.faults",
    "AsyncRuleDraft": "oncelog.broker.embedded.async_api.faults",
    "AsyncShareGroup": "oncelog.broker.embedded.async_api.share_groups",
    "AsyncTopic": "oncelog.broker.embedded.async_api.topics",
    "AsyncTransaction": "oncelog.broker.embedded.async_api.transactions",
    "AsyncTransactions": "oncelog.broker.embedded.async_api.transactions",
    "Broker": "oncelog.broker.embedded.sync_api.broker",
    "BrokerCertificate": "oncelog.broker.embedded.certificates",
    "BrokerFailedError": "oncelog.broker.control.errors",
    "ClientMetric": "oncelog.broker.control.client_metric_types",
    "ClientMetricsPush": "oncelog.broker.control.client_metric_types",
    "Clock": "oncelog.broker.embedded.sync_api.clock",
    "CloseConnection": "oncelog.broker.requests.request",
    "DeadLetter": "oncelog.broker.control.share_types",
    "Disturbance": "oncelog.broker.prove.disturbances",
    "ErrorCode": "oncelog.wire.errors",
    "FailedLogin": "oncelog.broker.control.request_types",
    "Faults": "oncelog.broker.embedded.sync_api.faults",
    "Finding": "oncelog.broker.prove.verdict",
    "Group": "oncelog.broker.embedded.sync_api.groups",
    "GroupInfo": "oncelog.broker.control.types",
    "Headers": "oncelog.broker.control.types",
    "HeadersGiven": "oncelog.broker.control.types",
    "Interceptor": "oncelog.broker.dispatch.interfaces",
    "InvalidArgumentError": "oncelog.broker.control.errors",
    "IsolationLevel": "oncelog.broker.control.types",
    "KafkaError": "oncelog.wire.errors",
    "LastWords": "oncelog.broker.prove.trials.trial_result",
    "LeftClientWarning": "oncelog.broker.control.errors",
    "Member": "oncelog.broker.control.types",
    "MovedOffset": "oncelog.broker.prove.judging.judge",
    "NO_RESPONSE": "oncelog.broker.requests.request",
    "Network": "oncelog.broker.embedded.sync_api.nodes",
    "Node": "oncelog.broker.embedded.sync_api.nodes",
    "NodeClock": "oncelog.broker.embedded.sync_api.nodes",
    "NodeInfo": "oncelog.broker.control.types",
    "NotFoundError": "oncelog.broker.control.errors",
    "NotRunningError": "oncelog.broker.control.errors",
    "Occurrence": "oncelog.broker.control.types",
    "Offsets": "oncelog.broker.control.types",
    "OncelogError": "oncelog.broker.control.errors",
    "Outcome": "oncelog.broker.control.request_types",
    "Output": "oncelog.broker.prove.judging.outputs",
    "PartitionInfo": "oncelog.broker.control.types",
    "PartitionState": "oncelog.broker.control.types",
    "PassingRecord": "oncelog.broker.filters.passing_records",
    "Problem": "oncelog.broker.prove.judging.judge",
    "ProducerInfo": "oncelog.broker.control.types",
    "ProofPlan": "oncelog.broker.prove.plan",
    "Proxy": "oncelog.broker.embedded.sync_api.proxy",
    "Record": "oncelog.broker.control.types",
    "RecordFilter": "oncelog.broker.filters.record_filter",
    "RecordGiven": "oncelog.broker.control.types",
    "RecordsInFlight": "oncelog.broker.control.share_types",
    "Replica": "oncelog.broker.embedded.sync_api.nodes",
    "ReplicaInfo": "oncelog.broker.control.types",
    "Request": "oncelog.broker.control.request_types",
    "RequestContext": "oncelog.broker.requests.request",
    "Rule": "oncelog.broker.embedded.sync_api.faults",
    "RuleDraft": "oncelog.broker.embedded.sync_api.faults",
    "RuleState": "oncelog.broker.faults.state",
    "ShareGroup": "oncelog.broker.embedded.sync_api.share_groups",
    "ShareGroupInfo": "oncelog.broker.control.share_types",
    "ShareMember": "oncelog.broker.control.share_types",
    "SharePartitionInfo": "oncelog.broker.control.share_types",
    "SnapshotError": "oncelog.broker.control.errors",
    "TimestampType": "oncelog.broker.control.types",
    "Topic": "oncelog.broker.embedded.sync_api.topics",
    "TopicInfo": "oncelog.broker.control.types",
    "Transaction": "oncelog.broker.embedded.sync_api.transactions",
    "TransactionInfo": "oncelog.broker.control.types",
    "Transactions": "oncelog.broker.embedded.sync_api.transactions",
    "UnsupportedError": "oncelog.broker.control.errors",
    "Verdict": "oncelog.broker.prove.verdict",
    "WaitTimeoutError": "oncelog.broker.control.errors",
    "prove": "oncelog.broker.prove.api",
    "rename_groups": "oncelog.broker.filters.renaming",
    "rename_topics": "oncelog.broker.filters.renaming",
    "rename_transactional_ids": "oncelog.broker.filters.renaming",
}


if not TYPE_CHECKING:  # with it, type checkers would take any name for one of the package

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'oncelog' has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
