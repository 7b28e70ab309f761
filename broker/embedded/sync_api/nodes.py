# Made by .ci/unasync.py from async_api/nodes.py: edit that one.
"""`Node`, `Network`: the nodes of a cluster, and what is between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.control.errors import NotFoundError
from oncelog.broker.embedded.sync_api.clock import EPOCH, MILLISECOND

if TYPE_CHECKING:
    from datetime import datetime

    from oncelog.broker.control.request_types import Request
    from oncelog.broker.control.types import ClockInfo, NodeInfo, Record
    from oncelog.broker.embedded.sync_api.facade import Facade


class Nodes(dict[int, "Node"]):
    """The nodes of a broker by id."""

    def __missing__(self, node_id: object) -> Node:
        raise NotFoundError(f"there is no node {node_id!r}: there are {', '.join(map(str, self))}")


class Node:
    """The node ``node_id`` of a broker with several. A call returns when it is in force."""

    def __init__(self, broker: Facade, node_id: int) -> None:
        self._broker = broker
        self.node_id = node_id

    def start(self) -> None:
        """Start it again, at the same address, with the data that is there; the session of its last run ends at once.
        Nothing happens if it runs.
        """
        self._broker._call("start_node", node=self.node_id)

    def stop(self) -> None:
        """Stop it cleanly: it hands over what it leads first. Nothing happens if it does not run."""
        self._broker._call("stop_node", node=self.node_id)

    def kill(self) -> None:
        """End it as SIGKILL does: data that it wrote stay. The others learn of it when its session ends (`expire`, or
        ``broker.session.timeout.ms``).
        """
        self._broker._call("kill_node", node=self.node_id)

    def lose_power(self) -> None:
        """End it as a loss of power does: data that it had not flushed are lost, too. Raises UnsupportedError if the
        data is on a real disk.
        """
        self._broker._call("lose_power_of_node", node=self.node_id)

    def expire(self) -> None:
        """Let its session end now: the controller fences it, and others lead what it led. If it runs and reaches the
        controller, it comes back with its next heartbeat.
        """
        self._broker._call("expire_node", node=self.node_id)

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return (self.info).is_running

    @property
    def clock(self) -> NodeClock:
        """Its time: ``kafka.nodes[1].clock.skew(ms=500)``."""
        return NodeClock(self._broker, self.node_id)

    def topic(self, name: str) -> Replica:
        """Return the replicas that it has of a topic: ``kafka.nodes[1].topic("orders").records()``."""
        return Replica(self._broker, self.node_id, name)

    def log_lines(self) -> list[str]:
        """Return its latest log lines, newest last."""
        lines: list[str] = self._broker._call("log_lines_of_node", node=self.node_id)
        return lines

    def requests(
        self,
        api: str | None = None,
        *,
        client_id: str | None = None,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        error: str | None = None,
        limit: int | None = None,
    ) -> list[Request]:
        """Return the latest requests of clients to this node; see `Broker.requests`, which has those to all."""
        requests: list[Request] = self._broker._call(
            "requests_of_node",
            node=self.node_id,
            api=api,
            client_id=client_id,
            topic=topic,
            group=group,
            transactional_id=transactional_id,
            error=error,
            limit=limit,
        )
        return requests

    @property
    def info(self) -> NodeInfo:
        """Its address, whether it runs, and whether the controller counts it."""
        found: list[NodeInfo] = self._broker._call("nodes")
        return found[self.node_id - 1]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.node_id}>"


class NodeClock:
    """The time of the node ``node_id``: that of all nodes (`Broker.clock`), but for its wall time."""

    def __init__(self, broker: Facade, node_id: int) -> None:
        self._broker = broker
        self.node_id = node_id

    def skew(self, *, ms: int) -> None:
        """Let its wall time be so many milliseconds ahead of that of the cluster, or behind it if negative; 0 ends
        that. It rules the timestamps that the node sets, and retention; sessions and other time-outs, as on a machine,
        depend on no wall time.
        """
        self._broker._call("skew_clock", node=self.node_id, ms=ms)

    def now(self) -> datetime:
        """Return its wall time, in UTC."""
        return EPOCH + self.now_ms() * MILLISECOND

    def now_ms(self) -> int:
        """Return its wall time, in milliseconds since 1970-01-01 UTC."""
        info: ClockInfo = self._broker._call("clock_of_node", node=self.node_id)
        return info.now_ms


class Replica:
    """What the node ``node_id`` has of the topic ``name``."""

    def __init__(self, broker: Facade, node_id: int, name: str) -> None:
        self._broker = broker
        self.node_id = node_id
        self.name = name

    def records(
        self, *, partition: int | None = None, from_offset: int = 0, limit: int | None = None
    ) -> list[Record]:
        """Return the records in its logs, by partition and offset, up to the ends of the logs: also those beyond the
        high watermark, which no consumer sees yet, and those of aborted transactions. Partitions of which it has no
        replica have none. Raises NotRunningError if the node does not run; otherwise as `Topic.records`.
        """
        records: list[Record] = self._broker._call(
            "records_of_node",
            node=self.node_id,
            topic=self.name,
            partition=partition,
            from_offset=from_offset,
            limit=limit,
        )
        return records


class Network:
    """The links between the nodes, between a node and the controller, which is "controller" or 3000 here, and between a
    node and all "clients".
    """

    def __init__(self, broker: Facade) -> None:
        self._broker = broker

    def cut(self, source: int | str, target: int | str, *, one_way: bool = False) -> None:
        """Cut two nodes off from each other; with ``one_way``, lose only what ``source`` sends to ``target``. Where one
        end is "clients", their connections break, and new ones are refused: a connection needs both ways.
        """
        self._broker._call("cut", source=source, target=target, one_way=one_way)

    def delay(self, source: int | str, target: int | str, *, ms: float, one_way: bool = False) -> None:
        """Let what two nodes send to each other take so many milliseconds of real time; with ``one_way``, only what
        ``source`` sends to ``target``.
        """
        self._broker._call("delay", source=source, target=target, ms=ms, one_way=one_way)

    def heal(self) -> None:
        """End all cuts and delays."""
        self._broker._call("heal")
