"""Makes ``oncelog/messages.py`` and ``docs/reference/messages.md`` of the declarations of messages:
``python -m tests.filters.messages_page module > oncelog/messages.py``, and ``page > docs/reference/messages.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS, UNSTABLE_VERSIONS, api_name
from oncelog.wire.compiler import NEW
from oncelog.wire.schema import Field, Message, Struct

LINE_MAX = 110
"""Of the formatter."""
MODULE = '''\
"""The requests and responses of Kafka's APIs, for filters: ``ProduceRequest``, and ``produce.TopicProduceData`` for a
row of it. docs/reference/messages.md lists their fields.

`make docs` makes this module of `oncelog.wire.messages`. Its names are imported with their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
{imports}
__all__ = [
{names}]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'oncelog.messages' has no attribute {{name!r}}")
        from importlib import import_module

        from oncelog.broker.handlers.table import api_names

        api = name.removesuffix("Request").removesuffix("Response")
        module = import_module(f"oncelog.wire.messages.{{api_names().get(api, name)}}")
        value = globals()[name] = getattr(module, name, module)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
'''

PAGE = """\
# Fields of requests and responses

`context.request` of a [filter](../how-to/proxy.md#filters-of-your-own), and the response, are messages of this page.
Their classes are in the module `oncelog.messages`; those of rows are in a module for each API there, such as
`TopicProduceData` in `oncelog.messages.produce`. Fields have Kafka's names in snake case;
[Kafka's protocol guide](https://kafka.apache.org/protocol) says what they mean. `make docs` makes this page from the
declarations, and a test compares.

| type here | in Python |
|---|---|
| int8 to int64, uint16, uint32, float64, bool | `int`, `float`, `bool` |
| string, bytes | `str`, `bytes` |
| uuid | 16 `bytes`; `topic_name` of a filter gives the name of a topic |
| records | record batches: bytes-like, or None. `oncelog.RecordFilter` shows them one by one |
| list of | `list` |
| or null | may be None |

A field without versions is in all versions of its message. In the others it has its default, which is 0, False, "", an
empty list, null, or as told, and must keep it, unless *ignorable* is said. *tagged*: a tagged field (KIP-482).
"""


class Served(NamedTuple):
    """An API, and its messages in the versions that are served."""

    api: Api
    name: str
    module: str
    versions: tuple[int, int]


def served() -> Iterator[Served]:
    """Yield the APIs by key."""
    for key, handler in sorted(HANDLERS.items()):
        high = max(handler.max_version, UNSTABLE_VERSIONS.get(key, 0))
        versions = handler.min_version, high
        yield Served(Api(handler, is_handled=False), api_name(handler.name), handler.name, versions)


def module() -> str:
    """Return the text of ``oncelog/messages.py``."""
    apis = sorted(served(), key=lambda one: one.module)
    modules = [one.module for one in apis]
    lines = ["    from oncelog.wire.messages import (", *(f"        {name}," for name in modules), "    )"]
    for one in apis:
        begin, names = (
            f"    from oncelog.wire.messages.{one.module} import ",
            f"{one.name}Request, {one.name}Response",
        )
        if len(begin + names) <= LINE_MAX:
            lines.append(begin + names)
        else:
            lines += [f"{begin}(", *(f"        {name}," for name in names.split(", ")), "    )"]
    classes = [f"{one.name}{end}" for one in apis for end in ("Request", "Response")]
    listed = "".join(f'    "{name}",\n' for name in (*sorted(classes), *modules))
    return MODULE.format(imports="\n".join(lines) + "\n", names=listed)


def page() -> str:
    """Return the text of ``docs/reference/messages.md``."""
    return PAGE + "".join(_section(one) for one in sorted(served(), key=lambda one: one.name))


def _section(one: Served) -> str:
    low, high = one.versions
    which = f"version {low}" if low == high else f"versions {low} to {high}"
    lines = []
    for message in (one.api.request, one.api.response):
        lines += ["", f"    {message.__name__}", *_fields(message, one.versions, 1)]
    return f"\n## {one.name}\n\nAPI key {one.api.row.api_key}, {which}.\n" + "\n".join(lines) + "\n"


def _fields(struct: type[Struct] | type[Message], versions: tuple[int, int], depth: int) -> Iterator[str]:
    for field in struct.FIELDS:
        low, high = max(field.versions[0], versions[0]), min(field.versions[1], versions[1])
        if low > high:
            continue
        facts = [_type(field), *_facts(field, (low, high), versions)]
        yield f"    {'  ' * depth}{field.name}: {', '.join(facts)}"
        element: Any = field.element
        if isinstance(element, type):
            yield from _fields(element, (low, high), depth + 1)


def _type(field: Field) -> str:
    element: Any = field.element
    inner = "" if element is None else element.__name__ if isinstance(element, type) else element.kind
    return f"list of {inner}" if field.kind == "array" else inner or field.kind


def _facts(field: Field, versions: tuple[int, int], outer: tuple[int, int]) -> Iterator[str]:
    low, high = versions
    if field.nullable[0] <= high and field.nullable[1] >= low and field.kind != "records":
        yield "or null" if field.nullable[0] <= low else f"or null from {field.nullable[0]}"
    if field.default not in (NEW, 0, "", b"", bytes(16), None, False) or (
        field.default is None and field.kind not in ("records", "struct")
    ):
        yield f"default {field.default}"
    if versions != outer:
        yield f"version {low}" if low == high else f"{low} to {high}" if high < outer[1] else f"from {low}"
    if field.tag is not None:
        yield "tagged"
    if field.ignorable and versions != outer:
        yield "ignorable"


if __name__ == "__main__":
    print({"module": module, "page": page}[sys.argv[1]](), end="")
