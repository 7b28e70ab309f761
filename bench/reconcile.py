"""A group of the consumer protocol with 500 members: one comes and one goes, and everybody reconciles. How long that
takes, and how long another connection waits meanwhile."""

import time

from bench import groups, topics
from bench.experiment import Experiment, Lab, Row, ours_at_most
from bench.ping import Ping
from bench.servers import Kind, Server
from compat_tests.definitions import Fields
from compat_tests.frames import Connection

MEMBERS, PARTITIONS = 500, 1_000
VERSION = 1
INTERVAL_S = 1.0
"""Between two target assignments, as it is by default: how long a change waits is no part of what is measured."""
WARM_UPS = 2
ROUNDS_MAX = 50
LEAVING = -1

REBALANCE = Row(f"consumer protocol: one of {MEMBERS} members replaced", "ms")
STALL = Row("another connection's longest wait in that", "ms", ours_at_most(50))


class _Group:
    """Members that send their heartbeats one after the other, on one connection."""

    def __init__(self, connection: Connection, group: str, topic: str, count: int) -> None:
        self._connection = connection
        self._group = group
        self._topic = topic
        self._epochs: dict[str, int] = {}
        self._owned: dict[str, list[Fields]] = {}
        self._made = 0
        for _ in range(count):
            self._join()
        self._wait()
        self.settle()

    def _join(self) -> None:
        self._made += 1
        member_id = f"member-{self._made}"
        self._epochs[member_id] = 0
        self._owned[member_id] = []
        self._beat(member_id, rebalance_timeout_ms=300_000, subscribed_topic_names=[self._topic])

    def _wait(self) -> None:
        time.sleep(INTERVAL_S)

    def _beat(self, member_id: str, **more: object) -> bool:
        """Whether anything came of it."""
        body: Fields = {
            "group_id": self._group,
            "member_id": member_id,
            "member_epoch": self._epochs[member_id],
            "topic_partitions": self._owned[member_id],
        }
        answer = self._connection.call("ConsumerGroupHeartbeat", VERSION, body | more)
        assert answer["error_code"] == 0, answer
        changed = bool(answer["assignment"] is not None or answer["member_epoch"] != self._epochs[member_id])
        self._epochs[member_id] = answer["member_epoch"]
        if answer["assignment"] is not None:
            self._owned[member_id] = answer["assignment"]["topic_partitions"]
        return changed

    def settle(self) -> None:
        """Everybody acknowledges until nothing changes any more."""
        for _ in range(ROUNDS_MAX):
            if not sum(self._beat(member_id) for member_id in self._epochs):
                break
        owned = sum(len(row["partitions"]) for rows in self._owned.values() for row in rows)
        assert owned == PARTITIONS, owned

    def replace_one(self) -> float:
        """One leaves, another one comes, and everybody has what it shall have: the seconds that this takes."""
        gone = next(iter(self._epochs))
        self._wait()
        began = time.perf_counter()
        self._beat(gone, member_epoch=LEAVING)
        del self._epochs[gone], self._owned[gone]
        self._join()
        self.settle()
        return time.perf_counter() - began


def _run(lab: Lab, kind: Kind) -> None:
    with lab.fresh_server(kind) as fresh:
        server: Server = fresh.server.start()
        topic = group = lab.name("reconciled")
        topics.create(server, topic, PARTITIONS)
        with Connection(server.bootstrap) as connection:
            groups.wait_until_coordinated(connection, group)
            crowd = _Group(connection, group, topic, lab.count(MEMBERS))
            for _ in range(WARM_UPS):
                crowd.replace_one()
            with Ping(server.bootstrap) as ping:
                took = crowd.replace_one()
        lab.record(REBALANCE.name, kind, took * 1000)
        lab.record(STALL.name, kind, ping.longest_ms)


EXPERIMENTS = (Experiment("reconcile", (REBALANCE, STALL), _run, rounds_max=5),)
