"""`ClassicGroupMember`: volatile state of one member of a classic group (Kafka: ``ClassicGroupMember``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container

    from oncelog.coordinator.promise import Promise
    from oncelog.wire.messages.join_group import JoinGroupResponse
    from oncelog.wire.messages.sync_group import SyncGroupResponse


class SupportedProtocol(NamedTuple):
    """A protocol that a member supports (of a consumer: an assignor), with its metadata for the leader."""

    name: str
    metadata: bytes


class ClassicGroupMember:
    """``protocols``: in the order of the member's preference. ``join_promise``, ``sync_promise``: for the JoinGroup or
    SyncGroup that waits. ``is_new``: until its first rebalance is complete. Timeouts in milliseconds.
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
        """The member's metadata for a protocol that it supports."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support protocol {protocol}")

    def vote(self, candidates: Container[str]) -> str:
        """Its preferred protocol among ``candidates``, of which it must support one."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError(f"member {self.member_id} supports none of the candidates")

    @property
    def is_kept_alive(self) -> bool:
        """Whether it stays in the group without heartbeats, since it waits for a response. A new member whose first
        JoinGroup waits does not: its client may have died.
        """
        return not self.is_new and (self.join_promise is not None or self.sync_promise is not None)

    def replaced_by(
        self,
        member_id: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: list[SupportedProtocol],
    ) -> ClassicGroupMember:
        """A member with another member id and this one's assignment."""
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
