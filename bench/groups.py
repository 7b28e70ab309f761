"""Offsets committed per second on one connection, with one offset per request and many requests in flight."""

import time

from bench import raw, topics
from bench.experiment import Experiment, Harness, Row, ours_at_least
from bench.measure import cpu_s
from bench.raw import request_frame
from bench.servers import Kind
from tests.common.definitions import Fields
from tests.common.frames import Connection

COMMIT_VERSION = 8
FETCH_VERSION = 8
COMMITS = 60_000
PARTITIONS = 10
WINDOW = 200
"""Requests in flight."""
AT_ONCE = 50
"""Requests in one send, as a client gathers that never waits."""
READY_TIMEOUT_S = 60

COMMITTED = "offsets committed, one connection"
CPU = "server CPU: an offset committed"


def _commit_fields(group: str, topic: str, partition: int, offset: int) -> Fields:
    row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": [row]}],
    }


def wait_for_coordinator(connection: Connection, group: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    all_topics: Fields = {"groups": [{"group_id": group, "topics": None}]}
    while True:
        connection.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        found = connection.call("OffsetFetch", FETCH_VERSION, all_topics)["groups"][0]
        if found["error_code"] == 0:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"no coordinator: {found}")
        time.sleep(raw.POLL_S)


def _stream(connection: Connection, frames: list[bytes], count: int) -> None:
    """Send `count` requests, with the frames in turn, and read every response."""
    sent = received = 0
    rest = b""
    while received < count:
        while sent < count and sent - received + AT_ONCE <= WINDOW:
            burst = min(AT_ONCE, count - sent)
            connection.socket.sendall(b"".join(frames[(sent + n) % len(frames)] for n in range(burst)))
            sent += burst
        rest += connection.socket.recv(1 << 16)
        while len(rest) >= 4 and len(rest) >= 4 + (size := int.from_bytes(rest[:4], "big")):
            rest = rest[4 + size :]
            received += 1


def _committed() -> Experiment:
    rows = (
        Row(COMMITTED, "offsets/s", ours_at_least(10_000)),
        Row(CPU, "us"),
    )

    def run(harness: Harness, kind: Kind) -> None:
        server, count = harness.warm_server(kind), harness.count(COMMITS)
        topic = group = harness.name("commits")
        topics.create(server, topic, PARTITIONS)
        with Connection(server.bootstrap) as connection:
            wait_for_coordinator(connection, group)
            frames = [
                request_frame(
                    "OffsetCommit", COMMIT_VERSION, _commit_fields(group, topic, partition, 1 + partition)
                )
                for partition in range(PARTITIONS)
            ]
            cpu, start = cpu_s(server.pid), time.perf_counter()
            _stream(connection, frames, count)
            harness.record(COMMITTED, kind, count / (time.perf_counter() - start))
            harness.record(CPU, kind, (cpu_s(server.pid) - cpu) / count * 1e6)
            all_topics: Fields = {"groups": [{"group_id": group, "topics": None}]}
            [found] = connection.call("OffsetFetch", FETCH_VERSION, all_topics)["groups"][0]["topics"]
            stored = {row["partition_index"]: row["committed_offset"] for row in found["partitions"]}
            if stored != {partition: 1 + partition for partition in range(PARTITIONS)}:
                raise RuntimeError(f"{count} commits left {stored}")
        topics.delete(server, topic)

    return Experiment("committed offsets", rows, run, warm=True)


EXPERIMENTS = (_committed(),)
