"""Operations: fault rules (`oncelog.broker.faults`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.broker.control.changes import check_timeout
from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError, WaitTimeoutError
from oncelog.broker.faults import files
from oncelog.broker.faults.fault_rules import RULES_MAX, RuleTimeoutError, UnknownRuleError
from oncelog.broker.faults.words import RuleError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.control.controlled import Controlled
    from oncelog.broker.faults.state import RuleState


async def add_rule(broker: Controlled, *, rule: Mapping[str, Any]) -> int:
    """Add a rule; return its id. Raises InvalidArgumentError, which names the word that makes no sense."""
    all_topics_known = await broker.prepare_rules()
    try:
        return broker.faults.add(rule, topics_must_exist=all_topics_known)
    except RuleError as error:
        raise InvalidArgumentError(str(error)) from error


async def load_rules(broker: Controlled, *, text: str, name: str) -> list[int]:
    """Add the rules of a file, given its text and its name; return their ids. All are added, or none.

    Raises InvalidArgumentError, which names file, line and word.
    """
    try:
        loaded = files.load_rules(text, name, broker.faults.limits)
    except files.RuleFileError as error:
        raise InvalidArgumentError(str(error)) from error
    if len(broker.faults.states) + len(loaded) > RULES_MAX:
        raise InvalidArgumentError(f"{name}: a broker has {RULES_MAX} rules at most")
    return [broker.faults.add(rule) for rule in loaded]


async def rules(broker: Controlled, *, removed: bool = False) -> list[RuleState]:
    """Return the states of all rules, in the order of their addition. ``removed``: after those that were
    removed before they had fired.
    """
    return [*broker.faults.removed, *broker.faults.states] if removed else broker.faults.states


async def wait_fired(broker: Controlled, *, rule_id: int, times: int = 1, timeout: float = 10) -> RuleState:
    """Wait until a rule has fired so many times. ``timeout``: seconds. Raises WaitTimeoutError, NotFoundError."""
    check_timeout(timeout)
    if not isinstance(times, int) or isinstance(times, bool) or times < 1:
        raise InvalidArgumentError(f"times is a number from 1 on, not {times!r}")
    try:
        return await broker.faults.wait_fired(rule_id, times, timeout)
    except RuleTimeoutError as error:
        raise WaitTimeoutError(str(error)) from None
    except UnknownRuleError as error:
        raise NotFoundError(str(error)) from error


async def release(broker: Controlled, *, rule_id: int) -> None:
    """Let the requests go that a rule holds, and hold no more. Raises NotFoundError."""
    try:
        broker.faults.release(rule_id)
    except UnknownRuleError as error:
        raise NotFoundError(str(error)) from error


async def remove_rule(broker: Controlled, *, rule_id: int) -> None:
    """Remove a rule; release the requests that it holds. Raises NotFoundError."""
    try:
        broker.faults.remove(rule_id)
    except UnknownRuleError as error:
        raise NotFoundError(str(error)) from error


async def clear_rules(broker: Controlled) -> None:
    """Remove all rules; release the requests that they hold."""
    broker.faults.clear()
