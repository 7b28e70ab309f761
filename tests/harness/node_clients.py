"""Clients of `SimNodes`: each request goes to the node that leads, as stock clients send it."""

from __future__ import annotations

from typing import Any

from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.fetch import FetchRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.produce import ProduceRequest
from oncelog.wire.schema import Message
from oncelog.wire.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.harness.sim_client import SimClient
from tests.harness.sim_nodes import SimNodes
from tests.harness.transactional_producer import Link


class NodesLink(Link):
    """A client's connections to all nodes. It knows every leader at once."""

    def __init__(self, nodes: SimNodes) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.nodes = nodes
        self._clients: dict[int, SimClient] = {}

    def to(self, node_id: int) -> SimClient:
        if node_id not in self._clients:
            self._clients[node_id] = self.nodes.connect(node_id)
        return self._clients[node_id]

    async def call(self, request: Message, version: int, response: type[Message]) -> Any:
        return await self.to(self._leader(request)).call(request, version, response)

    def _leader(self, request: Message) -> int:
        nodes = self.nodes
        if isinstance(request, FindCoordinatorRequest):
            return min(nodes.followers)
        if isinstance(request, ProduceRequest):
            topic = request.topic_data[0]
            return nodes.leader(topic.name, topic.partition_data[0].index)
        if isinstance(request, FetchRequest):
            asked = request.topics[0]
            return nodes.leader(asked.topic, asked.partitions[0].partition)
        if isinstance(request, AddPartitionsToTxnRequest):
            return self.transaction_coordinator(request.v3_and_below_transactional_id)
        if isinstance(request, InitProducerIdRequest | EndTxnRequest | AddOffsetsToTxnRequest):
            assert request.transactional_id is not None
            return self.transaction_coordinator(request.transactional_id)
        groups = getattr(request, "groups", None)
        group_id = groups[0].group_id if groups else request.group_id  # type: ignore[attr-defined]
        return self.group_coordinator(group_id)

    def transaction_coordinator(self, transactional_id: str) -> int:
        nodes = self.nodes
        runtime = nodes[min(nodes.followers)].transactions.runtime
        return nodes.leader(TRANSACTIONS_TOPIC, runtime.partition_for(transactional_id))

    def group_coordinator(self, group_id: str) -> int:
        nodes = self.nodes
        runtime = nodes[min(nodes.followers)].groups.runtime
        return nodes.leader(OFFSETS_TOPIC, runtime.partition_for(group_id))
