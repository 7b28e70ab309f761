"""`NodePorts`: a listener of its own for each upstream node, beside each listener of the proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.config.options import PORT_MAX
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.net.listen import ListenError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.net.server import BoundListener

    BindNode = Callable[[BoundListener, int, int], BoundListener]
    """Binds the listener of a node beside one of the proxy's, at a port (0: any free one). Raises ListenError."""


log = get_logger(__name__)


def ports_after(ports: Mapping[str, int]) -> dict[str, int]:
    """Return the first node port of each listener where nothing else is said: the one after the listener's.
    ``ports``: listener -> its port. A listener at any free port (0), or at the last one, gets no entry.
    """
    return {name: port + 1 for name, port in ports.items() if 0 < port < PORT_MAX}


class NodePorts:
    """Each new node gets the next port, and keeps it. ``first``: listener -> the first node's port; a listener without
    an entry takes free ports.
    """

    def __init__(
        self,
        listeners: list[BoundListener],
        bind: BindNode,
        first: Mapping[str, int],
        lines: LineLimiter,
    ) -> None:
        self._listeners = listeners
        self._bind = bind
        self._first = first
        self._lines = lines
        self._order: dict[int, int] = {}
        """The place of each node in the order of their appearance."""
        self._bound: dict[tuple[str, int], BoundListener] = {}
        """By the name of the proxy's listener, and the node's id."""
        self.on_bound: Callable[[BoundListener], None] = lambda bound: None
        """Called with each new listener, which has to be served."""

    def add(self, node_id: int, *, must: bool = False) -> None:
        """Listen for a new node. ``must``: raise ListenError if a port cannot be used. Otherwise it is logged, and
        clients cannot connect there, as with a node that is down.
        """
        place = self._order.setdefault(node_id, len(self._order))
        for main in self._listeners:
            if (main.name, node_id) in self._bound:
                continue
            port = self._wanted(main, place)
            try:
                bound = self._bind(main, node_id, port)
            except ListenError as error:
                if must:
                    raise
                self._lines.write(log.error, str(error), {"node": node_id})
                continue
            self._bound[main.name, node_id] = bound
            self.on_bound(bound)

    def _wanted(self, main: BoundListener, place: int) -> int:
        first = self._first.get(main.name)
        if first is None:
            return 0
        port = first + place
        return port if port <= PORT_MAX else 0

    def address(self, listener: str, node_id: int) -> tuple[str, int]:
        """Return the address of a node for clients of a listener."""
        bound = self._bound.get((listener, node_id))
        if bound is None:
            self.add(node_id)
            bound = self._bound.get((listener, node_id))
        if bound is not None:
            return bound.host, bound.port
        main = next(one for one in self._listeners if one.name == listener)
        return main.host, self._wanted(main, self._order[node_id]) or main.port

    @property
    def bound(self) -> Mapping[tuple[str, int], BoundListener]:
        """The listeners of nodes, by listener and node id."""
        return self._bound
