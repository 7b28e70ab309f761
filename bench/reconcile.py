"""A consumer group and a share group of 500 members in which one member is replaced: the time until all have
reconciled, and another connection's longest wait meanwhile."""

import time
from typing import ClassVar

from bench import groups, topics
from bench.experiment import Experiment, Harness, Row, ours_at_most
from bench.ping import Ping
from bench.servers import Kind, Server
from tests.common.definitions import Fields
from tests.common.frames import Connection

MEMBERS, PARTITIONS = 500, 1_000
VERSION = 1
INTERVAL_S = 1.0
"""The default time between two target assignments. It passes before the measurement and is not part of it."""
WARM_UPS = 2
ROUNDS_MAX = 50
LEAVING = -1

REBALANCE = Row(f"consumer protocol: one of {MEMBERS} members replaced", "ms")
STALL = Row("another connection's longest wait in that", "ms", ours_at_most(10))
SHARE_REBALANCE = Row(f"share group: one of {MEMBERS} members replaced", "ms")
SHARE_STALL = Row("another connection's longest wait in that, with a share group", "ms", ours_at_most(10))
SHARE_PROPERTIES = {"group.share.max.size": "1000"}


class _Group:
    """Members that share one connection and send their heartbeats one after the other."""

    API = "ConsumerGroupHeartbeat"
    JOINING: ClassVar[Fields] = {"rebalance_timeout_ms": 300_000}

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
        self._heartbeat(member_id, subscribed_topic_names=[self._topic], **self.JOINING)

    def _wait(self) -> None:
        time.sleep(INTERVAL_S)

    def _heartbeat(self, member_id: str, **more: object) -> bool:
        """Send a heartbeat; whether it changed the member's epoch or assignment."""
        body: Fields = {
            "group_id": self._group,
            "member_id": member_id,
            "member_epoch": self._epochs[member_id],
            **self._acknowledged(member_id),
        }
        response = self._connection.call(self.API, VERSION, body | more)
        assert response["error_code"] == 0, response
        changed = bool(
            response["assignment"] is not None or response["member_epoch"] != self._epochs[member_id]
        )
        self._epochs[member_id] = response["member_epoch"]
        if response["assignment"] is not None:
            self._owned[member_id] = response["assignment"]["topic_partitions"]
        return changed

    def _acknowledged(self, member_id: str) -> Fields:
        return {"topic_partitions": self._owned[member_id]}

    def settle(self) -> None:
        """Let all members acknowledge until they have all partitions and nothing changes any more."""
        owned = 0
        for _ in range(ROUNDS_MAX):
            changes = sum(self._heartbeat(member_id) for member_id in self._epochs)
            owned = sum(len(row["partitions"]) for rows in self._owned.values() for row in rows)
            if not changes and owned == PARTITIONS:
                break
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


class _ShareGroup(_Group):
    """The same in a share group, whose members acknowledge nothing."""

    API = "ShareGroupHeartbeat"
    JOINING: ClassVar[Fields] = {}

    def _acknowledged(self, member_id: str) -> Fields:
        return {}


def _run_consumers(harness: Harness, kind: Kind) -> None:
    _run(harness, kind, _Group, (REBALANCE, STALL), {})


def _run_share(harness: Harness, kind: Kind) -> None:
    _run(harness, kind, _ShareGroup, (SHARE_REBALANCE, SHARE_STALL), SHARE_PROPERTIES)


def _run(
    harness: Harness, kind: Kind, make: type[_Group], rows: tuple[Row, Row], properties: dict[str, str]
) -> None:
    with harness.fresh_server(kind, properties) as fresh:
        server: Server = fresh.server.start()
        topic = group = harness.name("reconciled")
        topics.create(server, topic, PARTITIONS)
        with Connection(server.bootstrap) as connection:
            groups.wait_for_coordinator(connection, group)
            large_group = make(connection, group, topic, harness.count(MEMBERS))
            for _ in range(WARM_UPS):
                large_group.replace_one()
            with Ping(server.bootstrap) as ping:
                took = large_group.replace_one()
        harness.record(rows[0].name, kind, took * 1000)
        harness.record(rows[1].name, kind, ping.longest_ms)


EXPERIMENTS = (
    Experiment("reconcile", (REBALANCE, STALL), _run_consumers, rounds_max=5),
    Experiment("share-reconcile", (SHARE_REBALANCE, SHARE_STALL), _run_share, rounds_max=2),
)
