"""docs/reference/testing-reference.md is current."""

from pathlib import Path

import oncelog
from tests.embedded.reference_page import page


def test_the_page_is_current() -> None:
    found = Path(__file__).parents[2] / "docs" / "reference" / "testing-reference.md"
    assert found.read_text() == page(), "make docs"


def test_the_page_has_every_public_class_that_a_test_meets() -> None:
    """What is missing is for programs around the kit, or a name that only type checkers see."""
    of_proxies = {"CloseConnection", "Interceptor", "PassingRecord", "RecordFilter", "RequestContext"}
    text = page()
    kinds = {name for name in oncelog.__all__ if isinstance(getattr(oncelog, name), type)}
    missing = {name for name in kinds if name not in text and not name.startswith("Async")}
    assert missing <= of_proxies | {"ErrorCode"}
