"""`Services`: the parts of a node that request handlers use; `AccessServices`: those that a proxy has, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncelog.broker.client_metrics.manager import ClientMetricsManager
    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.coordinators.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from oncelog.broker.coordinators.groups import GroupCoordinator
    from oncelog.broker.coordinators.share import ShareCoordinator
    from oncelog.broker.coordinators.transactions import TransactionCoordinator
    from oncelog.broker.fetch.delayed_fetches import DelayedFetches
    from oncelog.broker.fetch.sessions import FetchSessions
    from oncelog.broker.handlers.table import ApiRow
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.internal_topics import AutoTopicCreationManager
    from oncelog.broker.replication.replication import Replication
    from oncelog.broker.requests.authorization import Authorization
    from oncelog.broker.requests.request import Pending, RequestContext
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.security.delegation_tokens import DelegationTokens
    from oncelog.broker.security.host_names import HostNames
    from oncelog.broker.share.group_states import ShareGroupStates
    from oncelog.broker.share.manager import SharePartitionManager
    from oncelog.wire.schema import Message


class Forward(Protocol):
    """Has the controller handle a request."""

    def __call__(self, request: Message, context: RequestContext) -> Pending[Any]:
        """Return the controller's response, or for a time-out that of Kafka's broker."""


class AccessServices(Protocol):
    """What the handlers of users, ACLs, quotas and delegation tokens use. A proxy calls them with its `Host`."""

    @property
    def authorization(self) -> Authorization: ...
    @property
    def metadata(self) -> ClusterMetadata: ...
    @property
    def host_names(self) -> HostNames: ...
    @property
    def delegation_tokens(self) -> DelegationTokens: ...


class Services(NamedTuple):
    """Made once by each node."""

    handlers: Mapping[int, ApiRow]
    """The APIs that the node serves, by key."""
    config: DynamicBrokerConfig
    authorization: Authorization
    metadata: ClusterMetadata
    auto_topics: AutoTopicCreationManager
    cluster: Cluster
    logs: LogManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_coordinator: ShareCoordinator
    share_group_states: ShareGroupStates
    shares: SharePartitionManager
    txn_partitions: AddPartitionsToTxnManager
    fetch_sessions: FetchSessions
    delayed_fetches: DelayedFetches
    next_producer_id: Callable[[], int]
    """Returns a new producer id. Raises KafkaError: UNKNOWN_SERVER_ERROR if no ids are left, KAFKA_STORAGE_ERROR."""
    client_metrics: ClientMetricsManager
    host_names: HostNames
    files: FileSystem
    clock: Clock
    lines: LineLimiter
    """For log lines that may repeat with every request."""
    delegation_tokens: DelegationTokens
    note_internal_error: Callable[[], None]
    """Called after a request failed with an internal error: tests end the node then."""
    forward: Forward | None = None
    """Has the controller handle a request that changes metadata; None: this node is the controller."""
    replication: Replication | None = None
    """The partitions with several replicas; None: there are no other nodes."""
