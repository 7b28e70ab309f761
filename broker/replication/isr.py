"""`Isr`: the in-sync replicas of a partition as its leader counts them, and what becomes of a change that it proposes.

Only the controller changes the ISR. Until it has answered, the leader does not know whether the change holds, so it
takes for each question the set that is safe:

- whether the partition may be written (``min.insync.replicas``), and who may be proposed to leave: the *committed* ISR;
- which replicas must have a record before the watermark passes it: the *maximal* ISR, which is the committed one and,
  while an expansion is under way, the replica that joins. A replica that leaves is waited for until it has left.

While a change is under way the leader proposes no other. What ends it:

============================================  ======================================================================
the controller                                the leader
============================================  ======================================================================
accepts it                                    has the ISR of the response as the committed one
answers one of `REFUSED`                      has the ISR from before: the change certainly does not hold
answers one of `METADATA_WILL_TELL`           keeps the change pending until the metadata have another state
answers anything else, or the link is down    asks again
has told another state by the metadata        has that, whatever a later response says
============================================  ======================================================================

Source: KIP-497, Kafka's ``PartitionState``, ``Partition.handleAlterPartitionError``.
"""

from __future__ import annotations

from enum import Enum

from oncelog.wire.errors import ErrorCode

REFUSED = frozenset((ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA))
METADATA_WILL_TELL = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)


class Isr:
    """An ISR, and the change of it that was proposed, if any. It is never changed, only replaced."""

    __slots__ = ("committed", "maximal", "proposed")

    def __init__(self, committed: frozenset[int], proposed: frozenset[int] | None = None) -> None:
        self.committed = committed
        self.proposed = proposed
        """What the controller was asked for; None: nothing is under way."""
        self.maximal = committed if proposed is None else committed | proposed

    def __repr__(self) -> str:
        proposed = "" if self.proposed is None else f", proposed {sorted(self.proposed)}"
        return f"Isr({sorted(self.committed)}{proposed})"


class Answer(Enum):
    """What a leader does about an error of the controller."""

    BACK = "the change does not hold"
    WAIT = "the metadata will tell"
    RETRY = "ask again"


def answer_to(error_code: int) -> Answer:
    """Return what to do about an error with which the controller answers a proposed change."""
    if error_code in REFUSED:
        return Answer.BACK
    return Answer.WAIT if error_code in METADATA_WILL_TELL else Answer.RETRY
