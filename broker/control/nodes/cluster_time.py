"""`ClusterTime`: sessions and replicas of a cluster while its time is moved.

Nodes that run and reach the controller keep their sessions; followers that run and reach their leader stay in sync. The
sessions of the others end at their time; a replica that does not reach its leader falls out of sync when the leader
looks, as a periodic task.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from oncelog.broker.network.network import CONTROLLER_ID
from oncelog.broker.node.controller import AFTER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.network.network import Network
    from oncelog.broker.node.controller import Controller
    from oncelog.broker.node.node import Node
    from oncelog.broker.scheduling.background_work import BackgroundWork


class ClusterTime:
    """``nodes`` are those that run, by id. See `Between`."""

    def __init__(self, controller: Controller, network: Network, nodes: Mapping[int, Node]) -> None:
        self._controller = controller
        self._network = network
        self._nodes = nodes

    @property
    def background(self) -> BackgroundWork:
        """See `Between`."""
        return self._controller.host.background

    def _reached(self, node_id: int) -> set[int]:
        """Return the nodes that run and reach this one, or the controller."""
        return {
            other
            for other in self._nodes
            if other != node_id
            and not self._network.is_cut(node_id, other)
            and not self._network.is_cut(other, node_id)
        }

    def next_deadline(self) -> float:
        """See `Between`."""
        controller = self._controller
        heard = self._reached(CONTROLLER_ID)
        deadline_s = controller.sessions.next_deadline_s(heard)
        return inf if deadline_s is None else deadline_s + AFTER_S

    def move_along(self, seconds: float) -> None:
        """See `Between`."""
        self._controller.sessions.credit(self._reached(CONTROLLER_ID), seconds)
        for node_id, node in self._nodes.items():
            if node.replication is not None:
                node.replication.credit(self._reached(node_id), seconds)

    def under_way(self) -> list[str]:
        """See `Between`."""
        names = []
        offset = self._controller.store.image.offset
        for node_id in self._reached(CONTROLLER_ID):
            node = self._nodes[node_id]
            if node.metadata.image.offset < offset:
                names.append(f"metadata of node {node_id}")
            if node.replication is not None:
                names += node.replication.under_way(self._reached(node_id))
        return names
