"""`select_replica`: the replica that a consumer reads from, by its rack (KIP-392).

Source: Kafka's ``RackAwareReplicaSelector``, ``ReplicaView.comparator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The value of ``replica.selector.class`` with which consumers are sent to a replica of their rack."""


class ReplicaView(NamedTuple):
    """A follower that is in sync and has the consumer's offset."""

    node_id: int
    rack: str | None
    end_offset: int
    caught_up_s: float
    """When it had caught up last."""


def select_replica(rack: str, leader_rack: str | None, followers: Iterable[ReplicaView]) -> int | None:
    """Return the follower from which a consumer in ``rack`` should read: of those in its rack the one that is furthest.
    None: the leader, which is in that rack itself, or no follower is.
    """
    if leader_rack == rack:
        return None
    near = [one for one in followers if one.rack == rack]
    if not near:
        return None
    return max(near, key=lambda one: (one.end_offset, one.caught_up_s, one.node_id)).node_id
