"""`GroupContext`: clock, randomness, settings and topics, which groups get from outside."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from oncelog.coordinator.deadlines import Deadlines
from oncelog.coordinator.timer_event import TimerEvent, nobody
from oncelog.wire.schema import Uuid


class CoordinatorTopic(Protocol):
    """A topic of the cluster, as far as coordinators need it."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> Sequence[object]:
        """One entry per partition."""


class Topics(Protocol):
    """The current topics of the cluster (Kafka: ``CoordinatorMetadataImage``)."""

    @property
    def version(self) -> int:
        """The offset of the last metadata record; it only grows."""

    def by_name(self, name: str) -> CoordinatorTopic | None: ...

    def by_id(self, topic_id: Uuid) -> CoordinatorTopic | None: ...

    def existing(self, names: frozenset[str]) -> AbstractSet[str]:
        """Those of the names whose topics exist."""

    def names(self) -> Sequence[str]:
        """The names of all topics, internal ones included."""

    def racks(self, topic: CoordinatorTopic, partition: int) -> Sequence[str]:
        """The racks of the partition's replicas; replicas without a rack are left out."""


class GroupSettings(Protocol):
    """The broker configuration that groups read. Names, meaning, units and defaults are those of `broker.config`."""

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignor_offload_enable: bool
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    group_share_session_timeout_ms: int
    group_share_heartbeat_interval_ms: int
    group_share_assignment_interval_ms: int
    group_share_assignor_offload_enable: bool
    group_share_max_size: int
    group_share_initialize_retry_interval_ms: int
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int


def _everything(topic: str) -> bool:
    return True


class Client(NamedTuple):
    """The client of a request, from its header and connection (Kafka: ``AuthorizableRequestContext``)."""

    client_id: str
    client_host: str
    """As Kafka shows it: ``/127.0.0.1``."""
    api_version: int
    may_describe: Callable[[str], bool] = _everything
    """Whether the client may know of a topic: a regular expression that it subscribes to matches no other."""


class InfoLogger(Protocol):
    """Writes a message to the broker's own log (not to a partition)."""

    def __call__(self, text: str, **fields: object) -> None: ...


def _discard(text: str, **fields: object) -> None:
    pass


class GroupContext:
    """The outside world of the groups on a node, the same for all shards.

    ``now_ms`` returns wall time in milliseconds, ``settings`` the current settings, ``overrides`` a group's dynamic
    configuration (ConfigResource type GROUP) by key, within the broker's limits; ``log_info`` writes to the broker's
    own log; ``timer_event`` is told what was done because of a deadline.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        rng: random.Random,
        deadlines: Deadlines,
        settings: Callable[[], GroupSettings],
        overrides: Callable[[str], Mapping[str, str]],
        topics: Topics,
        log_info: InfoLogger = _discard,
        timer_event: TimerEvent = nobody,
    ) -> None:
        self.now_ms = now_ms
        self.random = rng
        self.deadlines = deadlines
        self.settings = settings
        self.overrides = overrides
        self.topics = topics
        self.log_info = log_info
        self.timer_event = timer_event

    def note_dropped(self, group_id: str, member_id: str, reason: str) -> None:
        """Say that a member was removed because it was late."""
        self.log_info("a member is dropped", group=group_id, member=member_id, reason=reason)
        self.timer_event("member dropped", group=group_id, member=member_id, reason=reason)

    def other_type(self, group_id: str, group_type: str, protocol: str) -> None:
        """Write to the log that a client may not join a group of another type. Its error does not tell it which."""
        self.log_info(
            "refused to join: the group is of another type",
            group=group_id,
            type=group_type,
            protocol=protocol,
        )

    def new_uuid_text(self) -> str:
        """A random UUID as text with dashes (Java's ``UUID.randomUUID().toString()``), for member ids."""
        text = f"{self.random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62:032x}"
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
