"""A classic group of 500 members rebalances: how long that takes, and how long another connection waits meanwhile."""

import selectors
import socket
import struct
import time
from collections.abc import Callable

from bench import groups, topics
from bench.experiment import Experiment, Lab, Row, ours_at_most
from bench.ping import Ping
from bench.servers import Kind, Server
from compat_tests.definitions import Fields, api_key, decode, encode
from compat_tests.frames import Connection, address
from oncelog.wire.framing import FrameReader, encode_frame
from oncelog.wire.header import encode_request_header

MEMBERS, PARTITIONS = 500, 1_000
JOIN, SYNC = 5, 3
"""Versions: the last that are not flexible, so that an answer's code can be read where it stands."""
MEMBER_ID_REQUIRED = 79
WARM_UPS = 3
DELAY_MS = "1000"
PROPERTIES = {"group.initial.rebalance.delay.ms": DELAY_MS}
CODE = struct.Struct(">iih")
"""Correlation id, throttle time, code."""
TIMEOUT_S = 60

REBALANCE = Row(f"rebalance: {MEMBERS} members, {PARTITIONS} partitions", "ms")
STALL = Row("another connection's longest wait in it", "ms", ours_at_most(50))


def _framed(api: str, version: int, fields: Fields) -> bytes:
    head = encode_request_header(api_key(api), version, 0, "", flexible=False)
    return encode_frame(head, encode(f"{api}Request", version, fields))


class _Member:
    def __init__(self, bootstrap: str) -> None:
        self.socket = socket.create_connection(address(bootstrap), timeout=TIMEOUT_S)
        self.member_id = ""
        self.join = b""
        self._frames = FrameReader()

    def receive(self) -> bytes | None:
        """A whole answer, if there is one."""
        self._frames.feed(self.socket.recv(1 << 20))
        return self._frames.next_frame()


class _Group:
    """Members that do all things together."""

    def __init__(self, bootstrap: str, group: str, topic: str, count: int) -> None:
        self._group = group
        self._topic = topic.encode()
        self._count = count
        self._round = 0
        self.members = [_Member(bootstrap) for _ in range(count)]
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member.socket, selectors.EVENT_READ, member)
        for member, answer in self._together(lambda member: self._join_frame(member)).items():
            assert CODE.unpack_from(answer)[2] == MEMBER_ID_REQUIRED, answer
            found = decode("JoinGroupResponse", JOIN, answer[4:])
            member.member_id = found["member_id"]

    def close(self) -> None:
        self._selector.close()
        for member in self.members:
            member.socket.close()

    def rebalance(self) -> None:
        """All join, one assigns, all get their assignment. Everybody has something new to say, lest one that joins a
        stable group is told that nothing has changed."""
        self._round += 1
        for member in self.members:
            member.join = self._join_frame(member)
        joined = self._together(lambda member: member.join)
        leader = max(joined, key=lambda member: len(joined[member]))
        answer = decode("JoinGroupResponse", JOIN, joined[leader][4:])
        assert answer["error_code"] == 0, answer
        assert len(answer["members"]) == self._count, len(answer["members"])
        rows = [
            {"member_id": row["member_id"], "assignment": self._assignment(at)}
            for at, row in enumerate(answer["members"])
        ]
        generation = answer["generation_id"]
        frames = {
            member: self._sync_frame(member, generation, rows if member is leader else [])
            for member in self.members
        }
        for answer_bytes in self._together(frames.__getitem__).values():
            assert CODE.unpack_from(answer_bytes)[2] == 0, answer_bytes

    def _together(self, frame: Callable[[_Member], bytes]) -> dict[_Member, bytes]:
        """Everybody sends, and reads an answer."""
        for member in self.members:
            member.socket.sendall(frame(member))
        answers: dict[_Member, bytes] = {}
        deadline = time.monotonic() + TIMEOUT_S
        while len(answers) < self._count:
            for key, _ in self._selector.select(TIMEOUT_S):
                answer = key.data.receive()
                if answer is not None:
                    answers[key.data] = answer
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(answers)} of {self._count} members were answered")
        return answers

    def _join_frame(self, member: _Member) -> bytes:
        name = struct.pack(">h", len(self._topic)) + self._topic
        subscription = struct.pack(">hi", 1, 1) + name + struct.pack(">iii", 4, self._round, 0)
        fields = {
            "group_id": self._group,
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member.member_id,
            "protocol_type": "consumer",
            "protocols": [
                {"name": name, "metadata": subscription} for name in ("range", "cooperative-sticky")
            ],
        }
        return _framed("JoinGroup", JOIN, fields)

    def _sync_frame(self, member: _Member, generation: int, rows: list[Fields]) -> bytes:
        fields = {
            "group_id": self._group,
            "generation_id": generation,
            "member_id": member.member_id,
            "assignments": rows,
        }
        return _framed("SyncGroup", SYNC, fields)

    def _assignment(self, at: int) -> bytes:
        share = range(at, PARTITIONS, self._count)
        name = struct.pack(">h", len(self._topic)) + self._topic
        return struct.pack(f">hi{len(name)}si{len(share)}ii", 1, 1, name, len(share), *share, -1)


def _run(lab: Lab, kind: Kind) -> None:
    with lab.fresh_server(kind, PROPERTIES) as fresh:
        server: Server = fresh.server.start()
        topic = group = lab.name("rebalanced")
        topics.create(server, topic, PARTITIONS)
        with Connection(server.bootstrap) as connection:
            groups.wait_until_coordinated(connection, group)
        crowd = _Group(server.bootstrap, group, topic, lab.count(MEMBERS))
        try:
            for _ in range(WARM_UPS):
                crowd.rebalance()
            with Ping(server.bootstrap) as ping:
                began = time.perf_counter()
                crowd.rebalance()
                took = time.perf_counter() - began
        finally:
            crowd.close()
        lab.record(REBALANCE.name, kind, took * 1000)
        lab.record(STALL.name, kind, ping.longest_ms)


EXPERIMENTS = (Experiment("rebalance", (REBALANCE, STALL), _run, rounds_max=5),)
