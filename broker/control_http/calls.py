"""`Signature`: what an operation takes and returns, read from its annotations."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control_http.annotations import expected, from_json, from_query
from oncelog.broker.control_http.hints import type_hints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from oncelog.broker.control_http.routes import Route


@dataclass(frozen=True)
class Parameter:
    """One argument of an operation."""

    name: str
    annotation: Any
    is_required: bool
    default: Any


@dataclass(frozen=True)
class Signature:
    """The arguments of an operation by name, and the annotation of its result."""

    parameters: Mapping[str, Parameter]
    result: Any

    @property
    def waits(self) -> bool:
        """Whether it may wait for long, which its ``timeout`` bounds."""
        return "timeout" in self.parameters


@cache
def signature(route: Route) -> Signature:
    """Return the signature of a route's operation."""
    function = route.documented
    hints = type_hints(function)
    parameters = {
        name: Parameter(name, hints[name], found.default is found.empty, found.default)
        for name, found in inspect.signature(function).parameters.items()
        if found.kind is found.KEYWORD_ONLY
    }
    return Signature(parameters, type_hints(route.function())["return"])


def arguments_of(
    route: Route,
    in_path: Mapping[str, str],
    query: Iterable[tuple[str, str]],
    body: Any,
) -> dict[str, Any]:
    """Return the arguments of the route. ``body`` is the JSON of the request, None without one.

    Raises InvalidArgumentError for the first that is unknown, missing or of another type.
    """
    parameters = signature(route).parameters
    found = {name: from_query(parameters[name].annotation, [text], name) for name, text in in_path.items()}
    texts: dict[str, list[str]] = {}
    for name, text in query:
        texts.setdefault(name, []).append(text)
    if texts and not route.takes_query:
        raise InvalidArgumentError(
            f"{route.method} takes its arguments as a JSON object in the body, not in the query"
        )
    if route.takes_query:
        if body is not None:
            raise InvalidArgumentError(f"{route.method} takes its arguments in the query, not in a body")
        for name, given in texts.items():
            found[name] = from_query(_parameter(parameters, name, in_path).annotation, given, name)
    elif route.whole_body is not None:
        annotation = parameters[route.whole_body].annotation
        words = route.body_words or expected(annotation)
        if body is None:
            raise InvalidArgumentError(f"the body must be the {route.whole_body}, as JSON: {words}")
        found[route.whole_body] = from_json(annotation, body, "the body", words)
    elif body is not None:
        if not isinstance(body, dict):
            raise InvalidArgumentError("the body must be a JSON object of arguments")
        for name, value in body.items():
            found[name] = from_json(_parameter(parameters, name, in_path).annotation, value, name)
    missing = [name for name, one in parameters.items() if one.is_required and name not in found]
    if missing:
        raise InvalidArgumentError(f"{missing[0]} is missing")
    return found


def _parameter(parameters: Mapping[str, Parameter], name: str, in_path: Mapping[str, str]) -> Parameter:
    if name in in_path:
        raise InvalidArgumentError(f"{name} stands in the path already")
    if name not in parameters:
        raise InvalidArgumentError(_unknown(name, [one for one in parameters if one not in in_path]))
    return parameters[name]


def _unknown(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, 1, 0.6)
    meant = f"did you mean {close[0]}?" if close else f"expected {', '.join(known) or 'none'}"
    return f"unknown argument {name}; {meant}"
