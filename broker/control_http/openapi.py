"""`openapi`: the OpenAPI 3.1 description of the control API, made from `ROUTES` and the operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncelog.broker.control_http.annotations import schema, to_json
from oncelog.broker.control_http.calls import Parameter, signature
from oncelog.broker.control_http.docstrings import description
from oncelog.broker.control_http.failures import STATUS_OF_ERROR
from oncelog.broker.control_http.routes import Route

ERROR_SCHEMA = {
    "type": "object",
    "description": "What was wrong. Nothing was changed, unless the message says so.",
    "properties": {
        "error": {"type": "string", "description": "The kind of error, by which programs tell them apart."},
        "message": {"type": "string", "description": "What is wrong, and what to do."},
        "code": {"type": "integer", "description": "Kafka's error code; only of a KafkaError."},
        "name": {"type": "string", "description": "Kafka's name of that code; only of a KafkaError."},
    },
    "required": ["error", "message"],
}


def openapi(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """Return the description as JSON. ``version`` is oncelog's."""
    components: dict[str, Any] = {"Error": ERROR_SCHEMA}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "oncelog control API",
            "version": version,
            "summary": "Starts, stops, reads, moves in time and breaks a broker for tests.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    found, about = signature(route), description(route.documented)
    in_body = [
        one
        for name, one in found.parameters.items()
        if name not in route.path_arguments and not route.takes_query
    ]
    described: dict[str, Any] = {
        "operationId": route.operation,
        "summary": about.summary,
        "description": about.text,
        "tags": [route.path.split("/")[1]],
        "responses": _responses(route, components),
    }
    in_url = [one for one in found.parameters.values() if one not in in_body]
    if in_url:
        described["parameters"] = [_parameter(one, route, components) for one in in_url]
    if in_body:
        described["requestBody"] = {
            "required": any(one.is_required for one in in_body),
            "content": {"application/json": {"schema": _body(in_body, route, components)}},
        }
    return described


def _parameter(parameter: Parameter, route: Route, components: dict[str, Any]) -> dict[str, Any]:
    in_path = parameter.name in route.path_arguments
    return {
        "name": parameter.name,
        "in": "path" if in_path else "query",
        "required": in_path or parameter.is_required,
        "schema": _with_default(parameter, components),
    }


def _body(parameters: list[Parameter], route: Route, components: dict[str, Any]) -> dict[str, Any]:
    if route.body_schema is not None:
        return route.body_schema()
    if route.whole_body is not None:
        return schema(parameters[0].annotation, components)
    required = [one.name for one in parameters if one.is_required]
    return {
        "type": "object",
        "properties": {one.name: _with_default(one, components) for one in parameters},
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _with_default(parameter: Parameter, components: dict[str, Any]) -> dict[str, Any]:
    described = schema(parameter.annotation, components)
    if not parameter.is_required and parameter.default is not None:
        described["default"] = to_json(parameter.default)
    return described


def _responses(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    result = signature(route).result
    responses: dict[str, Any] = {}
    if result is type(None):
        responses["204"] = {"description": "Done."}
    elif result is bytes or result == bytes | None:
        if result is not bytes:
            responses["204"] = {"description": "Done, without a result."}
        content: dict[str, Any] = {"application/octet-stream": {}}
        responses["200"] = {"description": "Done.", "content": content}
    else:
        body = schema(result, components)
        if route.result_name is not None:
            properties = {route.result_name: body}
            body = {"type": "object", "properties": properties, "required": [route.result_name]}
        responses["200"] = {"description": "Done.", "content": {"application/json": {"schema": body}}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    kinds: dict[int, list[str]] = {}
    for kind, status in STATUS_OF_ERROR.items():
        kinds.setdefault(status, []).append(kind.__name__)
    for status, names in sorted(kinds.items()):
        responses[str(status)] = {"description": ", ".join(names), "content": error}
    return responses
