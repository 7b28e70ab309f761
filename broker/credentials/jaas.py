"""JAAS text: ``MODULE required key="value" …;`` as in ``sasl.jaas.config``. Source: ``JaasConfig``."""

from __future__ import annotations

import re
from typing import NamedTuple

from oncelog.broker.credentials.scram import SCRAM_MECHANISMS

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
_PACKAGE = "org.apache.kafka.common.security"
OAUTH_PACKAGE = f"{_PACKAGE}.oauthbearer"
LOGIN_MODULES = {
    PLAIN: f"{_PACKAGE}.plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_MECHANISMS, f"{_PACKAGE}.scram.ScramLoginModule"),
    OAUTHBEARER: f"{OAUTH_PACKAGE}.OAuthBearerLoginModule",
}
"""By mechanism: the login module that its JAAS text names."""

FLAGS = ("required", "requisite", "sufficient", "optional")

_TOKEN = re.compile(
    r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s="';]+)|(["']))|\s+""", re.DOTALL
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class JaasError(ValueError):
    """The text is malformed. The message quotes no value: it may be a password."""


class LoginModule(NamedTuple):
    """One entry: the class of the module, and its options."""

    name: str
    options: dict[str, str]


def parse(text: str) -> LoginModule:
    """Return the one login module of a text. Raises JaasError."""
    tokens = list(_tokens(text))
    if not tokens:
        raise JaasError("JAAS config property does not contain any login modules")
    name = tokens[0][0]
    if len(tokens) < 2 or tokens[1][0].lower() not in FLAGS:
        raise JaasError(f"expected MODULE and then one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and tokens[position] != (";", True):
        if position + 2 >= len(tokens) or tokens[position + 1] != ("=", True) or tokens[position + 2][1]:
            raise JaasError(f'option {len(options) + 1} of {name}: expected key="value"')
        options[tokens[position][0]] = tokens[position + 2][0]
        position += 3
    if position == len(tokens):
        raise JaasError("JAAS config entry not terminated by semi-colon")
    if position + 1 < len(tokens):
        raise JaasError("JAAS config property contains more than one login module, should be 1 module")
    return LoginModule(name, options)


def options_of(mechanism: str, text: str) -> dict[str, str]:
    """Return the options in the text of a mechanism's login module. Raises JaasError."""
    module = parse(text)
    if module.name != LOGIN_MODULES[mechanism]:
        raise JaasError(f"the login module of {mechanism} is {LOGIN_MODULES[mechanism]}")
    return module.options


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return the words of a text, and whether each is ``=`` or ``;`` outside of quotes."""
    found = []
    for match in _TOKEN.finditer(text):
        double, single, mark, word, lonely = match.groups()
        if lonely:
            raise JaasError("a quoted value has no end")
        if mark:
            found.append((mark, True))
        elif word is not None:
            found.append((word, False))
        elif double is not None or single is not None:
            found.append((_ESCAPE.sub(r"\1", double if double is not None else single), False))
    return found
