"""Compiles and matches the regular expressions of subscriptions with RE2, in linear time (KIP-848).

Kafka uses RE2/J; docs/differences.md lists the differences. The library is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

_RE2J_TEXTS = (
    # RE2's message -> RE2/J's message, where they differ.
    ("missing )", "missing closing )"),
    ("missing ]", "missing closing ]"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid repetition size", "invalid repeat count"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("invalid named capture group", "invalid named capture"),
    ("unexpected )", "regexp/syntax: internal error"),
)
_ANY_BYTE = "invalid escape sequence"


def check(expression: str) -> None:
    """Raise KafkaError (INVALID_REGULAR_EXPRESSION) where RE2/J would refuse the expression."""
    reason = _ANY_BYTE if _has_any_byte(expression) else _refusal(expression)
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {reason}.",
        )


def matching(expression: str, names: Iterable[str]) -> set[str]:
    """The names that the expression matches as a whole; takes one or two microseconds for each name."""
    matches = _compiled(expression).fullmatch
    return {name for name in names if matches(name.encode())}


def _compiled(expression: str) -> Any:
    """The compiled expression, for names in UTF-8: matching bytes takes half as long as matching text."""
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return re2.compile(expression.encode(), options)


def _refusal(expression: str) -> str | None:
    import re2

    try:
        _compiled(expression)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0]
        text = reason.decode() if isinstance(reason, bytes) else str(reason)
        for prefix, re2j_text in _RE2J_TEXTS:
            if text.startswith(prefix):
                return re2j_text
        return text.partition(":")[0]
    return None


def _has_any_byte(expression: str) -> bool:
    r"""Whether it uses ``\C`` (one byte of UTF-8), which RE2/J refuses."""
    at = 0
    while (at := expression.find("\\", at)) != -1:
        if expression.startswith("\\Q", at):
            end = expression.find("\\E", at)
            if end == -1:
                return False
            at = end
        elif expression.startswith("\\C", at):
            return True
        at += 2
    return False
