"""Offsets committed a second on one connection, one per request, as many requests on their way as a client likes."""

import time

from bench import raw, topics
from bench.experiment import Experiment, Lab, Row, ours_at_least
from bench.measure import cpu_s
from bench.servers import Kind
from compat_tests.definitions import Fields, api_key, encode, is_flexible
from compat_tests.frames import Connection
from oncelog.wire.framing import encode_frame

COMMIT_VERSION = 8
FETCH_VERSION = 8
COMMITS = 60_000
PARTITIONS = 10
WINDOW = 200
"""Requests on their way."""
AT_ONCE = 50
"""Requests in one send: what a client that is never waiting would have gathered."""
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


def _frame(connection: Connection, version: int, fields: Fields) -> bytes:
    head = connection.header(api_key("OffsetCommit"), version, flexible=is_flexible("OffsetCommit", version))
    body = encode("OffsetCommitRequest", version, fields)
    return encode_frame(head, body)


def wait_until_coordinated(connection: Connection, group: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    asked: Fields = {"groups": [{"group_id": group, "topics": None}]}
    while True:
        connection.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        found = connection.call("OffsetFetch", FETCH_VERSION, asked)["groups"][0]
        if found["error_code"] == 0:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"no coordinator: {found}")
        time.sleep(raw.POLL_S)


def _stream(connection: Connection, frames: list[bytes], count: int) -> None:
    """Send so many requests, the frames in turn, and read every answer."""
    sent = answered = 0
    rest = b""
    while answered < count:
        while sent < count and sent - answered + AT_ONCE <= WINDOW:
            burst = min(AT_ONCE, count - sent)
            connection.socket.sendall(b"".join(frames[(sent + n) % len(frames)] for n in range(burst)))
            sent += burst
        rest += connection.socket.recv(1 << 16)
        while len(rest) >= 4 and len(rest) >= 4 + (size := int.from_bytes(rest[:4], "big")):
            rest = rest[4 + size :]
            answered += 1


def _committed() -> Experiment:
    rows = (
        Row(COMMITTED, "offsets/s", ours_at_least(10_000)),
        Row(CPU, "us"),
    )

    def run(lab: Lab, kind: Kind) -> None:
        server, count = lab.warm_server(kind), lab.count(COMMITS)
        topic = group = lab.name("commits")
        topics.create(server, topic, PARTITIONS)
        with Connection(server.bootstrap) as connection:
            wait_until_coordinated(connection, group)
            frames = [
                _frame(connection, COMMIT_VERSION, _commit_fields(group, topic, partition, 1 + partition))
                for partition in range(PARTITIONS)
            ]
            cpu, start = cpu_s(server.pid), time.perf_counter()
            _stream(connection, frames, count)
            lab.record(COMMITTED, kind, count / (time.perf_counter() - start))
            lab.record(CPU, kind, (cpu_s(server.pid) - cpu) / count * 1e6)
            asked: Fields = {"groups": [{"group_id": group, "topics": None}]}
            [found] = connection.call("OffsetFetch", FETCH_VERSION, asked)["groups"][0]["topics"]
            stored = {row["partition_index"]: row["committed_offset"] for row in found["partitions"]}
            if stored != {partition: 1 + partition for partition in range(PARTITIONS)}:
                raise RuntimeError(f"{count} commits left {stored}")
        topics.delete(server, topic)

    return Experiment("committed offsets", rows, run, warm=True)


EXPERIMENTS = (_committed(),)
