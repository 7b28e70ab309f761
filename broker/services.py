"""`Services`: what a request handler may use of its node. A record, which `Node` makes and does not change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from oncelog.broker.cluster import Cluster
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.coordinators.groups import Groups
    from oncelog.broker.coordinators.transactions import Transactions
    from oncelog.broker.fetch_sessions import FetchSessions
    from oncelog.broker.handlers.produce_again import RepeatedProduces
    from oncelog.broker.line_limiter import LineLimiter
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.metadata.store import MetadataStore
    from oncelog.broker.ready_answer import ReadyAnswers
    from oncelog.broker.request import Parked
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem


@dataclass(slots=True, eq=False)
class Services:
    """One for each node."""

    config: DynamicBrokerConfig
    metadata: MetadataStore
    cluster: Cluster
    logs: LogManager
    groups: Groups
    transactions: Transactions
    fetch_sessions: FetchSessions
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
    woken: list[Parked] = field(default_factory=list)
    """Delayed fetches just satisfied by an append: the connection that appended tries to answer them first."""
    repeated: RepeatedProduces | None = None
    """The Produce requests that came lately, once there was one."""
    ready_answers: ReadyAnswers | None = None
    """For Fetch requests that wait, once there was one."""
