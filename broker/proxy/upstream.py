"""`Upstream`: what the proxy knows of the cluster behind it, from the responses that pass and from its own requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.logs import get_logger
from oncelog.broker.request import CloseConnection
from oncelog.wire.errors import ErrorCode
from oncelog.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncelog.broker.line_limiter import LineLimiter
    from oncelog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
    from oncelog.wire.schema import Uuid

TOPICS_MAX = 100_000
"""Topics that are remembered; beyond that, the first ones are forgotten."""
NODES_MAX = 1000
"""Nodes that are presented. A cluster of more is refused: each takes a port of every listener."""

log = get_logger(__name__)


class UpstreamError(Exception):
    """The upstream cluster cannot be used. The message is for the user and says why."""


class UpstreamNode(NamedTuple):
    """Where upstream says that a node is."""

    host: str
    port: int


class UpstreamTopic(NamedTuple):
    """A topic as upstream's metadata showed it last."""

    name: str
    topic_id: Uuid
    partitions: range


class Upstream:
    """``bootstrap`` are the addresses of some nodes. ``on_node`` is called with the id of a node that is new."""

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], lines: LineLimiter, on_node: Callable[[int], None]
    ) -> None:
        self.bootstrap = tuple(bootstrap)
        self.cluster_id: str | None = None
        """None as long as no response had it."""
        self.nodes: dict[int, UpstreamNode] = {}
        """By id, in the order in which they appeared."""
        self.topics: dict[str, UpstreamTopic] = {}
        self.topics_by_id: dict[Uuid, UpstreamTopic] = {}
        self.on_change: list[Callable[[UpstreamTopic | None], None]] = []
        """Called when topics have changed: with one that is gone, otherwise with None."""
        self._lines = lines
        self._on_node = on_node

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return a topic's name, None if no response that passed had it."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    # -- what is learned

    def learn_cluster(self, cluster_id: str | None) -> None:
        """Upstream has said its cluster's id. Raises CloseConnection if it is another cluster than before."""
        if cluster_id is None or cluster_id == self.cluster_id:
            return
        if self.cluster_id is None:
            self.cluster_id = cluster_id
            return
        raise CloseConnection(
            f"the upstream is cluster {cluster_id} now; it was {self.cluster_id} when the proxy started"
        )

    def learn_node(self, node_id: int, host: str, port: int) -> None:
        """Upstream has said where a node is. Raises CloseConnection for one too many."""
        told = UpstreamNode(host, port)
        known = self.nodes.get(node_id)
        if known == told:
            return
        if known is None:
            if len(self.nodes) >= NODES_MAX:
                raise CloseConnection(f"the upstream has more than {NODES_MAX} nodes")
            self.nodes[node_id] = told
            self._on_node(node_id)
        else:
            self.nodes[node_id] = told
            about = {"node": node_id, "host": host, "port": port}
            self._lines.write(log.info, "an upstream node has moved", about)

    def learn_metadata(self, response: MetadataResponse) -> None:
        """Take what a Metadata response says. Raises CloseConnection if it is not of the same cluster."""
        self.learn_cluster(response.cluster_id)
        for broker in sorted(response.brokers, key=_node_id):
            self.learn_node(broker.node_id, broker.host, broker.port)
        has_changed = False
        for row in response.topics:
            has_changed |= self._learn_topic(row)
        if has_changed:
            self._note_change(None)

    def _learn_topic(self, row: MetadataResponseTopic) -> bool:
        """Take what a topic's row says. Returns whether it is new or has changed."""
        name = row.name
        if row.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            known = self.topics.get(name) if name else self.topics_by_id.get(row.topic_id)
            if known is not None:
                self._forget_topic(known)
            return False
        if not name or row.error_code:
            return False
        known = self.topics.get(name)
        if (
            known is not None
            and known.topic_id == row.topic_id
            and len(known.partitions) == len(row.partitions)
        ):
            return False
        if (
            known is not None
            and ZERO_UUID not in (row.topic_id, known.topic_id)
            and known.topic_id != row.topic_id
        ):
            self._forget_topic(known)
        topic_id = row.topic_id
        if topic_id == ZERO_UUID and known is not None:  # before version 10 there is none
            topic_id = known.topic_id
        while len(self.topics) >= TOPICS_MAX:
            self._forget_topic(next(iter(self.topics.values())))
        topic = UpstreamTopic(name, topic_id, range(len(row.partitions)))
        self.topics[name] = topic
        if topic_id != ZERO_UUID:
            self.topics_by_id[topic_id] = topic
        return topic != known

    def _forget_topic(self, topic: UpstreamTopic) -> None:
        self.topics.pop(topic.name, None)
        self.topics_by_id.pop(topic.topic_id, None)
        self._note_change(topic)

    def _note_change(self, gone: UpstreamTopic | None) -> None:
        for call in self.on_change:
            call(gone)


def _node_id(row: Any) -> int:
    node_id: int = row.node_id
    return node_id
