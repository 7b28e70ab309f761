"""What a cluster of three nodes says to requests of the tests themselves."""

from collections.abc import Callable
from typing import Any

from compat_tests.nodes.topic import reachable
from compat_tests.nodes.waiting import wait_until
from tests.common.frames import Connection

NODES = 3


class Asking:
    """What `Brokers` add to that, whatever their nodes are."""

    nodes: Any
    network: Any

    def metadata(self, topics: list[str] | None = None) -> Any:
        """The response to Metadata of the first broker that runs."""
        listed = {"topics": None if topics is None else [{"name": name} for name in topics]}
        return self.call("Metadata", 12, {**listed, "allow_auto_topic_creation": False})

    def call(self, api: str, version: int, values: Any = None, node: int | None = None) -> Any:
        """The response of a broker, by default the first that runs and that nothing cuts off."""
        chosen = self.nodes[min(reachable(self)) if node is None else node]
        with Connection(chosen.bootstrap) as connection:
            return connection.call(api, version, values)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of the broker that leads the partition."""
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
        """Wait until `done(response)` is true of a Metadata response of each running broker."""

        def ask(number: int) -> Callable[[], Any]:
            return lambda: self.call("Metadata", 12, {"topics": None}, number)

        for number, node in self.nodes.items():
            if node.is_running:
                wait_until(ask(number), done, what)
