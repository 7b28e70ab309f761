"""Members of classic groups as one session of a `Pair` drives them, field by field."""

from collections.abc import Callable
from typing import Any

from compat_tests.definitions import Fields
from compat_tests.differential import Pair, Session
from compat_tests.test_diff_committed_offsets import commit_body, wait_for_coordinator

SESSION_MS, REBALANCE_MS = 30_000, 60_000
SILENCE_S = 1.5
JOIN, SYNC, HEARTBEAT, LEAVE, DESCRIBE, LIST, DELETE = 9, 5, 4, 5, 6, 5, 2


class Member:
    """A client of a group, on a connection of its own; ``protocols``: name -> metadata."""

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
        self.connection = session.another(name)
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
        """What was waited for. Kafka keeps members in a hash map: their order says nothing."""
        api, version, correlation_id = self._pending
        answer = self.connection.receive(api, version, correlation_id)
        assert isinstance(answer, dict), answer
        if api == "JoinGroup":
            answer["members"].sort(key=lambda row: row["metadata"])
            if answer["error_code"] in (0, 79):
                self.member_id, self.generation = answer["member_id"], answer["generation_id"]
        self.session.remember(f"{self.name} {api} v{version} {note}", answer)
        return answer

    def join(self, note: str = "", **changes: Any) -> Any:
        self.send_join(**changes)
        return self.receive(note)

    def sync(self, assignments: dict[str, bytes] | None = None, note: str = "", **changes: Any) -> Any:
        self.send_sync(assignments, **changes)
        return self.receive(note)

    def enter(self) -> Any:
        """Join as a new member, which from version 4 on comes twice unless it is static."""
        answer = self.join("new")
        return self.join("again") if answer["error_code"] == 79 else answer

    def found(self) -> None:
        """Be a group alone, with a settled assignment."""
        self.enter()
        self.sync({self.member_id: b"all"})

    def heartbeat(self, note: str = "", version: int = HEARTBEAT, **changes: Any) -> Any:
        self._send("Heartbeat", version, self._as_member(version, 3) | changes)
        return self.receive(note)

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
        # Of two connections with something to read a server may take either first. When this other one is answered, it
        # has read what was there before.
        self.session.quiet("ApiVersions", 0)


def described(session: Session, group: str, note: str = "", version: int = DESCRIBE) -> None:
    body: Fields = {"groups": [group]} | ({"include_authorized_operations": True} if version >= 3 else {})
    answer = session.quiet("DescribeGroups", version, body)
    for row in answer["groups"]:
        row["members"].sort(key=lambda member: (member["client_id"], member.get("group_instance_id") or ""))
    session.remember(f"DescribeGroups v{version} {note}", answer)


def run(pair: Pair, group: str, scenario: Callable[[Session], None], *known: str) -> None:
    def whole(session: Session) -> None:
        wait_for_coordinator(session, group)
        scenario(session)

    pair.compare(whole, known=known)
