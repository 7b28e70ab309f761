"""Checks the regular expressions of subscriptions (KIP-848), and tells errors in RE2/J's words."""

from __future__ import annotations

from oncelog.coordinator.regular_expressions import ExpressionError, RegularExpression
from oncelog.wire.errors import ErrorCode, KafkaError

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


def _refusal(expression: str) -> str | None:
    try:
        RegularExpression(expression)
    except ExpressionError as error:
        text = str(error)
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
