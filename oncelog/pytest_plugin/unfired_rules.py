"""``--kafka-unfired-rules=error``: a test that passes though a rule of it never fired has tested nothing of that rule.

The rules of a test are those of its markers, and those that it and its fixtures add. Rules of a factory, of the command
line, or of a wider fixture's marker are for many tests, and need not fire in each.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from oncelog.pytest_plugin.settings import ERROR, common_settings

if TYPE_CHECKING:
    from oncelog import RuleState
    from oncelog.pytest_plugin.fixture_brokers import Made


def is_error(config: pytest.Config) -> bool:
    """Whether a rule that never fired fails its test."""
    return common_settings(config).unfired_rules == ERROR


def note(config: pytest.Config, made: Made) -> None:
    """Take the rules that there are for those of no test."""
    if is_error(config):
        made.last_rule = max((state.id for state in _states(made)), default=0)


def check(brokers: Iterable[Made]) -> None:
    """Fail the test that has used these brokers if a rule of it never fired; the message has what the rule saw."""
    lines = [
        f"  {made.name}: {state}"
        for made in brokers
        for state in _states(made)
        if state.id > made.last_rule and not state.fired
    ]
    if lines:
        pytest.fail("rules that never fired:\n" + "\n".join(lines), pytrace=False)


def _states(made: Made) -> list[RuleState]:
    """Return all rules, those that were removed before they had fired, too; none if the broker cannot tell."""
    from oncelog import OncelogError

    states: list[RuleState] = []
    if made.is_observed:
        with suppress(OncelogError):  # the test has closed it
            states = made.broker._call("rules", removed=True)
    return states
