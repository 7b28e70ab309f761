"""The check of a member id, and what the responses to ShareFetch and ShareAcknowledge share: leaders, rows by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from oncelog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oncelog.broker.cluster.cluster import Cluster, NodeAddress
    from oncelog.broker.share.sessions import PartitionKey

MEMBER_ID_CHARS_MAX = 36
"""The longest member id, in characters: that of a UUID."""


def is_member_id(member_id: str | None) -> bool:
    """Whether a request may have this member id (``KafkaApis.isMemberIdValid``)."""
    return bool(member_id) and len(member_id or "") <= MEMBER_ID_CHARS_MAX


def leader_of(cluster: Cluster, key: PartitionKey, code: int) -> tuple[int, int] | None:
    """Return the leader and its epoch if the error says that this node is not the leader."""
    if code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return None
    topic = cluster.topic_by_id(key[0])
    if topic is None or key[1] >= len(topic.partitions):
        return None
    state = topic.partitions[key[1]]
    return state.leader, state.leader_epoch


def endpoints_of(cluster: Cluster, leaders: Iterable[int], listener_name: str) -> list[NodeAddress]:
    """Return the addresses of the leaders that a response names, on the client's listener (KIP-951)."""
    wanted = set(leaders)
    return [node for node in cluster.nodes(listener_name) if node.node_id in wanted] if wanted else []


T = TypeVar("T")


def by_topic(rows: Mapping[PartitionKey, T]) -> dict[bytes, list[T]]:
    """Return the rows of each topic, topics in the order of their first rows."""
    topics: dict[bytes, list[T]] = {}
    for (topic_id, _), row in rows.items():
        topics.setdefault(topic_id, []).append(row)
    return topics
