"""`ClassicGroupMember`: one member of a classic group, as it lives (Kafka: ``ClassicGroupMember``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container

    from oncelog.coordinator.promise import Promise
    from oncelog.wire.messages.join_group import JoinGroupResponse
    from oncelog.wire.messages.sync_group import SyncGroupResponse


class SupportedProtocol(NamedTuple):
    """A way to assign that a member knows, and what it tells the leader for it."""

    name: str
    metadata: bytes


class ClassicGroupMember:
    """``protocols`` in the order of the member's preference; timeouts in milliseconds.

    ``join_promise`` and ``sync_promise`` are owed while they are there; ``is_new`` until the first rebalance that it
    takes part in is through.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_promise",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_promise",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: list[SupportedProtocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.join_promise: Promise[JoinGroupResponse] | None = None
        self.sync_promise: Promise[SyncGroupResponse] | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What it tells the leader for that protocol, which it supports."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support protocol {protocol}")

    def vote(self, candidates: Container[str]) -> str:
        """Of ``candidates``, the one that it likes best; it supports at least one of them."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} supports none of the candidates")

    @property
    def is_kept_alive(self) -> bool:
        """Whether it waits for an answer, so that its silence is no sign of death. A new member may have gone
        while its first JoinGroup waits: that one is not held.
        """
        return not self.is_new and (self.join_promise is not None or self.sync_promise is not None)

    def replaced_by(
        self,
        member_id: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: list[SupportedProtocol],
    ) -> ClassicGroupMember:
        """A member with another id that has what this one has been assigned."""
        return ClassicGroupMember(
            member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            rebalance_timeout_ms,
            session_timeout_ms,
            self.protocol_type,
            protocols,
            self.assignment,
        )
