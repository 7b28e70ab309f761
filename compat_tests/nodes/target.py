"""What the tests of several nodes ask of a target: nodes to kill, and a network to cut.

What a cluster says of itself comes from requests, to any target alike (topic.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from compat_tests.nodes.topic import Topic

CLIENTS = 0
"""The end of a wire where the clients are."""
CONTROLLER = 3000


class Asked(Protocol):
    """A broker that answers requests, if it runs."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def is_running(self) -> bool: ...


class Node(Asked, Protocol):
    """A broker. What it is told is in force when the call returns: after `start` it is in the cluster, not fenced."""

    def kill(self) -> object: ...
    def stop(self) -> object: ...
    def start(self) -> object: ...


class Wires(Protocol):
    """The wires between nodes, CONTROLLER and CLIENTS."""

    def is_cut(self, one: int, other: int) -> bool:
        """Whether something does not pass between them."""
        ...


class Network(Wires, Protocol):
    """Wires that a test cuts. What is sent on a wire that is cut is lost."""

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        """Let nothing pass between them, or nothing from `one` to `other`."""

    def delay(self, one: int, other: int, *, ms: float, one_way: bool = False) -> None:
        """Let what passes between them, or from `one` to `other`, arrive `ms` later."""

    def heal(self) -> None:
        """Let everything pass at once."""


class Wired(Protocol):
    """Nodes, and the wires between them."""

    @property
    def nodes(self) -> Mapping[int, Asked]: ...
    @property
    def network(self) -> Wires: ...


class Brokers(Wired, Protocol):
    """The brokers of a cluster, for requests (topic.py)."""

    @property
    def bootstrap_servers(self) -> str: ...
    def topic(self, name: str) -> Topic: ...


class Cluster(Brokers, Protocol):
    """Brokers 1 to 3, of racks a, b and c, and a controller that no fault touches."""

    @property
    def nodes(self) -> Mapping[int, Node]: ...
    @property
    def network(self) -> Network: ...
    def move_leader(self, topic: str, partition: int, *, to: int) -> None:
        """Have a replica of the ISR lead."""

    def mend(self) -> None:
        """Heal the network, start every node, delete the topics and wait until every replica is in sync."""
