"""Checks that the filters and the action of a rule are possible for its APIs."""

from __future__ import annotations

import sys
from typing import Any

from oncelog.broker.faults.rule import ONLY_FOR, Rule
from oncelog.broker.faults.words import RuleError
from oncelog.broker.handlers.table import BY_NAME, ApiRow, api_name
from oncelog.broker.refusal.error_response import error_fields_of
from oncelog.broker.refusal.rows import FACTS, depths_of


def check_apis(rule: Rule) -> None:
    """Raises RuleError where one of the rule's APIs has no such version, names no such thing, or cannot take the
    action.
    """
    for name in sorted(rule.apis or ()):
        row = BY_NAME[name]
        versions = [
            version
            for version in range(row.min_version, row.max_version + 1)
            if version in rule.filters.get("version", (version,))
        ]
        if not versions:
            raise RuleError(
                f"{api_name(name)} is served in versions {row.min_version} to {row.max_version}",
                "version",
            )
        _check_filters(rule, row, versions)
        _check_action_of_api(rule, row, versions)


def messages_of(name: str) -> tuple[Any, Any]:
    """Return the classes of an API's request and response."""
    module = f"oncelog.wire.messages.{name}"
    __import__(module)
    messages = sys.modules[module]
    return getattr(messages, api_name(name) + "Request"), getattr(messages, api_name(name) + "Response")


def _check_filters(rule: Rule, row: ApiRow, versions: list[int]) -> None:
    request, _ = messages_of(row.name)
    named = {fact for version in versions for fact in depths_of(row.name, request, version)}
    for fact in FACTS:
        if fact in rule.filters and fact not in named:
            others = [one for one in FACTS if one in named] + ["client_id", "version", "listener"]
            raise RuleError(
                f"{api_name(row.name)} names no {fact.replace('_', ' ')}: filter it by {', '.join(others)}",
                fact,
            )


def _check_action_of_api(rule: Rule, row: ApiRow, versions: list[int]) -> None:
    name = api_name(row.name)
    request, response = messages_of(row.name)
    if rule.action == "error" and not any(
        error_fields_of(row.name, request, response, version).depth(0) is not None for version in versions
    ):
        raise RuleError(f"{name} responses of these versions have no place for an error", "error")
    allowed = ONLY_FOR.get(rule.action)
    if allowed is not None and row.name not in allowed:
        raise RuleError(
            f"{rule.action} is only for {', '.join(map(api_name, allowed))}, not for {name}", rule.action
        )
    if rule.action == "throttle_ms" and not any(
        field.name == "throttle_time_ms" for field in response.FIELDS
    ):
        raise RuleError(f"{name} responses have no throttle_time_ms: use delay_ms", "throttle_ms")
