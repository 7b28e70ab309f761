"""Addresses in responses: each upstream node has a port of the proxy, and clients are told that one.

Endpoints of streams groups are the applications' own and stay as they are. The nodes of DescribeQuorum are controllers,
which no client reaches through the proxy: one that is a broker, too, has that broker's port here, any other has no
listener.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncelog.broker.proxy.apis import (
    CREATE_TOPICS_KEY,
    DELETE_TOPICS_KEY,
    DESCRIBE_CLUSTER_KEY,
    DESCRIBE_CONFIGS_KEY,
    DESCRIBE_QUORUM_KEY,
    FIND_COORDINATOR_KEY,
)
from oncelog.broker.proxy.upstream import Upstream
from oncelog.broker.seams.address import address_text
from oncelog.wire.header import FETCH_KEY, METADATA_KEY, PRODUCE_KEY, SHARE_ACKNOWLEDGE_KEY, SHARE_FETCH_KEY
from oncelog.wire.steps import Steps

BROKER_RESOURCE: Final = 4
BROKER_ENDPOINTS: Final = 1
ADVERTISED_LISTENERS: Final = "advertised.listeners"


class Addresses:
    """Rewrites responses, and lets ``upstream`` learn nodes and topics from them.

    ``address_of`` gives the address of a node, by its id, for clients of a listener, by its name.
    """

    def __init__(self, upstream: Upstream, address_of: Callable[[str, int], tuple[str, int]]) -> None:
        self._upstream = upstream
        self._address_of = address_of
        self._by_key: dict[int, Callable[[Any, str], None]] = {
            PRODUCE_KEY: self._node_endpoints,
            FETCH_KEY: self._node_endpoints,
            SHARE_FETCH_KEY: self._node_endpoints,
            SHARE_ACKNOWLEDGE_KEY: self._node_endpoints,
            FIND_COORDINATOR_KEY: self._find_coordinator,
            CREATE_TOPICS_KEY: self._create_topics,
            DELETE_TOPICS_KEY: self._delete_topics,
            DESCRIBE_CONFIGS_KEY: self._describe_configs,
            DESCRIBE_QUORUM_KEY: self._describe_quorum,
            DESCRIBE_CLUSTER_KEY: self._describe_cluster,
        }

    def rewrite(self, api_key: int, response: Any, listener: str) -> Steps[None]:
        """Rewrite a response for a client of ``listener``. Raises CloseConnection if it is of another cluster."""
        if api_key == METADATA_KEY:
            yield from self._metadata(response, listener)
            return
        rewrite = self._by_key.get(api_key)
        if rewrite is not None:
            rewrite(response, listener)

    @property
    def cluster_id(self) -> str | None:
        """The id of upstream's cluster; None before upstream has said it."""
        return self._upstream.cluster_id

    def learn_and_advertise(self, node_id: int, host: str, port: int, listener: str) -> tuple[str, int]:
        """Learn where upstream says that a node is; return its address for clients of ``listener``. The proxy listens
        there from then on. Raises CloseConnection if there are more nodes than the proxy allows.
        """
        self._upstream.learn_node(node_id, host, port)
        return self._address_of(listener, node_id)

    def _metadata(self, response: Any, listener: str) -> Steps[None]:
        yield from self._upstream.learn_metadata_in_steps(response)
        for row in response.brokers:
            row.host, row.port = self._address_of(listener, row.node_id)

    def _create_topics(self, response: Any, listener: str) -> None:
        for row in response.topics:
            if not row.error_code and row.num_partitions > 0:
                self._upstream.learn_topic(row.name, row.topic_id, row.num_partitions)

    def _delete_topics(self, response: Any, listener: str) -> None:
        for row in response.responses:
            if not row.error_code:
                self._upstream.learn_deletion(row.name, row.topic_id)

    def _find_coordinator(self, response: Any, listener: str) -> None:
        for row in (response, *response.coordinators):
            if row.node_id >= 0 and row.host:
                row.host, row.port = self.learn_and_advertise(row.node_id, row.host, row.port, listener)

    def _describe_cluster(self, response: Any, listener: str) -> None:
        self._upstream.learn_cluster(response.cluster_id or None)
        for row in response.brokers:
            if response.endpoint_type == BROKER_ENDPOINTS:
                row.host, row.port = self.learn_and_advertise(row.broker_id, row.host, row.port, listener)
            elif row.broker_id in self._upstream.nodes:
                row.host, row.port = self._address_of(listener, row.broker_id)

    def _node_endpoints(self, response: Any, listener: str) -> None:
        for row in response.node_endpoints:
            row.host, row.port = self.learn_and_advertise(row.node_id, row.host, row.port, listener)

    def _describe_quorum(self, response: Any, listener: str) -> None:
        for node in response.nodes:
            if node.node_id not in self._upstream.nodes:
                node.listeners = []
            for row in node.listeners:
                row.host, row.port = self._address_of(listener, node.node_id)

    def _describe_configs(self, response: Any, listener: str) -> None:
        for result in response.results:
            if result.resource_type != BROKER_RESOURCE or not result.resource_name.isdecimal():
                continue
            node_id = int(result.resource_name)
            if node_id not in self._upstream.nodes:
                continue
            advertised = f"{listener}://{address_text(*self._address_of(listener, node_id))}"
            for config in result.configs:
                if config.name == ADVERTISED_LISTENERS:
                    for row in (config, *config.synonyms):
                        row.value = advertised
