"""Every operation can be reached over HTTP, and is described."""

from collections import Counter
from pathlib import Path

import pytest
from openapi_spec_validator import validate

from oncelog.broker.control.operations import MODULES
from oncelog.broker.control_http.calls import signature
from oncelog.broker.control_http.document import table
from oncelog.broker.control_http.openapi import openapi
from oncelog.broker.control_http.routes import ROUTES, Route

NOT_OVER_HTTP: dict[str, str] = {}
"""Operation -> why it has no route."""


def test_every_operation_has_a_route() -> None:
    assert {route.operation for route in ROUTES} | NOT_OVER_HTTP.keys() == MODULES.keys(), (
        "one line in broker/control_http/routes.py for each operation"
    )


def test_no_two_routes_are_the_same() -> None:
    assert max(Counter((route.method, route.path) for route in ROUTES).values()) == 1
    assert max(Counter(route.operation for route in ROUTES).values()) == 1


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_fits_its_operation(route: Route) -> None:
    parameters = signature(route).parameters
    assert set(route.path_arguments) <= parameters.keys()
    others = parameters.keys() - set(route.path_arguments)
    if route.whole_body is not None:
        assert others == {route.whole_body}
    assert route.function().__doc__


@pytest.mark.slow
def test_the_description_is_valid() -> None:
    described = openapi(ROUTES, "1.2.3")
    validate(described)
    assert len({one["operationId"] for path in described["paths"].values() for one in path.values()}) == len(
        ROUTES
    )


def test_the_description_says_what_an_operation_takes_and_returns() -> None:
    described = openapi(ROUTES, "1.2.3")
    records = described["paths"]["/topics/{topic}/records"]["get"]
    assert records["summary"] == "Return a topic's records by partition and offset"
    assert {one["name"]: (one["in"], one["required"], one["schema"]) for one in records["parameters"]} == {
        "topic": ("path", True, {"type": "string"}),
        "isolation": (
            "query",
            False,
            {"enum": ["read_committed", "read_uncommitted"], "default": "read_uncommitted"},
        ),
        "partition": ("query", False, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        "from_offset": ("query", False, {"type": "integer", "default": 0}),
        "limit": ("query", False, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    }
    assert records["responses"]["200"]["content"]["application/json"]["schema"] == {
        "type": "array",
        "items": {"$ref": "#/components/schemas/Record"},
    }
    rule = described["paths"]["/faults"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "drop_response" in rule["properties"]
    record = described["components"]["schemas"]["Record"]["properties"]
    assert record["value"]["description"] == "None: a tombstone."
    assert described["paths"]["/broker/kill"]["post"]["responses"]["204"] == {"description": "Done."}


def test_the_page_of_routes_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "control-routes.md"
    assert page.read_text() == table(), "make docs"
