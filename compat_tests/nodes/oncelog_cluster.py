"""Several nodes of oncelog, as the tests' other target: `oncelog.Broker(nodes=…)`."""

import pathlib
import re
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

import oncelog
from compat_tests.nodes.asking import Asking
from compat_tests.nodes.kafka_cluster import PROPERTIES, KafkaCluster
from compat_tests.nodes.topic import Topic, move_leader
from compat_tests.oncelog_server import Oncelog
from oncelog.wire.topic_names import INTERNAL_TOPICS

WAIT_S = 30


class Node:
    """See `compat_tests.nodes.target.Node`."""

    def __init__(self, broker: oncelog.Broker, number: int) -> None:
        self._node = broker.nodes[number]

    @property
    def bootstrap(self) -> str:
        return self._node.info.address

    @property
    def is_running(self) -> bool:
        return self._node.info.is_running

    def kill(self) -> None:
        self._node.kill()

    def stop(self) -> None:
        self._node.stop()

    def start(self) -> None:
        self._node.start()


class Network:
    """See `compat_tests.nodes.target.Network`. The wires of clients cannot be cut."""

    def __init__(self, broker: oncelog.Broker) -> None:
        self._network = broker.network
        self._cut: set[frozenset[int]] = set()

    def cut(self, one: int, other: int, *, one_way: bool = False) -> None:
        self._network.cut(one, other, one_way=one_way)
        self._cut.add(frozenset((one, other)))

    def delay(self, one: int, other: int, *, ms: float, one_way: bool = False) -> None:
        self._network.delay(one, other, ms=ms, one_way=one_way)

    def heal(self) -> None:
        self._network.heal()
        self._cut.clear()

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self._cut


class OncelogCluster(Asking):
    """Nodes 1 to 3 and their controller, 3000, in this process."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        nodes: dict[int, Mapping[str, str]] = {number: (own or {}).get(number, {}) for number in (1, 2, 3)}
        unknown = ("log.initial.task.delay.ms", "log.cleaner.dedupe.buffer.size")
        config = {**PROPERTIES, **(properties or {})}
        self._broker = oncelog.Broker(
            config={key: text for key, text in config.items() if key not in unknown}, nodes=nodes
        )

    def __enter__(self) -> Self:
        self._broker.start()
        self.nodes = {number: Node(self._broker, number) for number in (1, 2, 3)}
        self.network = Network(self._broker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.close()

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def topic(self, name: str) -> Topic:
        return Topic(self, name)

    def move_leader(self, topic: str, partition: int, *, to: int) -> None:
        """Have a replica of the ISR lead; it is preferred from then on."""
        self._broker.move_leader(topic, partition, to=to)

    def mend(self) -> None:
        """See `compat_tests.nodes.target.Cluster`."""
        self.network.heal()
        for node in self.nodes.values():
            node.start()
        for name in self._broker.topics:
            self._broker.topic(name).delete()
        for name in INTERNAL_TOPICS:
            with suppress(oncelog.NotFoundError):
                topic = self._broker.topic(name)
                for partition in topic.partitions:
                    replicas = [replica.node for replica in partition.replicas]
                    topic.wait_for_partition(partition.partition, isr=replicas, timeout=WAIT_S)


class ServedNode(NamedTuple):
    """A node of ServedCluster, which ends with it."""

    bootstrap: str
    is_running: bool = True


class ServedCluster(Oncelog):
    """`oncelog serve --nodes 3` in a process of its own: its nodes end together, and no test cuts them off."""

    def __init__(
        self, properties: Mapping[str, str] | None = None, data_dir: pathlib.Path | None = None
    ) -> None:
        unknown = ("log.initial.task.delay.ms", "log.cleaner.dedupe.buffer.size")
        config = {
            key: text for key, text in {**PROPERTIES, **(properties or {})}.items() if key not in unknown
        }
        super().__init__(config, data_dir, ("--nodes", "3"))
        self.network = _Whole()

    def start(self) -> Self:
        self._port = 0  # the ports after the last one may be taken by now
        return super().start()

    @property
    def nodes(self) -> dict[int, ServedNode]:
        listed = re.search(r"nodes=(\S+)", self.ready_line)
        assert listed is not None, self.ready_line
        rows = (row.partition("@") for row in listed[1].split(","))
        return {int(number): ServedNode(address) for number, _, address in rows}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def topic(self, name: str) -> Topic:
        return Topic(self, name)

    def move_leader(self, topic: str, partition: int, *, to: int) -> None:
        move_leader(self, topic, partition, to=to)


class _Whole:
    """A network that nothing cuts."""

    def is_cut(self, one: int, other: int) -> bool:
        return False


AnyCluster = KafkaCluster | OncelogCluster
"""Three nodes before which a proxy stands."""
