"""The API table in the docs is what the handlers are."""

from __future__ import annotations

from pathlib import Path

from oncelog.broker.dispatch.api import Api
from oncelog.broker.dispatch.apis_page import table
from oncelog.broker.handlers.table import HANDLERS

APIS_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "apis.md"


def test_the_page_is_up_to_date() -> None:
    assert APIS_PAGE.read_text() == table(), "run `make docs`"


def test_every_handler_says_what_it_does() -> None:
    for row in HANDLERS.values():
        documentation = Api(row).documentation or ""
        name = Api(row).request.__name__.removesuffix("Request")
        assert documentation.startswith(f"{name} (API key {row.api_key}): "), row.name
