"""`MembersHeard`: the connection on which each member of a group was heard last.

Whether it is still open tells a member that is alive from one that is not, before its session expires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

SWEEP_AT_LEAST = 1_000
"""So many are remembered before those are forgotten that are no members any more, or whose connection is closed."""


class Peer(Protocol):
    """A connection."""

    @property
    def is_open(self) -> bool: ...


class MembersHeard:
    """By group and member id. ``is_member`` tells whether a group still has the member."""

    __slots__ = ("_is_member", "_peers", "_sweep_at")

    def __init__(self, is_member: Callable[[str, str], bool]) -> None:
        self._is_member = is_member
        self._peers: dict[tuple[str, str], Peer] = {}
        self._sweep_at = SWEEP_AT_LEAST

    def __len__(self) -> int:
        return len(self._peers)

    def note(self, group_id: str, member_id: str, peer: Peer) -> None:
        """The member has sent a request on this connection."""
        self._peers[group_id, member_id] = peer
        if len(self._peers) >= self._sweep_at:
            self._peers = {key: it for key, it in self._peers.items() if it.is_open and self._is_member(*key)}
            self._sweep_at = max(SWEEP_AT_LEAST, 2 * len(self._peers))

    def is_connected(self, group_id: str, member_id: str) -> bool:
        """Whether the connection is open on which the member was heard last."""
        peer = self._peers.get((group_id, member_id))
        return peer is not None and peer.is_open
