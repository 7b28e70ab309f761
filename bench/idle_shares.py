"""A share group at rest, whose members poll 1,000 partitions without records: the server's CPU for that, and per
request of others beside it.
"""

import threading
import time
from types import TracebackType
from typing import Self

from bench import groups, topics
from bench.experiment import Experiment, Harness, Row, ours_at_most, ratio_at_most
from bench.measure import cpu_s
from bench.raw import POLL_S
from bench.scale import APIS, GROWTH_MAX, cost_of_requests
from bench.servers import Kind, Server
from tests.common.definitions import Fields
from tests.common.frames import Connection

PARTITIONS, MEMBERS = 1_000, 10
PROPERTIES = {"broker.session.timeout.ms": "120000"}
"""A Kafka that is kept waiting for the CPU would lose its coordinators otherwise."""
HEARTBEAT_VERSION, FETCH_VERSION = 1, 1
POLL_MS = 500
"""How long clients let a ShareFetch wait by default."""
HEARTBEAT_S = 5.0
NOT_NOW = (14, 15, 16)
"""Errors of a coordinator that is loading, or that a busy Kafka lost for a while."""
CLEAN_POLLS = 4
"""So many polls without an error one after the other, and a member's partitions are at rest."""
REST_S, REST_S_MIN = 10, 2
TIMEOUT_S = 120
BESIDE = f"{PARTITIONS:,} idle share partitions"


REST = Row(f"server CPU: {BESIDE}", "ms/s", ratio_at_most(1), is_cost=True)


def _row(api: str) -> str:
    return f"server CPU per {api}, {BESIDE}"


def _growth(api: str) -> str:
    return f"cost of a {api} with {BESIDE}, against none"


class _Member:
    """A member that polls its partitions, in a thread of its own, as a client does that gets no records."""

    def __init__(self, server: Server, group: str, number: int) -> None:
        self.connection = Connection(server.bootstrap)
        self.owned: list[Fields] = []
        self.at_rest = threading.Event()
        """All its partitions are at rest."""
        self.failure: Exception | None = None
        self._who: Fields = {"group_id": group, "member_id": f"member-{number}"}
        self._epoch = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run)

    @property
    def partitions(self) -> list[int]:
        return [partition for row in self.owned for partition in row["partitions"]]

    def heartbeat(self) -> None:
        """Send a heartbeat: the first joins. One that the coordinator cannot take now is sent again later."""
        fields: Fields = {**self._who, "member_epoch": self._epoch}
        if self._epoch == 0:
            fields["subscribed_topic_names"] = [self._who["group_id"]]
        response = self.connection.call("ShareGroupHeartbeat", HEARTBEAT_VERSION, fields)
        if response["error_code"] in NOT_NOW:
            return
        if response["error_code"]:
            raise RuntimeError(f"ShareGroupHeartbeat: {response}")
        self._epoch = response["member_epoch"]
        if response["assignment"] is not None:
            self.owned = response["assignment"]["topic_partitions"]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        if self._thread.is_alive():
            self._thread.join()
        self.connection.close()

    def _run(self) -> None:
        try:
            self._poll()
        except Exception as failure:
            self.failure = failure
            self.at_rest.set()

    def _poll(self) -> None:
        session_epoch, clean, heartbeat_at = 0, 0, time.monotonic() + HEARTBEAT_S
        while not self._stopped:
            if time.monotonic() >= heartbeat_at:
                self.heartbeat()
                heartbeat_at += HEARTBEAT_S
            response = self.connection.call("ShareFetch", FETCH_VERSION, self._fetch(session_epoch))
            rows = [row for topic in response["responses"] for row in topic["partitions"]]
            if response["error_code"]:
                raise RuntimeError(f"ShareFetch: {response}")
            if any(row["acquired_records"] for row in rows):
                raise RuntimeError(f"ShareFetch: records of partitions that have none: {rows}")
            session_epoch += 1
            clean = 0 if any(row["error_code"] for row in rows) else clean + 1
            if clean == CLEAN_POLLS:
                self.at_rest.set()

    def _fetch(self, session_epoch: int) -> Fields:
        """All partitions begin the session, and later requests name none."""
        begins = [
            {
                "topic_id": row["topic_id"],
                "partitions": [
                    {"partition_index": one, "acknowledgement_batches": []} for one in row["partitions"]
                ],
            }
            for row in self.owned
        ]
        return {
            **self._who, "share_session_epoch": session_epoch, "max_wait_ms": POLL_MS, "min_bytes": 1,
            "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500,
            "topics": [] if session_epoch else begins, "forgotten_topics_data": [],
        }  # fmt: skip


class _Group:
    """A context in which the members poll. It begins when all partitions are at rest."""

    def __init__(self, server: Server, group: str, partitions: int) -> None:
        with Connection(server.bootstrap) as connection:
            groups.wait_for_coordinator(connection, group)
        topics.create(server, group, partitions)
        self._members = [_Member(server, group, number) for number in range(MEMBERS)]
        self._settle(partitions)

    def _settle(self, partitions: int) -> None:
        """Send heartbeats until every partition has one member."""
        deadline = time.monotonic() + TIMEOUT_S
        owned: list[int] = []
        while sorted(owned) != [*range(partitions)]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(owned)} of {partitions} partitions after {TIMEOUT_S} s")
            time.sleep(POLL_S)
            for member in self._members:
                member.heartbeat()
            owned = [partition for member in self._members for partition in member.partitions]

    def __enter__(self) -> Self:
        for member in self._members:
            member.start()
        for member in self._members:
            if not member.at_rest.wait(TIMEOUT_S):
                raise RuntimeError(f"not all partitions were at rest after {TIMEOUT_S} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            member.stop()
        for member in self._members:
            if member.failure is not None:
                raise member.failure


def _run(harness: Harness, kind: Kind) -> None:
    with harness.fresh_server(kind, PROPERTIES) as fresh:
        server = fresh.server.start()
        cost_of_requests(harness, server)  # warms up the JVM
        none = cost_of_requests(harness, server)
    with harness.fresh_server(kind, PROPERTIES) as fresh:
        server = fresh.server.start()
        with _Group(server, harness.name("idle"), PARTITIONS):
            cost_of_requests(harness, server)
            began, before = time.perf_counter(), cpu_s(server.pid)
            time.sleep(max(REST_S_MIN, REST_S * harness.scale))
            rest = (cpu_s(server.pid) - before) / (time.perf_counter() - began)
            cost = cost_of_requests(harness, server)
    harness.record(REST.name, kind, 1000 * rest)
    for api in APIS:
        harness.record(_row(api), kind, cost[api])
        harness.record(_growth(api), kind, cost[api] / none[api])


ROWS = (
    REST,
    *(Row(_row(api), "us") for api in APIS),
    *(Row(_growth(api), "x", ours_at_most(GROWTH_MAX)) for api in APIS),
)
EXPERIMENTS = (Experiment("idle-shares", ROWS, _run, rounds_max=2),)
