"""`Upstream`: the cluster behind a proxy, as passing responses and the proxy's own requests have shown it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.config.definitions import StartError
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.requests.request import CloseConnection
from oncelog.wire.errors import ErrorCode
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.steps import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
    from oncelog.wire.schema import Uuid
    from oncelog.wire.steps import Steps

TOPICS_MAX = 100_000
"""Topics that are remembered; beyond that, the first ones are forgotten."""
NODES_MAX = 1000
"""Nodes that are advertised. A cluster of more is refused: each takes a port of every listener."""

log = get_logger(__name__)


class UpstreamError(StartError):
    """The upstream cluster cannot be used. The message is for the user and says why."""


class UpstreamNode(NamedTuple):
    """The address of a node, as upstream tells it."""

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
        self.on_cluster: Callable[[str], None] = lambda cluster_id: None
        """Called with the cluster's id when it is learned. Raises CloseConnection if it must be another one."""
        self._lines = lines
        self._on_node = on_node

    def topic_name(self, topic_id: Uuid) -> str | None:
        """Return a topic's name, None if no response that passed had it."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    # -- learning

    def learn_cluster(self, cluster_id: str | None) -> None:
        """Upstream has said its cluster's id. Raises CloseConnection if it is another cluster than before."""
        if cluster_id is None or cluster_id == self.cluster_id:
            return
        if self.cluster_id is None:
            self.on_cluster(cluster_id)
            self.cluster_id = cluster_id
            return
        raise CloseConnection(
            f"the upstream is cluster {cluster_id} now; it was {self.cluster_id} when the proxy started: "
            "start the proxy anew"
        )

    def learn_node(self, node_id: int, host: str, port: int) -> None:
        """Upstream has said where a node is. Raises CloseConnection for one too many."""
        node = UpstreamNode(host, port)
        known = self.nodes.get(node_id)
        if known == node:
            return
        if known is None:
            if len(self.nodes) >= NODES_MAX:
                raise CloseConnection(f"the upstream has more than {NODES_MAX} nodes")
            self.nodes[node_id] = node
            self._on_node(node_id)
        else:
            self.nodes[node_id] = node
            about = {"node": node_id, "host": host, "port": port}
            self._lines.write(log.info, "an upstream node has moved", about)

    def learn_metadata(self, response: MetadataResponse) -> None:
        """Learn nodes and topics from a Metadata response. Raises CloseConnection if it is not of the same cluster."""
        finish(self.learn_metadata_in_steps(response))

    def learn_metadata_in_steps(self, response: MetadataResponse) -> Steps[None]:
        """As `learn_metadata`, a topic at each step."""
        self.learn_cluster(response.cluster_id)
        for broker in sorted(response.brokers, key=_node_id):
            self.learn_node(broker.node_id, broker.host, broker.port)
        has_changed = False
        for row in response.topics:
            has_changed |= self._learn_row(row)
            yield
        if has_changed:
            self._note_change(None)

    def _learn_row(self, row: MetadataResponseTopic) -> bool:
        """Learn a topic from its row. Returns whether it is new or has changed."""
        if row.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
            self.learn_deletion(row.name, row.topic_id)
            return False
        if not row.name or row.error_code:
            return False
        return self._keep(row.name, row.topic_id, len(row.partitions))

    def learn_topic(self, name: str, topic_id: Uuid, partitions: int) -> None:
        """There is a topic. Before version 10 of Metadata, and 7 of CreateTopics, its id is `ZERO_UUID`."""
        if self._keep(name, topic_id, partitions):
            self._note_change(None)

    def learn_deletion(self, name: str | None, topic_id: Uuid) -> None:
        """Forget the topic of this name, or with this id."""
        known = self.topics.get(name) if name else self.topics_by_id.get(topic_id)
        if known is not None:
            self._forget_topic(known)

    def _keep(self, name: str, topic_id: Uuid, partitions: int) -> bool:
        """Remember a topic. Returns whether it is new or has changed."""
        known = self.topics.get(name)
        if known is not None:
            if topic_id == ZERO_UUID:
                topic_id = known.topic_id
            elif topic_id != known.topic_id != ZERO_UUID:
                self._forget_topic(known)
        topic = UpstreamTopic(name, topic_id, range(partitions))
        if topic == known:
            return False
        while len(self.topics) >= TOPICS_MAX:
            self._forget_topic(next(iter(self.topics.values())))
        self.topics[name] = topic
        if topic_id != ZERO_UUID:
            self.topics_by_id[topic_id] = topic
        return True

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
