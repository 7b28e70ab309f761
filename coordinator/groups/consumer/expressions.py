"""Regular expressions that members subscribe by, in RE2's language: no match takes more than linear time (KIP-848).

Kafka uses RE2/J; this is RE2 itself. Where they differ: docs/differences.md. The library is imported with the first
expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

_RE2J_TEXTS = (
    # What RE2 says of an expression -> what RE2/J says, where it is not the same.
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
    """Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
    reason = _ANY_BYTE if _has_any_byte(expression) else _refusal(expression)
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {reason}.",
        )


def matching(expression: str, names: Iterable[str]) -> set[str]:
    """Those names that the expression matches from their beginning to their end: one or two microseconds each."""
    matches = _compiled(expression).fullmatch
    return {name for name in names if matches(name.encode())}


def _compiled(expression: str) -> Any:
    """It matches bytes of UTF-8, which costs half of what text does."""
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
        said = error.args[0]
        text = said.decode() if isinstance(said, bytes) else str(said)
        for begins, means in _RE2J_TEXTS:
            if text.startswith(begins):
                return means
        return text.partition(":")[0]
    return None


def _has_any_byte(expression: str) -> bool:
    r"""Whether it uses ``\C``, one byte of UTF-8, which RE2/J does not know."""
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
