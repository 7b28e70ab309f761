"""Java's .properties format (``java.util.Properties.load``)."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.broker.config.definitions import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


def parse_properties(text: str, path: str = "server.properties") -> Iterator[tuple[str, str, int]]:
    r"""Yield the key, value and line number of each entry of a text.

    ``#`` and ``!`` begin a comment; ``=``, ``:`` or blanks separate key and value; a backslash escapes the next
    character, and at the end of a line it continues the line. Raises ConfigError for a malformed ``\uXXXX``."""
    for line, number in _logical_lines(text):
        key, value = _split(line)
        try:
            yield _unescaped(key), _unescaped(value), number
        except ValueError:
            raise ConfigError(f"{path}:{number}: malformed \\uXXXX escape in {line!r}") from None


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield each logical line with the number of its first line: continued lines are joined, comments and blank lines
    left out."""
    joined, first, continued = "", 0, False
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    for number, natural in enumerate(lines, 1):
        line = natural.lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                continued = False
                continue
            first = number
        joined += line
        continued = (len(joined) - len(joined.rstrip("\\"))) % 2 == 1 and line.endswith("\\")
        if continued:
            joined = joined[:-1]
        else:
            yield joined, first
            joined = ""
    if joined or continued:
        yield joined, first


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:at], rest


def _unescaped(text: str) -> str:
    r"""Return the text with its escapes resolved. Raises ValueError for a ``\u`` without four hexadecimal digits."""
    if "\\" not in text:
        return text
    out, at = [], 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\":
            char = text[at : at + 1]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
                    raise ValueError(text)
                char = chr(int(digits, 16))
                at += 4
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    return "".join(out)
