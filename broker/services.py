"""`Services`: what a request handler may use of its node. A record, which `Node` makes and does not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from oncelog.broker.cluster import Cluster
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.coordinators.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from oncelog.broker.coordinators.groups import GroupCoordinator
    from oncelog.broker.coordinators.transactions import TransactionCoordinator
    from oncelog.broker.fetch.delayed import DelayedFetches
    from oncelog.broker.fetch.sessions import FetchSessions
    from oncelog.broker.line_limiter import LineLimiter
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.metadata.store import MetadataStore
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem


class Services(NamedTuple):
    """One for each node."""

    config: DynamicBrokerConfig
    metadata: MetadataStore
    cluster: Cluster
    logs: LogManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    txn_partitions: AddPartitionsToTxnManager
    fetch_sessions: FetchSessions
    delayed_fetches: DelayedFetches
    next_producer_id: Callable[[], int]
    """A producer id that nobody has. Raises KafkaError: UNKNOWN_SERVER_ERROR where all are used up,
    KAFKA_STORAGE_ERROR.
    """
    files: FileSystem
    clock: Clock
    lines: LineLimiter
    """For log lines that would come with every request."""
    random: random.Random
    note_bug: Callable[[], None]
    """Call it after a request has failed because of a defect of ours: tests end the node then."""
