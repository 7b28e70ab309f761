"""`CoordinatorEnvironment`: the parts of a node that its coordinators use."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.cluster.cluster import Cluster
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.log.manager import LogManager
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.broker.metadata.internal_topics import AutoTopicCreationManager
    from oncelog.broker.scheduling.background_work import BackgroundWork
    from oncelog.broker.seams.clock import Clock
    from oncelog.broker.seams.files import FileSystem


class CoordinatorEnvironment(NamedTuple):
    config: DynamicBrokerConfig
    metadata: ClusterMetadata
    auto_topics: AutoTopicCreationManager
    cluster: Cluster
    logs: LogManager
    files: FileSystem
    clock: Clock
    lines: LineLimiter
    """Limits log lines that would repeat with every request."""
    background: BackgroundWork
    note_internal_error: Callable[[], None]
    """Called after work failed with an internal error. Tests end the node then."""
