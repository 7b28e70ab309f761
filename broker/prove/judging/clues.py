"""What the requests of a run hint at, whatever came out: silent members, unknown topics, shared transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.control.names import meant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.history import Event
    from oncelog.broker.prove.trials.trial_result import TrialResult

SILENT_S: Final = 7.0
"""A member is silent after so many seconds without a heartbeat. Kafka's clients send one every 3 s, in the consumer
protocol every 5 s.
"""
_OF_MEMBERS: Final = frozenset(
    ("SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat")
)


def shared_ids(events: Sequence[Event]) -> list[str]:
    """Return the transactional ids that several instances use."""
    users: dict[str, set[int]] = {}
    for one in events:
        if one.transactional_id:
            users.setdefault(one.transactional_id, set()).add(one.instance)
    return sorted(one for one, instances in users.items() if len(instances) > 1)


def silent_members(result: TrialResult, events: Sequence[Event]) -> list[str]:
    """Return a sentence for each process that is a member of a group, and sends no heartbeats: clients do that in a
    thread of their own.
    """
    ended = {(end.instance, end.run) for end in result.ends} | result.finished
    last = {(one.instance, one.run): one for one in events if one.api in _OF_MEMBERS}
    return [
        f"instance {one.instance} is a member of {', '.join(one.groups)} ({one.api}, request {one.number}), and sent "
        f"no heartbeat in the {result.duration_s - one.at_s:.0f} s after that: its client stands still, or the program "
        "holds up the client's loop"
        for process, one in last.items()
        if process not in ended
        and one.api != "LeaveGroup"
        and one.is_acknowledged
        and result.duration_s - one.at_s > SILENT_S
    ]


def unknown_topics(plan: ProofPlan, events: Sequence[Event]) -> list[str]:
    """Return a sentence about each topic that the program uses and that is none of the plan's."""
    names = dict.fromkeys(name for one in events for name in one.topics if name not in plan.topics)
    return [f"it uses topic {name!r}{meant(name, plan.topics)}" for name in names]


def why_nothing(plan: ProofPlan, events: Sequence[Event]) -> str:
    """Return why a program may have written nothing, to be added to that."""
    if unknown := unknown_topics(plan, events):
        return f": {'; '.join(unknown)}"
    if not any(one.brought_records for one in events):
        return ": it has read no record either; does it begin at the earliest offset (auto.offset.reset)?"
    return (
        ""
        if plan.until_exit
        else f" in {plan.quiet_s:g} s after it had read its input; --quiet S waits longer"
    )
