"""The API table of the docs, derived from `HANDLERS`: ``python -m oncelog.broker.dispatch.document > docs/apis.md``."""

from __future__ import annotations

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS, Handler

HEAD = """\
# APIs

`make docs` makes this page from `broker/handlers/table.py` and the handlers' docstrings; a test compares. oncelog
serves and advertises no other API. A version is flexible if its request has tagged fields (KIP-482).

| key | API | versions | first flexible version | what it does |
|--:|---|---|--:|---|
"""


def table() -> str:
    """Return the whole page, as Markdown."""
    return HEAD + "".join(_row(handler) for handler in sorted(HANDLERS.values()))


def _row(handler: Handler) -> str:
    api = Api(handler)
    name = api.request.__name__.removesuffix("Request")
    versions = f"{handler.min_version}-{handler.max_version}"
    if handler.announced_min != handler.min_version:
        versions += f" (announced from {handler.announced_min})"
    flexible_from = api.request.FLEXIBLE_VERSIONS[0]
    first_flexible = str(flexible_from) if flexible_from <= handler.max_version else "-"
    return f"| {handler.api_key} | {name} | {versions} | {first_flexible} | {_purpose(api)} |\n"


def _purpose(api: Api) -> str:
    """Return the first sentence of the handler's docstring, without the API's name."""
    text = " ".join((api.documentation or "").split())
    sentence = text.split(". ")[0].rstrip(".")
    before, colon, after = sentence.partition(": ")
    return (after if colon and "API key" in before else "").strip()


if __name__ == "__main__":
    print(table(), end="")
