r"""`RegularExpression`: a client's regular expression, of which neither the compilation nor a match takes long.

RE2 matches in linear time, and Kafka uses RE2/J; docs/reference/differences.md lists the differences. But RE2 bounds
only the program: a Unicode class of three bytes (``\pL``) is parsed into hundreds of ranges, and a counted repetition
into as many copies. So the text is bounded before it is compiled. The library is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

EXPRESSION_BYTES_MAX = 8192
"""Bytes of an expression in UTF-8."""
COSTLY_PARTS_MAX = 50
"""Unicode classes and counted repetitions of an expression: to compile all takes up to 0.05 s."""
PROGRAM_BYTES_MAX = 256 * 1024
"""Bytes of memory of a compiled expression, and of the states that RE2 remembers while it matches."""
MATCH_WORK_MAX = 3_000_000
"""Instructions of the program times bytes of the text, of one match: at worst 0.05 s."""
WORK_PER_STEP = 500
"""The work of one step of `steps_of`, about 10 microseconds at worst."""

_COSTLY_PARTS = ("\\p", "\\P", "{")
_COSTLY_WORK = 10_000
_BYTE_WORK = 100


class ExpressionError(Exception):
    """The expression is none of RE2's, or too large. The text says why."""


class RegularExpression:
    """``text``, compiled. It holds up to `PROGRAM_BYTES_MAX` bytes. Raises ExpressionError."""

    __slots__ = ("_fullmatch", "compile_work", "program_size")

    def __init__(self, text: str) -> None:
        self.compile_work = compile_work(text)
        """The work that its compilation took, for `steps_of`."""
        import re2  # type: ignore[import-untyped]

        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = PROGRAM_BYTES_MAX
        try:
            # For texts in UTF-8: matching bytes takes half as long as matching text.
            compiled: Any = re2.compile(text.encode(), options)
        except (re2.error, UnicodeError) as error:
            reason = error.args[0]
            raise ExpressionError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
        finally:
            re2.purge()  # else it would keep the last 128 expressions, whoever has sent them
        self.program_size: int = compiled.programsize
        """Instructions of the program."""
        self._fullmatch = compiled.fullmatch

    def work(self, text: str) -> int:
        """Return the work of matching a text, at worst."""
        return (len(text) + 1) * self.program_size

    def matches(self, text: str) -> bool:
        """Return whether it matches the text as a whole. Raises ExpressionError for a text that would take too long."""
        if self.work(text) > MATCH_WORK_MAX:
            raise ExpressionError(f"it is too large for a text of {len(text)} characters")
        return self._fullmatch(text.encode(errors="surrogatepass")) is not None


def steps_of(work: int) -> Iterator[None]:
    """Yield as often as the work would have steps of equal length: for who counts steps between two turns."""
    for _ in range(work // WORK_PER_STEP):
        yield


def compile_work(text: str) -> int:
    """Return the work of compiling an expression, or several. Raises ExpressionError for more than one may take."""
    size = len(text.encode(errors="surrogatepass"))
    if size > EXPRESSION_BYTES_MAX:
        raise ExpressionError(f"it has {size} bytes, the limit is {EXPRESSION_BYTES_MAX}")
    costly = sum(map(text.count, _COSTLY_PARTS))
    if costly > COSTLY_PARTS_MAX:
        raise ExpressionError(
            f"it has {costly} Unicode classes and counted repetitions, the limit is {COSTLY_PARTS_MAX}"
        )
    return size * _BYTE_WORK + costly * _COSTLY_WORK
