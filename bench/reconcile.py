"""A consumer group of 500 members in which one member is replaced: the time until all have reconciled, and another
connection's longest wait meanwhile."""

import time

from bench import groups, topics
from bench.experiment import Experiment, Harness, Row, ours_at_most
from bench.ping import Ping
from bench.servers import Kind, Server
from compat_tests.definitions import Fields
from compat_tests.frames import Connection

MEMBERS, PARTITIONS = 500, 1_000
VERSION = 1
INTERVAL_S = 1.0
"""The default time between two target assignments. It passes before the measurement and is not part of it."""
WARM_UPS = 2
ROUNDS_MAX = 50
LEAVING = -1

REBALANCE = Row(f"consumer protocol: one of {MEMBERS} members replaced", "ms")
STALL = Row("another connection's longest wait in that", "ms", ours_at_most(10))


class _Group:
    """Members that share one connection and send their heartbeats one after the other."""

    def __init__(self, connection: Connection, group: str, topic: str, count: int) -> None:
        self._connection = connection
        self._group = group
        self._topic = topic
        self._epochs: dict[str, int] = {}
        self._owned: dict[str, list[Fields]] = {}
        self._joins = 0
        for _ in range(count):
            self._join()
        self._wait()
        self.settle()

    def _join(self) -> None:
        self._joins += 1
        member_id = f"member-{self._joins}"
        self._epochs[member_id] = 0
        self._owned[member_id] = []
        self._heartbeat(member_id, rebalance_timeout_ms=300_000, subscribed_topic_names=[self._topic])

    def _wait(self) -> None:
        time.sleep(INTERVAL_S)

    def _heartbeat(self, member_id: str, **more: object) -> bool:
        """Send a heartbeat; whether it changed the member's epoch or assignment."""
        body: Fields = {
            "group_id": self._group,
            "member_id": member_id,
            "member_epoch": self._epochs[member_id],
            "topic_partitions": self._owned[member_id],
        }
        response = self._connection.call("ConsumerGroupHeartbeat", VERSION, body | more)
        assert response["error_code"] == 0, response
        changed = bool(
            response["assignment"] is not None or response["member_epoch"] != self._epochs[member_id]
        )
        self._epochs[member_id] = response["member_epoch"]
        if response["assignment"] is not None:
            self._owned[member_id] = response["assignment"]["topic_partitions"]
        return changed

    def settle(self) -> None:
        """Let all members acknowledge until nothing changes any more."""
        for _ in range(ROUNDS_MAX):
            if not sum(self._heartbeat(member_id) for member_id in self._epochs):
                break
        owned = sum(len(row["partitions"]) for rows in self._owned.values() for row in rows)
        assert owned == PARTITIONS, owned

    def replace_one(self) -> float:
        """One member leaves and another joins; seconds until all members have their target assignment."""
        gone = next(iter(self._epochs))
        self._wait()
        began = time.perf_counter()
        self._heartbeat(gone, member_epoch=LEAVING)
        del self._epochs[gone], self._owned[gone]
        self._join()
        self.settle()
        return time.perf_counter() - began


def _run(harness: Harness, kind: Kind) -> None:
    with harness.fresh_server(kind) as fresh:
        server: Server = fresh.server.start()
        topic = group = harness.name("reconciled")
        topics.create(server, topic, PARTITIONS)
        with Connection(server.bootstrap) as connection:
            groups.wait_for_coordinator(connection, group)
            large_group = _Group(connection, group, topic, harness.count(MEMBERS))
            for _ in range(WARM_UPS):
                large_group.replace_one()
            with Ping(server.bootstrap) as ping:
                took = large_group.replace_one()
        harness.record(REBALANCE.name, kind, took * 1000)
        harness.record(STALL.name, kind, ping.longest_ms)


EXPERIMENTS = (Experiment("reconcile", (REBALANCE, STALL), _run, rounds_max=5),)
