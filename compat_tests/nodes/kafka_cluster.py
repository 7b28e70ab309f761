"""A real Apache Kafka of several nodes without Docker: a controller and three brokers, each in its own JVM.

The controller goes on while brokers are killed: of three nodes that are broker and controller, two may not be. Every
connection goes through a forwarder (network.py), so a test can cut off and slow down brokers, controller and clients.
"""

import contextlib
import pathlib
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from compat_tests.nodes.asking import NODES, Asking
from compat_tests.nodes.network import Network
from compat_tests.nodes.target import CLIENTS, CONTROLLER
from compat_tests.nodes.topic import Topic, move_leader
from tests.common.jars import quick_start
from tests.common.process import free_ports
from tests.common.real_kafka import FEW_INTERNAL_PARTITIONS, RealKafka, new_uuid

JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")
BROKER_HEAP, CONTROLLER_HEAP = "-Xmx192M", "-Xmx96M"
START_ATTEMPTS = 3

PROPERTIES = {
    **{
        f"{topic}.replication.factor": str(NODES)
        for topic in ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    },
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.min.isr": "2",
    "num.partitions": "1",
    **FEW_INTERNAL_PARTITIONS,
    # A dead broker, or a follower that does not fetch, is noticed after these times, so a busy machine must not be
    # taken for one.
    "broker.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    # Leaders change when a test has them change.
    "auto.leader.rebalance.enable": "false",
    "log.initial.task.delay.ms": "86400000",
    # By default it takes 128 MB of the heap.
    "log.cleaner.dedupe.buffer.size": "4194304",
}
"""Every topic has three replicas, and acks=all needs two of them."""

_PLAINTEXT = ",".join(f"{name}:PLAINTEXT" for name in ("CLIENTS", "INTERNAL", "CONTROLLER"))


def _name(number: int) -> str:
    return f"node-{number}"


def _host(seen_by: int, number: int) -> str:
    """Give the address that leads the node `seen_by` to the node `number`."""
    return f"127.0.{min(seen_by, 100)}.{min(number, 100)}"


class Node(RealKafka):
    """A controller or a broker. The others know its ports: it cannot take different ones."""

    def __init__(
        self,
        number: int,
        ports: Sequence[int],
        properties: Mapping[str, str],
        cluster_id: str,
        data_dir: pathlib.Path | None,
        network: Network,
    ) -> None:
        self.id = number
        self._network = network
        self._is_controller = number == CONTROLLER
        own = {"node.id": str(number), "process.roles": "controller" if self._is_controller else "broker"}
        super().__init__({**properties, **own}, data_dir, cluster_id=cluster_id)
        self._host = _host(number, number)
        self._ports = list(ports)
        hosts = self.data_dir.with_name(f"hosts-{number}")
        others = {_name(other): _host(number, other) for other in (*range(1, NODES + 1), CONTROLLER)}
        others |= {socket.gethostname(): "127.0.0.1", "localhost": "127.0.0.1"}
        hosts.write_text("".join(f"{at} {name}\n" for name, at in others.items()))
        heap = CONTROLLER_HEAP if self._is_controller else BROKER_HEAP
        self._jvm_options = (heap, *JVM_OPTIONS, *quick_start(), f"-Djdk.net.hosts.file={hosts}")

    @property
    def bootstrap(self) -> str:
        """Where clients reach it; the controller, where it listens."""
        return f"{self._host if self._is_controller else '127.0.0.1'}:{self._ports[0]}"

    @property
    def is_running(self) -> bool:
        return self.process is not None

    def start(self) -> Self:
        """Start it, unless it runs, and return when it serves; a broker, when it is not fenced any more.

        A broker that was killed is registered again when the session that it had is over.
        """
        if self.process is not None or self._start_once():
            if not self._is_controller:
                self._network.accept(CLIENTS, self.id)
            return self
        assert self.process is not None
        self.process.end(kill=True)
        shown, self.process = self.process.output(), None
        raise AssertionError(f"node {self.id} of Kafka did not start:\n{shown}")

    def _end(self, *, kill: bool) -> int | None:
        code = super()._end(kill=kill)
        if not self._is_controller:
            self._network.refuse(CLIENTS, self.id)
        return code

    def _addresses(self) -> dict[str, str]:
        if self._is_controller:
            return {"listeners": f"CONTROLLER://{self._host}:{self._ports[0]}"}
        clients, internal = self._ports
        return {
            "listener.security.protocol.map": _PLAINTEXT,
            "listeners": f"CLIENTS://{self._host}:{clients},INTERNAL://{self._host}:{internal}",
            "advertised.listeners": f"CLIENTS://{self.bootstrap},INTERNAL://{_name(self.id)}:{internal}",
            "inter.broker.listener.name": "INTERNAL",
        }

    def _format(self, properties: str) -> None:
        if self._is_controller:
            super()._format(properties)
        else:
            self._write_meta_properties()  # which is all that kafka-storage writes for a broker


class KafkaCluster(Asking):
    """Brokers 1 to 3 and their controller, with data that is deleted with the context.

    A broker (`nodes[1]`) can be stopped, killed and started again; it keeps its ports and data. `properties` are added
    to PROPERTIES, and those of `own` to one broker's. A given `data_dir`, with directories as oncelog names them, is
    kept.
    """

    network: Network
    controller: Node

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
        data_dir: pathlib.Path | None = None,
    ) -> None:
        self.nodes: dict[int, Node] = {}
        self._data_dir = data_dir
        self._properties = {**PROPERTIES, **(properties or {})}
        self._own = own or {}
        self._stack = contextlib.ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> Self:
        """Start the nodes side by side, and wait until every broker knows all of them.

        Raises RealPartMissing, or AssertionError with the output of a node.
        """
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._start_once()
                return self
            except BaseException as error:
                self.__exit__(None, None, None)
                self.nodes = {}
                if "ddress already in use" not in str(error) or attempt == START_ATTEMPTS:
                    raise
        raise AssertionError

    def _start_once(self) -> None:
        self.network = self._stack.enter_context(Network())
        numbers = range(1, NODES + 1)
        clients, internal = (dict(zip(numbers, free_ports(NODES), strict=True)) for _ in range(2))
        (controller,) = free_ports(1)
        cluster_id, voters = new_uuid(), f"{CONTROLLER}@{_name(CONTROLLER)}:{controller}"
        shared = {**self._properties, "controller.quorum.voters": voters}
        of_controller = self._data_dir and self._data_dir / "controller"
        self.controller = Node(CONTROLLER, [controller], shared, cluster_id, of_controller, self.network)
        self._stack.push(self.controller.__exit__)
        for number in numbers:
            listens = {other: internal[other] for other in numbers if other != number}
            for other, port in {**listens, CONTROLLER: controller}.items():
                to = (_host(other, other), port)
                self.network.forward(number, other, (_host(number, other), port), to)
            to = (_host(number, number), clients[number])
            self.network.forward(CLIENTS, number, ("127.0.0.1", clients[number]), to)
            properties = {**shared, **self._own.get(number, {})}
            ports = clients[number], internal[number]
            of_node = self._data_dir and self._data_dir / str(number)
            self.nodes[number] = Node(number, ports, properties, cluster_id, of_node, self.network)
            self._stack.push(self.nodes[number].__exit__)
        with ThreadPoolExecutor(NODES + 1) as pool:
            list(pool.map(lambda node: node.start(), (self.controller, *self.nodes.values())))
        self.wait_for(lambda response: len(response["brokers"]) == NODES, "every node")

    def topic(self, name: str) -> Topic:
        return Topic(self, name)

    def move_leader(self, topic: str, partition: int, *, to: int) -> None:
        """Have a replica of the ISR lead; it is preferred from then on."""
        move_leader(self, topic, partition, to=to)

    def mend(self) -> None:
        """Heal the network, start every node, delete the topics and wait until every replica is in sync."""
        self.network.heal()
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(lambda node: node.start(), self.nodes.values()))
        names = [topic["name"] for topic in self.metadata()["topics"] if not topic["name"].startswith("__")]
        deleted = self.call("DeleteTopics", 5, {"topic_names": names, "timeout_ms": 15_000})
        assert all(row["error_code"] == 0 for row in deleted["responses"]), deleted
        self.wait_until_in_sync()

    def stop_all(self) -> None:
        """Stop every node; the controller last, which the brokers tell of it."""
        for node in (*self.nodes.values(), self.controller):
            node.stop()

    def kill_all(self) -> None:
        """Send SIGKILL to every node."""
        for node in (*self.nodes.values(), self.controller):
            node.kill()

    def output(self) -> str:
        """The last lines that the running nodes wrote."""
        return "\n".join(node.output()[-3000:] for node in (*self.nodes.values(), self.controller))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()
        self._stack.close()
