"""Makes docs/reference/control-routes.md of `ROUTES`: ``python -m oncelog.broker.control_http.document``."""

from __future__ import annotations

from typing import Any

from oncelog.broker.control_http.annotations import schema
from oncelog.broker.control_http.calls import signature
from oncelog.broker.control_http.docstrings import description
from oncelog.broker.control_http.routes import ROUTES, Route

HEAD = """\
# Routes of the control API

`make docs` makes this page from `ROUTES` and the operations' signatures and docstrings; a test compares.
`GET /openapi.json` has the types, too; [the control API](../how-to/control-api.md) says how to use the routes.
Arguments with a `?` may be left out. Those of a GET are query parameters, those of a POST fields of a JSON object.

| route | arguments | result | what it does |
|---|---|---|---|
"""


def table() -> str:
    """Return the whole page, as Markdown."""
    return HEAD + "".join(_row(route) for route in ROUTES)


def _row(route: Route) -> str:
    found = signature(route)
    names = [
        f"`{one.name}`" + ("" if one.is_required else "?")
        for one in found.parameters.values()
        if one.name not in route.path_arguments
    ]
    if route.whole_body is not None:
        names = [f"the body: {route.whole_body}"]
    summary = description(route.documented).summary.replace("|", "\\|")
    return f"| `{route.method} {route.path}` | {', '.join(names)} | {_result(route, found.result)} | {summary} |\n"


def _result(route: Route, annotation: Any) -> str:
    if annotation is type(None):
        return ""
    if annotation is bytes or annotation == bytes | None:
        return "bytes"
    text = _shape(schema(annotation, {}))
    return f'{{"{route.result_name}": {text}}}' if route.result_name is not None else text


def _shape(described: dict[str, Any]) -> str:
    """Return a JSON Schema in a few words."""
    if "$ref" in described:
        return str(described["$ref"]).rpartition("/")[2]
    if "anyOf" in described:
        return " or ".join(dict.fromkeys(_shape(one) for one in described["anyOf"]))
    if "enum" in described:
        return " or ".join(f'"{one}"' for one in described["enum"])
    kind = str(described.get("type", "any"))
    return f"[{_shape(described.get('items', {}))}, ...]" if kind == "array" else kind


if __name__ == "__main__":
    print(table(), end="")
