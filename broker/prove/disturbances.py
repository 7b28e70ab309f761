"""The table of disturbances: a trial does one of them at one step of the program. Each is a fault rule, which catches
the step and says what becomes of the request, and what happens to the program when the rule has fired.

A kill after a response is not in the table: the program knows no more than at the kill before its next request, unless
it has changed something outside the broker meanwhile, and that, too, is there at the kill before the next request.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

LISTENER_PREFIX: Final = "INSTANCE"
"""Each instance of the program has a listener of its own, so that a rule, and the journal, know who sends a request."""


class Then(Enum):
    """The fate of the program at the step."""

    NOTHING = "nothing"
    """The disturbance is one of the request alone: a file of rules repeats it."""
    KILL = "it is killed, and started again when its session is over"
    KILL_EARLY = "it is killed, and started again before its session is over"
    TERMINATE = "it is asked to end, and started again"
    TAKE_OVER = "it stands still until another instance has taken over, and goes on"
    EXPIRE_TRANSACTION = "its transaction times out"
    JOIN = "another instance joins"
    KILL_NODE = "the node that got the request dies, and starts again"
    LOSE_LEADER = "the leader is cut off from its followers, answers, and dies"
    MOVE_LEADERS = "other nodes lead what the node that got the request led"


class Kind(NamedTuple):
    """A row of `KINDS`."""

    action: tuple[str, Any]
    """The action of the rule, and its value; None for one that follows from the step."""
    then: Then
    text: str
    """A sentence about the step ``{}``."""
    is_state: bool = False
    """Whether two steps that leave the same state of broker and program are one class."""


KINDS: Final[Mapping[str, Kind]] = {
    "kill before": Kind(
        ("drop_request", "close"), Then.KILL, "the program is killed before {} has effect", True
    ),
    "kill after": Kind(
        ("drop_response", "close"),
        Then.KILL,
        "the program is killed after {}, before it has the response",
        True,
    ),
    "zombie before": Kind(
        ("hold", True),
        Then.TAKE_OVER,
        "the program stands still while {} is on its way, its session ends, another instance takes over, it goes on",
    ),
    "lose request": Kind(("drop_request", "close"), Then.NOTHING, "{} gets lost, with its connection"),
    "lose response": Kind(
        ("drop_response", "close"), Then.NOTHING, "the response to {} gets lost, with its connection"
    ),
    "refuse": Kind(("error", None), Then.NOTHING, "{} is refused once with a retriable error"),
    "refuse for good": Kind(
        ("error", None), Then.NOTHING, "{} is refused with an error that is not retriable"
    ),
    "broker dies": Kind(("crash_at", None), Then.NOTHING, "the broker dies {}, and starts again"),
    "terminate": Kind(
        ("delay_ms", 0),
        Then.TERMINATE,
        "the program is asked to end (SIGTERM) at {}, and started again",
        True,
    ),
    "zombie after": Kind(
        ("drop_response", "close"),
        Then.TAKE_OVER,
        "the program stands still after {}, its session ends, another instance takes over, it goes on",
        True,
    ),
    "kill early": Kind(
        ("drop_response", "close"),
        Then.KILL_EARLY,
        "the program is killed after {}, and started again before its session is over",
        True,
    ),
    "time out": Kind(
        ("hold", True), Then.EXPIRE_TRANSACTION, "the transaction times out while {} is on its way"
    ),
    "join": Kind(("delay_ms", 0), Then.JOIN, "another instance joins at {}", True),
    "leaders move": Kind(
        ("hold", True),
        Then.MOVE_LEADERS,
        "while {} is on its way, other nodes become leaders and coordinators in place of that node",
    ),
    "leader is lost": Kind(
        ("delay_ms", 0),
        Then.LOSE_LEADER,
        "the leader dies that has the records of {}, before a follower has them, and starts again",
    ),
    "node dies before": Kind(
        ("drop_request", "close"),
        Then.KILL_NODE,
        "the node dies before {} has effect, and starts again",
    ),
    "node dies after": Kind(
        ("drop_response", "close"), Then.KILL_NODE, "the node dies after {}, and starts again"
    ),
}
"""By name, in the order in which they are tried."""

RETRIABLE: Final[Mapping[str, str]] = {
    "Produce": "NOT_LEADER_OR_FOLLOWER",
    "ListOffsets": "NOT_LEADER_OR_FOLLOWER",
    "OffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS",
    "OffsetFetch": "COORDINATOR_LOAD_IN_PROGRESS",
    "FindCoordinator": "COORDINATOR_NOT_AVAILABLE",
    "JoinGroup": "COORDINATOR_LOAD_IN_PROGRESS",
    "SyncGroup": "REBALANCE_IN_PROGRESS",
    "LeaveGroup": "COORDINATOR_LOAD_IN_PROGRESS",
    "InitProducerId": "CONCURRENT_TRANSACTIONS",
    "AddPartitionsToTxn": "CONCURRENT_TRANSACTIONS",
    "AddOffsetsToTxn": "CONCURRENT_TRANSACTIONS",
    "TxnOffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS",
    "EndTxn": "CONCURRENT_TRANSACTIONS",
    "ConsumerGroupHeartbeat": "COORDINATOR_LOAD_IN_PROGRESS",
    "ShareGroupHeartbeat": "COORDINATOR_LOAD_IN_PROGRESS",
    "ShareFetch": "NOT_LEADER_OR_FOLLOWER",
    "ShareAcknowledge": "NOT_LEADER_OR_FOLLOWER",
}
"""The APIs with steps, and the error with which each is refused once: one that a healthy cluster may give to a single
request. NOT_COORDINATOR is none: a coordinator that has moved gives it to all."""
FINAL: Final[Mapping[str, str]] = {"Produce": "INVALID_RECORD"}
"""Errors that no client retries, and that are about the records alone."""

SURVIVED: Final = frozenset((Then.NOTHING, Then.KILL_NODE, Then.LOSE_LEADER, Then.MOVE_LEADERS))
"""After these the process of the program goes on."""
OF_NODES: Final = frozenset((Then.KILL_NODE, Then.LOSE_LEADER, Then.MOVE_LEADERS))
NODE_KINDS: Final = tuple(name for name, row in KINDS.items() if row.then in OF_NODES)
"""Tried where a trial has several nodes of its own."""
WITH_RECORDS: Final = frozenset((Then.TERMINATE, Then.JOIN))
"""Tried, too, at a Fetch that brings records: the program has them in hand, and has not used them."""
FETCHES: Final = frozenset(("Fetch", "ShareFetch"))
WRITES: Final = frozenset(
    (
        "AddOffsetsToTxn",
        "AddPartitionsToTxn",
        "EndTxn",
        "InitProducerId",
        "OffsetCommit",
        "Produce",
        "ShareAcknowledge",
        "TxnOffsetCommit",
    )
)
"""The APIs that change what is judged: a program that stands still before another one is late, and nothing more."""
IN_TRANSACTION: Final = frozenset(
    ("AddOffsetsToTxn", "AddPartitionsToTxn", "EndTxn", "Produce", "TxnOffsetCommit")
)


class Disturbance(NamedTuple):
    """A disturbance at one step, which happens once."""

    kind: str
    """One of `KINDS`."""
    rule: Mapping[str, Any]
    """The rule that catches the step."""

    @property
    def instance(self) -> int:
        """Which instance of the program it is about, from 1 on."""
        return int(str(self.rule.get("listener", LISTENER_PREFIX + "1")).removeprefix(LISTENER_PREFIX))

    @property
    def step(self) -> str:
        """The step in words."""
        rule = self.rule
        place = nth_text(rule.get("nth", 1))
        if "crash_at" in rule:
            when, _, event = str(rule["crash_at"]).partition(" ")
            what = f"{when} the {place} {WRITE_TEXTS[event]}"
        else:
            what = f"the {place} {rule['on']}"
        for word, text in (("topic", " to {}"), ("group", " of group {}")):
            if word in rule:
                what += text.format(rule[word])
        return what

    def __str__(self) -> str:
        text = KINDS[self.kind].text.format(self.step)
        error = self.rule.get("error")
        return f"{text} ({error})" if error else text

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"kind": self.kind, "rule": dict(self.rule)}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Disturbance:
        """Return the disturbance of `to_data`. Raises ValueError."""
        if (
            not isinstance(data, dict)
            or data.get("kind") not in KINDS
            or not isinstance(data.get("rule"), dict)
        ):
            raise ValueError(f"this is no disturbance of oncelog prove: {data!r}")
        return cls(data["kind"], data["rule"])


WRITE_TEXTS: Final = {
    "partitions": "record that adds partitions to a transaction",
    "append": "batch",
    "offsets": "commit of offsets",
    "decision": "decision of a transaction",
    "marker": "marker of a transaction",
    "completion": "completion of a transaction",
    "share state": "state of a share group",
}
"""The writes at which the broker may die, in words."""


def nth_text(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
