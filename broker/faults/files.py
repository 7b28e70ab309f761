"""Rules in a file: JSON, TOML, or YAML where PyYAML is installed (the extra ``yaml``).

The rules are a list under ``rules``; their words are those of `oncelog.broker.faults.rule`. An error names the file,
the line and the word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from oncelog.broker.faults.rule import NO_LIMITS, Rule, TargetLimits, check_possible, parse_rule
from oncelog.broker.faults.words import RuleError, suggestion
from oncelog.broker.seams.extras import install_command

RULES = "rules"
FILE_WORDS = (RULES, "$schema")
"""The words of a file: its rules, and for editors the place of their schema."""

Lines = list[tuple[int, dict[str, int]]]
"""For each rule, the line where it begins, and the lines of its words."""


class RuleFileError(ValueError):
    """A file of rules that makes no sense; the message names the file and, as far as it is known, the line."""


def load_rules(text: str, name: str, limits: TargetLimits = NO_LIMITS) -> list[Rule]:
    """Return the rules in the text of a file, whose suffix says its format. Raises RuleFileError, also for a rule that
    `check_possible` refuses.
    """
    suffix = name.rpartition(".")[2].lower()
    if suffix not in _FORMATS:
        raise RuleFileError(f"{name}: a file of rules ends in .json, .toml, .yaml or .yml")
    data, lines_of = _FORMATS[suffix](text, name)
    if not isinstance(data, dict) or not isinstance(data.get(RULES), list):
        raise RuleFileError(f'{name}: the rules are a list under "{RULES}"')
    for word in data:
        if word not in FILE_WORDS:
            raise RuleFileError(f"{name}: unknown word {word!r}{suggestion(str(word), FILE_WORDS)}")
    rules = []
    for index, rule in enumerate(data[RULES]):
        try:
            rules.append(parse_rule(rule))
            check_possible(rules[-1], limits)
        except RuleError as error:
            lines = lines_of()
            first, words = lines[index] if index < len(lines) else (0, {})
            line = words.get(error.word or "", first)
            where = f", line {line}" if line else ""
            raise RuleFileError(f"{name}{where}, rule {index + 1}: {error}") from error
    return rules


# -- JSON


def _json(text: str, name: str) -> tuple[Any, Callable[[], Lines]]:
    try:
        return json.loads(text, object_pairs_hook=_without_repetition), lambda: _json_lines(text)
    except json.JSONDecodeError as error:
        raise RuleFileError(f"{name}, line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (RuleError, RecursionError) as error:
        raise RuleFileError(f"{name}: {error}") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word, value in pairs:
        if word in found:
            raise RuleError(f"{word!r} stands twice in one table")
        found[word] = value
    return found


def _json_lines(text: str) -> Lines:
    """Find the lines of rules and words in a file of valid JSON."""
    decode = json.JSONDecoder().raw_decode

    def skip(at: int, marks: str) -> int:
        while text[at] in " \t\r\n" or text[at] in marks:
            at += 1
        return at

    def words(at: int) -> Any:
        """Give each word of the table at this place, with the places of word and value."""
        at = skip(at, "") + 1
        while text[at := skip(at, ",")] != "}":
            word, end = decode(text, at)
            value_at = skip(end, ":")
            yield word, at, value_at
            at = decode(text, value_at)[1]

    lines: Lines = []
    for word, _, at in words(0):
        if word == RULES:
            at += 1
            while text[at := skip(at, ",")] != "]":
                places = words(at) if text[at] == "{" else ()
                lines.append((_line(text, at), {inner: _line(text, place) for inner, place, _ in places}))
                at = decode(text, at)[1]
    return lines


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


# -- TOML

_TOML_RULE = re.compile(rf"\s*\[\[\s*{RULES}\s*\]\]")
_TOML_WORD = re.compile(r"""\s*["']?([\w$]+)["']?\s*=""")


def _toml(text: str, name: str) -> tuple[Any, Callable[[], Lines]]:
    import tomllib

    try:
        return tomllib.loads(text), lambda: _toml_lines(text)
    except tomllib.TOMLDecodeError as error:
        raise RuleFileError(f"{name}: {error}") from error


def _toml_lines(text: str) -> Lines:
    """Find the ``[[rules]]`` and their words; none are found where the rules are written as one inline list."""
    lines: Lines = []
    for number, line in enumerate(text.splitlines(), 1):
        if _TOML_RULE.match(line):
            lines.append((number, {}))
        elif lines and (word := _TOML_WORD.match(line)):
            lines[-1][1].setdefault(word[1], number)
    return lines


# -- YAML


def _yaml(text: str, name: str) -> tuple[Any, Callable[[], Lines]]:
    try:
        import yaml
    except ImportError as error:
        raise RuleFileError(f"{name}: YAML needs PyYAML: {install_command('yaml')}") from error

    boolean = "tag:yaml.org,2002:bool"

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Reads ``on`` as a word, as YAML 1.2 does. PyYAML follows 1.1, where it means true."""

        yaml_implicit_resolvers = {  # noqa: RUF012
            first: [(tag, pattern) for tag, pattern in resolvers if tag != boolean]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    Loader.add_implicit_resolver(boolean, re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
    try:
        return yaml.load(text, Loader), lambda: _yaml_lines(yaml.compose(text, Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise RuleFileError(f"{name}{where}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise RuleFileError(f"{name}: {error}") from error


def _yaml_lines(document: Any) -> Lines:
    lines: Lines = []
    for word, value in document.value:
        if word.value == RULES:
            for rule in value.value:
                words = rule.value if rule.id == "mapping" else []
                places = {key.value: key.start_mark.line + 1 for key, _ in words}
                lines.append((rule.start_mark.line + 1, places))
    return lines


_FORMATS: dict[str, Callable[[str, str], tuple[Any, Callable[[], Lines]]]] = {
    "json": _json,
    "toml": _toml,
    "yaml": _yaml,
    "yml": _yaml,
}
