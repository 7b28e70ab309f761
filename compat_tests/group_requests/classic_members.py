"""Members of classic groups that send hand-made requests, for scenarios that compare both targets."""

import struct
from collections.abc import Callable
from typing import Any

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.committed_offsets import commit_body, wait_for_coordinator
from tests.common.definitions import Fields

SESSION_MS, REBALANCE_MS = 30_000, 60_000
NO_RESPONSE_S = 1.5
JOIN, SYNC, HEARTBEAT, LEAVE, DESCRIBE, LIST, DELETE = 9, 5, 4, 5, 6, 5, 2


class Member:
    """A group member with its own connection; its methods observe every response. ``protocols``: name -> metadata."""

    def __init__(
        self,
        session: Session,
        group: str,
        name: str,
        *,
        version: int = JOIN,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.session = session
        self.group = group
        self.name = name
        self.version = version
        self.instance = instance
        self.protocols = {"range": name.encode()} if protocols is None else protocols
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.connection = session.connect(name)
        self.member_id = ""
        self.generation = -1
        self._pending: tuple[str, int, int] = ("", 0, 0)

    def send_join(self, **changes: Any) -> None:
        body: Fields = {
            "group_id": self.group,
            "session_timeout_ms": self.session_ms,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": key, "metadata": value} for key, value in self.protocols.items()],
        }
        if self.version >= 1:
            body["rebalance_timeout_ms"] = self.rebalance_ms
        self._send("JoinGroup", self.version, self._with_instance(body, 5) | changes)

    def send_sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> None:
        version = changes.pop("version", SYNC)
        rows = [{"member_id": key, "assignment": value} for key, value in (assignments or {}).items()]
        body = self._as_member(version, 3) | {"assignments": rows}
        if version >= 5:
            body |= {"protocol_type": self.protocol_type, "protocol_name": "range"}
        self._send("SyncGroup", version, body | changes)

    def receive(self, note: str = "") -> Any:
        """The response to the last request. Members are sorted: in Kafka their order is that of a hash map."""
        api, version, correlation_id = self._pending
        response = self.connection.receive(api, version, correlation_id)
        assert isinstance(response, dict), response
        if api == "JoinGroup":
            response["members"].sort(key=lambda row: row["metadata"])
            if response["error_code"] in (0, 79):
                self.member_id, self.generation = response["member_id"], response["generation_id"]
        self.session.observe(f"{self.name} {api} v{version} {note}", response)
        return response

    def join(self, note: str = "", **changes: Any) -> Any:
        self.send_join(**changes)
        return self.receive(note)

    def sync(self, assignments: dict[str, bytes] | None = None, note: str = "", **changes: Any) -> Any:
        self.send_sync(assignments, **changes)
        return self.receive(note)

    def join_new(self) -> Any:
        """Join as a new member: with two JoinGroups where a dynamic member needs an id first (version 4 and later)."""
        response = self.join("new")
        return self.join("again") if response["error_code"] == 79 else response

    def found_group(self) -> None:
        """Join as the only member and assign itself everything, so that the group is stable."""
        self.join_new()
        self.sync({self.member_id: b"all"})

    def heartbeat(self, note: str = "", version: int = HEARTBEAT, **changes: Any) -> Any:
        self._send("Heartbeat", version, self._as_member(version, 3) | changes)
        return self.receive(note)

    def heartbeat_while(self, code: int, note: str = "") -> None:
        """Heartbeat until the error code is not `code` any more; only the last response is observed."""
        while self.heartbeat(note)["error_code"] == code:
            self.session.observations.pop()

    def leave(self, note: str = "", version: int = LEAVE) -> Any:
        body: Fields = {"group_id": self.group}
        if version < 3:
            body["member_id"] = self.member_id
        else:
            body["members"] = [{"member_id": self.member_id, "group_instance_id": self.instance}]
        self._send("LeaveGroup", version, body)
        return self.receive(note)

    def commit(self, note: str, **changes: Any) -> None:
        body = commit_body(8, self.group, {self.group: {0: 1}}, self.generation, member_id=self.member_id)
        self._send("OffsetCommit", 8, body | {"group_instance_id": self.instance} | changes)
        self.receive(note)

    def _as_member(self, version: int, with_instance: int) -> Fields:
        body: Fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
        }
        return body | ({"group_instance_id": self.instance} if version >= with_instance else {})

    def _with_instance(self, body: Fields, since: int) -> Fields:
        return body | ({"group_instance_id": self.instance} if self.version >= since else {})

    def _send(self, api: str, version: int, body: Fields) -> None:
        self._pending = (api, version, self.connection.send(api, version, body))
        # A server with requests on two connections may read either first. After the response on this other connection
        # it has read the request that was sent before.
        self.session.call_unobserved("ApiVersions", 0)


def observe_group(session: Session, group: str, note: str = "", version: int = DESCRIBE) -> None:
    """Observe DescribeGroups, its members sorted."""
    body: Fields = {"groups": [group]} | ({"include_authorized_operations": True} if version >= 3 else {})
    response = session.call_unobserved("DescribeGroups", version, body)
    for row in response["groups"]:
        row["members"].sort(key=lambda member: (member["client_id"], member.get("group_instance_id") or ""))
    session.observe(f"DescribeGroups v{version} {note}", response)


def compare(pair: Pair, group: str, scenario: Callable[[Session], None], *known: str) -> None:
    """`pair.compare` once the group's coordinator is loaded on both targets."""

    def with_coordinator(session: Session) -> None:
        wait_for_coordinator(session, group)
        scenario(session)

    pair.compare(with_coordinator, known=known)


def subscription(topic: str) -> bytes:
    """A ConsumerProtocolSubscription of version 0: one topic, no user data."""
    return struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", -1)
