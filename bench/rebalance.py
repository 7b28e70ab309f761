"""A rebalance of a classic group with 500 members: its duration, and another connection's longest wait meanwhile."""

import selectors
import socket
import struct
import time
from collections.abc import Callable

from bench import groups, topics
from bench.experiment import Experiment, Harness, Row, ours_at_most
from bench.ping import Ping
from bench.raw import request_frame
from bench.servers import Kind, Server
from oncelog.wire.framing import FrameReader
from tests.common.definitions import Fields, decode
from tests.common.frames import Connection, address

MEMBERS, PARTITIONS = 500, 1_000
JOIN, SYNC = 5, 3
"""The last versions that are not flexible, in whose responses the error code is at a fixed position."""
MEMBER_ID_REQUIRED = 79
WARM_UPS = 3
DELAY_MS = "1000"
PROPERTIES = {"group.initial.rebalance.delay.ms": DELAY_MS}
RESPONSE_HEAD = struct.Struct(">iih")
"""Correlation id, throttle time, error code."""
TIMEOUT_S = 60

REBALANCE = Row(f"rebalance: {MEMBERS} members, {PARTITIONS} partitions", "ms")
STALL = Row("another connection's longest wait in it", "ms", ours_at_most(50))


class _Member:
    def __init__(self, bootstrap: str) -> None:
        self.socket = socket.create_connection(address(bootstrap), timeout=TIMEOUT_S)
        self.member_id = ""
        self.join = b""
        self._frames = FrameReader()

    def receive(self) -> bytes | None:
        """Read from the socket; a response if it is complete."""
        self._frames.feed(self.socket.recv(1 << 20))
        return self._frames.next_frame()


class _Group:
    """Members that all send the same request at once, and then await their responses."""

    def __init__(self, bootstrap: str, group: str, topic: str, count: int) -> None:
        self._group = group
        self._topic = topic.encode()
        self._count = count
        self._round = 0
        self.members = [_Member(bootstrap) for _ in range(count)]
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member.socket, selectors.EVENT_READ, member)
        for member, response in self._call_all(self._join_frame).items():
            assert RESPONSE_HEAD.unpack_from(response)[2] == MEMBER_ID_REQUIRED, response
            found = decode("JoinGroupResponse", JOIN, response[4:])
            member.member_id = found["member_id"]

    def close(self) -> None:
        self._selector.close()
        for member in self.members:
            member.socket.close()

    def rebalance(self) -> None:
        """All members join, the leader assigns, all get their assignments.

        Each round changes every subscription: otherwise a join of the stable group would not start a rebalance.
        """
        self._round += 1
        for member in self.members:
            member.join = self._join_frame(member)
        joined = self._call_all(lambda member: member.join)
        leader = max(joined, key=lambda member: len(joined[member]))
        response = decode("JoinGroupResponse", JOIN, joined[leader][4:])
        assert response["error_code"] == 0, response
        assert len(response["members"]) == self._count, len(response["members"])
        rows = [
            {"member_id": row["member_id"], "assignment": self._assignment(at)}
            for at, row in enumerate(response["members"])
        ]
        generation = response["generation_id"]
        frames = {
            member: self._sync_frame(member, generation, rows if member is leader else [])
            for member in self.members
        }
        for sync_response in self._call_all(frames.__getitem__).values():
            assert RESPONSE_HEAD.unpack_from(sync_response)[2] == 0, sync_response

    def _call_all(self, frame: Callable[[_Member], bytes]) -> dict[_Member, bytes]:
        """Send each member's frame; the response of each."""
        for member in self.members:
            member.socket.sendall(frame(member))
        responses: dict[_Member, bytes] = {}
        deadline = time.monotonic() + TIMEOUT_S
        while len(responses) < self._count:
            for key, _ in self._selector.select(TIMEOUT_S):
                response = key.data.receive()
                if response is not None:
                    responses[key.data] = response
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(responses)} of {self._count} members have responses")
        return responses

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
        return request_frame("JoinGroup", JOIN, fields)

    def _sync_frame(self, member: _Member, generation: int, rows: list[Fields]) -> bytes:
        fields = {
            "group_id": self._group,
            "generation_id": generation,
            "member_id": member.member_id,
            "assignments": rows,
        }
        return request_frame("SyncGroup", SYNC, fields)

    def _assignment(self, at: int) -> bytes:
        share = range(at, PARTITIONS, self._count)
        name = struct.pack(">h", len(self._topic)) + self._topic
        return struct.pack(f">hi{len(name)}si{len(share)}ii", 1, 1, name, len(share), *share, -1)


def _run(harness: Harness, kind: Kind) -> None:
    with harness.fresh_server(kind, PROPERTIES) as fresh:
        server: Server = fresh.server.start()
        topic = group = harness.name("rebalanced")
        topics.create(server, topic, PARTITIONS)
        with Connection(server.bootstrap) as connection:
            groups.wait_for_coordinator(connection, group)
        large_group = _Group(server.bootstrap, group, topic, harness.count(MEMBERS))
        try:
            for _ in range(WARM_UPS):
                large_group.rebalance()
            with Ping(server.bootstrap) as ping:
                began = time.perf_counter()
                large_group.rebalance()
                took = time.perf_counter() - began
        finally:
            large_group.close()
        harness.record(REBALANCE.name, kind, took * 1000)
        harness.record(STALL.name, kind, ping.longest_ms)


EXPERIMENTS = (Experiment("rebalance", (REBALANCE, STALL), _run, rounds_max=5),)
