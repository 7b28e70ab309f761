"""The name of a peer by its certificate: written as Java writes it, and mapped by ``ssl.principal.mapping.rules``.

Source: ``X500Principal.getName``, ``DefaultKafkaPrincipalBuilder``, ``SslPrincipalMapper``.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.logging.reasons import Reason

if TYPE_CHECKING:
    from cryptography.x509 import Name, NameAttribute

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""Attribute types that have a name in RFC 2253; others are written as numbers, with their value in hex."""
_ESCAPED = frozenset(',=+<>#;"\\')

_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


def distinguished_name(name: Name) -> str:
    """Return a name as RFC 2253 has it, in Java's spelling: ``CN=app,OU=tests,O=Example``."""
    return ",".join("+".join(map(_attribute, part)) for part in reversed(list(name.rdns)))


def _attribute(attribute: NameAttribute[str | bytes]) -> str:
    keyword = KEYWORDS.get(attribute.oid.dotted_string)
    value = attribute.value
    if keyword is None or not isinstance(value, str):
        return f"{attribute.oid.dotted_string}=#{_der(attribute).hex()}"
    text = "".join(f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char for char in value)
    return f"{keyword}={_with_escaped_ends(text)}"


def _with_escaped_ends(text: str) -> str:
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - before - len(inner) if inner else 0
    return "\\ " * before + inner + "\\ " * after


def _der(attribute: NameAttribute[str | bytes]) -> bytes:
    value = attribute.value
    content = (
        value if isinstance(value, bytes) else value.encode(_ENCODINGS.get(attribute._type.name, "utf-8"))
    )
    size = len(content)
    head = bytes([size]) if size < 0x80 else _long_size(size)
    return bytes([attribute._type.value]) + head + content


_ENCODINGS = {"BMPString": "utf-16-be", "UniversalString": "utf-32-be", "T61String": "latin-1"}


def _long_size(size: int) -> bytes:
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(digits)]) + digits


class Rule(NamedTuple):
    """One rule; ``pattern`` None is DEFAULT: the name as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


class NoMatchingRule(Exception):  # noqa: N818 - Kafka's name for it
    """No rule applies to the name of a peer, which is refused."""

    def __init__(self, name: str) -> None:
        self.reason = Reason("no rule of ssl.principal.mapping.rules applies to {}", name)
        super().__init__(self.reason)


class PrincipalMapper:
    """``ssl.principal.mapping.rules``. Raises ValueError for rules that cannot be read."""

    def __init__(self, rules: str) -> None:
        self._rules = list(_parse(rules.strip()))

    def name(self, distinguished_name: str) -> str:
        """Return the name after the first rule that matches it. Raises NoMatchingRule."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return distinguished_name
            if pattern.fullmatch(distinguished_name):
                # Every match is replaced, as Java's replaceAll does: `.*` matches once more at the end.
                mapped = pattern.sub(partial(_replaced, replacement), distinguished_name)
                return mapped.lower() if case == "L" else mapped.upper() if case == "U" else mapped
        raise NoMatchingRule(distinguished_name)


def _parse(text: str) -> list[Rule]:
    rules = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        rest = text[position:]
        if found is None:
            raise ValueError(f"Invalid rule: {rest.partition(',')[0]}")
        end = found.end()
        after = re.compile(r"\s*(,\s*|$)").match(text, end)
        if after is None:
            raise ValueError(f"Invalid rule: {rest}, unmatched substring: {text[end:]}")
        if found[1]:
            rules.append(Rule(None))
        else:
            try:
                rules.append(Rule(re.compile(found[2]), found[3], found[4]))
            except re.error as error:
                raise ValueError(f"Invalid rule: {found[0]}: {error}") from None
        position = after.end()
    return rules


def _replaced(replacement: str, found: re.Match[str]) -> str:
    return _REFERENCE.sub(lambda reference: _expand(reference, found), replacement)


def _expand(reference: re.Match[str], found: re.Match[str]) -> str:
    r"""Return what a part of a replacement stands for: ``$1`` a group, ``\x`` the character x. A number that no group
    has is cut from its end until one has it; else it stays as text.
    """
    if reference[1] is not None:
        return reference[1]
    digits = reference[2]
    for size in range(len(digits), 0, -1):
        if int(digits[:size]) <= found.re.groups:
            return (found[int(digits[:size])] or "") + digits[size:]
    return "$" + digits
