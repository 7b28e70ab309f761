"""`Evidence`: what the requests of a failed trial say about an output: its input, the Produce requests that carry it,
and the commits that passed the input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.prove.judging.outputs import output_of
from oncelog.broker.prove.judging.transactions import is_committed
from oncelog.broker.prove.judging.writes import Writes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.control.types import Record
    from oncelog.broker.prove.disturbances import Disturbance
    from oncelog.broker.prove.judging.outputs import Output
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.history import Event
    from oncelog.broker.prove.trials.trial_result import TrialResult


class Evidence:
    """``undisturbed`` are the requests of an undisturbed run."""

    def __init__(
        self, plan: ProofPlan, result: TrialResult, events: Sequence[Event], undisturbed: Sequence[Event]
    ) -> None:
        self.plan = plan
        self.result = result
        self.events = events
        self.undisturbed = undisturbed
        self.writes = Writes(events)
        self.hits = [
            self._hit(one, at) for one, at in zip(result.disturbances, result.fired_at, strict=False)
        ]
        """The requests that were disturbed; None where the broker died at a write."""

    def _hit(self, disturbance: Disturbance, at_s: float) -> Event | None:
        if "on" not in disturbance.rule:
            return None
        found = [
            one
            for one in self.events
            if one.api == disturbance.rule["on"]
            and one.instance == disturbance.instance
            and one.at_s <= at_s + 0.001
        ]
        return found[-1] if found else None

    @property
    def uses_share_groups(self) -> bool:
        """Whether the program reads in share groups, which have no committed offsets."""
        return self.result.watch is not None and self.result.watch.uses_share_groups

    @property
    def groups_joined(self) -> set[str]:
        """The groups whose members the program is."""
        return {
            name
            for one in (*self.events, *self.undisturbed)
            if one.api in ("JoinGroup", "ConsumerGroupHeartbeat")
            for name in one.groups
        }

    def of_process(self, event: Event) -> list[Event]:
        """Return the requests of the process that sent a request."""
        return [one for one in self.events if (one.instance, one.run) == (event.instance, event.run)]

    def end_of(self, topic: str, partition: int) -> int | None:
        """Return the offset after the last record of an input's partition; None where it has no record."""
        offsets = [
            one.offset for one in self.result.inputs if (one.topic, one.partition) == (topic, partition)
        ]
        return max(offsets) + 1 if offsets else None

    # -- what led to what

    def sends_of(self, output: Output, events: Sequence[Event] | None = None) -> list[tuple[Event, Record]]:
        """Return the Produce requests that carry an output."""
        return [
            (event, record)
            for event in (self.events if events is None else events)
            for record in event.records
            if output_of(self.plan, record) == output
        ]

    def input_of(self, output: Output) -> Record | None:
        """Return the input that an output is of: the only one whose value it contains, or the one that is the n-th of
        its key as the output is; None if that is not clear.
        """
        inputs = self.result.inputs
        sends = self.sends_of(output, self.undisturbed) or self.sends_of(output)
        content = sends[0][1].value if sends else None
        if content:
            within = [one for one in inputs if one.value and _is_in(one.value, content)]
            longest = [
                one for one in within if len(one.value or b"") == max(len(two.value or b"") for two in within)
            ]
            if len(longest) == 1:
                return longest[0]
        if sends and sends[0][1].key is not None:
            key = sends[0][1].key
            same = [one for one in inputs if one.key == key]
            outputs = list(
                dict.fromkeys(
                    output_of(self.plan, record)
                    for event in self.undisturbed
                    for record in event.records
                    if record.key == key and record.topic == output.topic
                )
            )
            if len(outputs) == len(same) and output in outputs:
                return same[outputs.index(output)]
        return None

    def commits_past(self, record: Record, events: Sequence[Event] | None = None) -> list[Event]:
        """Return the requests that committed an offset beyond an input, and had effect."""
        events = self.events if events is None else events
        return [
            event
            for event in events
            for (_, topic, partition), offset in event.committed.items()
            if topic == record.topic
            and partition == record.partition
            and offset > record.offset
            and self.had_effect(event, events)
        ]

    def had_effect(self, commit: Event, events: Sequence[Event] | None = None) -> bool:
        """Return whether a commit of offsets was handled, and was not taken back with its transaction."""
        events = self.events if events is None else events
        return (
            not commit.errors
            and not self._was_lost(commit)
            and (commit.transactional_id is None or is_committed(commit, events))
        )

    def _was_lost(self, event: Event) -> bool:
        """Whether a request was never handled."""
        return any(
            hit is event and one.rule.get("drop_request") is not None
            for hit, one in zip(self.hits, self.result.disturbances, strict=False)
        )

    def name(self, event: Event) -> str:
        """Return a request's number, and the process if there were several."""
        who = (
            "" if len({(one.instance, one.run) for one in self.events}) == 1 else f" of {self.process(event)}"
        )
        return f"request {event.number}{who}"

    @staticmethod
    def process(event: Event) -> str:
        """Return which process sent a request."""
        return (
            f"instance {event.instance}, start {event.run}" if event.run > 1 else f"instance {event.instance}"
        )


def _is_in(value: bytes, content: bytes) -> bool:
    """Whether a value is in another one, not as the beginning of a longer number."""
    at = content.find(value)
    while at >= 0:
        end = at + len(value)
        if not (content[end : end + 1].isdigit() and value[-1:].isdigit()) and not (
            at and content[at - 1 : at].isdigit() and value[:1].isdigit()
        ):
            return True
        at = content.find(value, at + 1)
    return False
