"""Topics that the command line asks for: ``--topic``, ONCELOG_TOPICS, and KAFKA_CREATE_TOPICS of older images."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from oncelog.broker.config.options import Given, UsageError
from oncelog.broker.config.sources import CREATE_TOPICS
from oncelog.broker.control.options import TopicOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

FORM = "NAME[:PARTITIONS[:REPLICAS]][:KEY=VALUE ...]"
_NUMBER = re.compile(r"\d{1,9}")


def topics_of(given: Given) -> dict[str, TopicOptions]:
    """Return the topics by name. Raises UsageError."""
    found: dict[str, TopicOptions] = {}
    for text, origin in _texts(given):
        name, options = _parsed(text, f"{origin} {text}" if origin.startswith("-") else f"{origin}={text}")
        if found.setdefault(name, options) != options:
            raise UsageError(f"{origin}: two topics have the name {name}")
    return found


def _texts(given: Given) -> Iterator[tuple[str, str]]:
    """Yield what was given, and by what. In a variable, topics stand in lines of their own, or with commas."""
    texts, origin = given.texts("topic")
    if given.options.topic:
        yield from ((text, origin) for text in texts)
        return
    lines_of = {origin: "\n".join(texts), CREATE_TOPICS: given.environment.get(CREATE_TOPICS, "")}
    for variable, lines in lines_of.items():
        yield from ((text.strip(), variable) for text in re.split(r"[,\n]", lines) if text.strip())


def _parsed(text: str, what: str) -> tuple[str, TopicOptions]:
    name, *parts = text.split(":")
    numbers: list[int] = []
    config: dict[str, str] = {}
    for part in parts:
        key, is_set, value = part.partition("=")
        if is_set:
            config[key.strip()] = value.strip()
        elif _NUMBER.fullmatch(part) and len(numbers) < 2 and not config:
            numbers.append(int(part))
        elif part in ("compact", "delete"):
            config["cleanup.policy"] = part
        else:
            raise UsageError(f"{what}: expected {FORM}")
    if not name or 0 in numbers:
        raise UsageError(f"{what}: expected {FORM}")
    partitions, replicas = [*numbers, -1, -1][:2]
    return name, TopicOptions(partitions, config, replicas)
