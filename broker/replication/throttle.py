"""`ReplicationThrottle`: how fast the replicas that are named in a topic's configuration may be copied.

Only a replica that is not in sync is held back: one in the ISR would leave it otherwise. The leader counts what it
sends to named replicas and then sends them nothing for a while; so does the follower with what it asks for. Real time,
as of a request. Source: KIP-73, Kafka's ``ReplicationQuotaManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.seams.clock import real_time
from oncelog.broker.security.rates import SimpleRate

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.config.dynamic import DynamicBrokerConfig
    from oncelog.broker.config.topic_config import TopicConfig
    from oncelog.broker.log.partition_log import PartitionLog

ALL_REPLICAS = "*"


class ReplicationThrottle:
    """One of a node's two throttles: of what it leads, or of what it follows."""

    __slots__ = ("_config", "_limit_of", "_names_of", "_node_id", "_rate")

    def __init__(
        self,
        config: DynamicBrokerConfig,
        node_id: int,
        limit_of: Callable[[BrokerConfig], int | None],
        names_of: Callable[[TopicConfig], tuple[str, ...]],
    ) -> None:
        """``limit_of`` returns the bytes a second, ``names_of`` the replicas of a topic (``partition:node``)."""
        self._config = config
        self._node_id = node_id
        self._limit_of = limit_of
        self._names_of = names_of
        static = config.static
        self._rate = SimpleRate(
            static.replication_quota_window_num, static.replication_quota_window_size_seconds * 1000
        )

    @classmethod
    def of_leader(cls, config: DynamicBrokerConfig, node_id: int) -> ReplicationThrottle:
        """Return the throttle of what a node sends to followers."""
        return cls(
            config,
            node_id,
            lambda broker: broker.leader_replication_throttled_rate,
            lambda topic: topic.leader_replication_throttled_replicas,
        )

    @classmethod
    def of_follower(cls, config: DynamicBrokerConfig, node_id: int) -> ReplicationThrottle:
        """Return the throttle of what a node fetches from leaders."""
        return cls(
            config,
            node_id,
            lambda broker: broker.follower_replication_throttled_rate,
            lambda topic: topic.follower_replication_throttled_replicas,
        )

    def applies_to(self, log: PartitionLog) -> bool:
        """Whether the partition's replicas are throttled."""
        if self._limit_of(self._config.current) is None:
            return False
        names = self._names_of(log.config)
        return bool(names) and (names == (ALL_REPLICAS,) or f"{log.partition}:{self._node_id}" in names)

    def record(self, size: int) -> None:
        """Count bytes of a partition that is named."""
        self._rate.record(size, _now_ms())

    def delay_s(self) -> float:
        """Return for how many seconds nothing more may be copied; 0: the rate is not exceeded."""
        limit = self._limit_of(self._config.current)
        return 0.0 if limit is None else self._rate.throttle_ms(limit, _now_ms()) / 1000


def _now_ms() -> int:
    return int(real_time.monotonic() * 1000)
