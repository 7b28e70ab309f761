"""A real Apache Kafka of several nodes without Docker: a JVM of 256 MB each, broker and controller in one."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from compat_tests.batches import now_ms
from compat_tests.frames import Connection
from compat_tests.real_kafka import RealKafka, free_ports, new_uuid, quick_start

NODES = 3
JVM_OPTIONS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_ATTEMPTS = 3
TIMEOUT_MS = 60_000

PROPERTIES = {
    **{
        f"{topic}.replication.factor": str(NODES)
        for topic in ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    },
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.min.isr": "2",
    "num.partitions": "1",
    # Each node opens all partitions of the internal topics.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    # A dead node is noticed after this time, so a busy machine must not be taken for one.
    "broker.session.timeout.ms": "4000",
    "log.initial.task.delay.ms": "86400000",
}
"""Every topic has three replicas, and acks=all needs two of them."""


class _Node(RealKafka):
    """A node whose ports the others know: it cannot take different ones."""

    def __init__(
        self, ports: Sequence[int], properties: Mapping[str, str], jvm_options: Sequence[str], cluster_id: str
    ) -> None:
        super().__init__(properties, jvm_options=jvm_options, cluster_id=cluster_id)
        self._ports = list(ports)

    def start(self) -> Self:
        if not self._start_once():
            assert self.process is not None
            self.process.end(kill=True)
            shown, self.process = self.process.output(), None
            raise AssertionError(f"a node of Kafka did not start:\n{shown}")
        return self


class KafkaCluster:
    """Nodes 1 to 3 on free ports of 127.0.0.1, with data that is deleted with the context.

    A node (`nodes[1]`) can be stopped, killed and started again; it keeps its ports.
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.nodes: dict[int, RealKafka] = {}
        self._properties = {**PROPERTIES, **(properties or {})}

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> Self:
        """Start the nodes side by side, and wait until every node knows all of them.

        Raises RealPartMissing, or AssertionError with the output of a node.
        """
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._start_once()
                return self
            except AssertionError as error:
                self.__exit__(None, None, None)
                self.nodes = {}
                if "Address already in use" not in str(error) or attempt == START_ATTEMPTS:
                    raise
        raise AssertionError

    def _start_once(self) -> None:
        options = (*JVM_OPTIONS, *quick_start())
        ports = free_ports(2 * NODES)
        controllers = dict(enumerate(ports[NODES:], 1))
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in controllers.items())
        cluster_id = new_uuid()
        for number, port in enumerate(ports[:NODES], 1):
            properties = {**self._properties, "node.id": str(number), "controller.quorum.voters": voters}
            self.nodes[number] = _Node((port, controllers[number]), properties, options, cluster_id)
        with ThreadPoolExecutor(NODES) as pool:
            list(pool.map(lambda node: node.start(), self.nodes.values()))
        self.wait_for(lambda response: len(response["brokers"]) == NODES, "every node")

    def metadata(self, topics: list[str] | None = None) -> Any:
        """The response to Metadata, of any node that is alive."""
        listed = {"topics": None if topics is None else [{"name": name} for name in topics]}
        for node in self.nodes.values():
            if node.process is not None:
                with contextlib.suppress(OSError), Connection(node.bootstrap) as connection:
                    return connection.call("Metadata", 12, {**listed, "allow_auto_topic_creation": False})
        raise AssertionError("no node runs")

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of the node that leads the partition."""
        (row,) = self.metadata([topic])["topics"]
        (found,) = [one for one in row["partitions"] if one["partition_index"] == partition]
        return int(found["leader_id"])

    def wait_until_in_sync(self) -> None:
        """Wait until every replica of every partition is in sync."""

        def in_sync(response: Any) -> bool:
            rows = [row for topic in response["topics"] for row in topic["partitions"]]
            return len(response["brokers"]) == NODES and all(
                set(row["isr_nodes"]) == set(row["replica_nodes"]) for row in rows
            )

        self.wait_for(in_sync, "every replica")

    def wait_for(self, done: Callable[[Any], bool], what: str) -> None:
        """Wait until `done(response)` is true of a Metadata response of each running node."""
        deadline = now_ms() + TIMEOUT_MS
        for node in self.nodes.values():
            while node.process is not None:
                with contextlib.suppress(OSError), Connection(node.bootstrap) as connection:
                    response = connection.call("Metadata", 12, {"topics": None})
                    if done(response):
                        break
                assert now_ms() < deadline, f"no sign of {what}\n{self.output()}"

    def kill_all(self) -> None:
        """Send SIGKILL to every node."""
        for node in self.nodes.values():
            node.kill()

    def output(self) -> str:
        """The last lines that the running nodes wrote."""
        return "\n".join(node.output()[-3000:] for node in self.nodes.values())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
        for node in self.nodes.values():
            node.__exit__(kind, error, trace)
