"""The JSON schema of a file of rules. ``docs/reference/faults.schema.json`` is what `rules_schema` returns; a test
compares them.

python -m oncelog.broker.faults.schema      writes it to standard output
"""

from __future__ import annotations

import json
from typing import Any

from oncelog.broker.faults.rule import ACTIONS, COUNTS
from oncelog.broker.faults.words import EVERY_API, LOGIN_APIS, WORDS
from oncelog.broker.handlers.table import api_names
from oncelog.wire.errors import ErrorCode


def rules_schema() -> dict[str, Any]:
    """Return the schema, in the words of JSON schema 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Fault rules of oncelog",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "rules": {"type": "array", "items": rule_schema()},
        },
        "required": ["rules"],
        "additionalProperties": False,
    }


def rule_schema() -> dict[str, Any]:
    """Return the schema of one rule."""
    api: dict[str, Any] = {"enum": sorted(set(api_names()) - set(LOGIN_APIS))}
    values: dict[str, Any] = {
        "on": {"oneOf": [{"const": EVERY_API}, api, {"type": "array", "items": api, "minItems": 1}]},
        "error": {"enum": sorted(name for name in ErrorCode.__members__ if name != "NONE")},
    }
    return {
        "type": "object",
        "properties": {
            name: {"description": word.text, **(word.schema or values[name])} for name, word in WORDS.items()
        },
        "additionalProperties": False,
        "oneOf": [
            {"required": ["on", name]} if WORDS[name].filters is None else {"required": [name]}
            for name in ACTIONS
        ],
        "allOf": [
            {"not": {"required": [one, other]}} for at, one in enumerate(COUNTS) for other in COUNTS[at + 1 :]
        ],
        "dependentRequired": {
            "seed": ["with_probability"],
            "topic_exists": ["topic"],
            "pause": ["client_id"],
        },
    }


if __name__ == "__main__":
    print(json.dumps(rules_schema(), indent=1))
