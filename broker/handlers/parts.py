"""Requests whose rows stand each for itself: of many rows a few are answered at a time, so that all others are served.

What a request may have of rows is bounded (`wire.compiler.REQUEST_ELEMENTS_MAX`), but a row may cost a handler tens of
microseconds. A handler that is named here is called with a part of the rows again and again, and its answers are put
together; between two slices of work the other connections have their turn, and may change what the rows are about.
Where rows are compared with one another, or end in one change, the handler itself gives the steps before that
(`in_steps`, `after_steps`). What is all or nothing is done in one go.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from broker.log.slices import Slices, in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from broker.handlers.table import Handle
    from broker.node import Node
    from broker.request import RequestContext
    from wire.schema import Message

    M = TypeVar("M", bound=Message)

ROWS_AT_ONCE = 100
"""Rows of a request that are answered in one go."""
ROWS_OF_PART = 8
"""Rows that the handler is given at once where there are more: they should take much less than a slice."""


class Parts(NamedTuple):
    """Where a request has its rows, and the answer its own: names of arrays; ``inner`` ones where they are nested."""

    asked: str
    answered: str
    asked_inner: str = ""
    answered_inner: str = ""


PARTS = {
    10: Parts("coordinator_keys", "coordinators"),
    9: Parts("groups", "groups"),
    15: Parts("groups", "groups"),
    21: Parts("topics", "topics", "partitions", "partitions"),
    23: Parts("topics", "topics", "partitions", "partitions"),
    32: Parts("resources", "results"),
    61: Parts("topics", "topics", "partition_indexes", "partitions"),
    65: Parts("transactional_ids", "transaction_states"),
    69: Parts("group_ids", "groups"),
}
"""By API key."""


def in_parts(handle: Handle, parts: Parts) -> Handle:
    """The handler that answers a request of many rows in parts, and any other as ``handle`` does."""

    def handle_parts(node: Node, request: Any, context: RequestContext) -> Any:
        rows = getattr(request, parts.asked)
        count = len(rows)
        if parts.asked_inner:
            count += sum([len(getattr(row, parts.asked_inner)) for row in rows])
        if count <= ROWS_AT_ONCE:
            return handle(node, request, context)
        return _handle_slowly(handle, parts, node, request, context)

    return handle_parts


def in_steps(steps: Iterable[object], rows: int, answer: M) -> M | Coroutine[Any, Any, M]:
    """The ``answer`` that an iterator over a request's ``rows`` fills: at once, or in slices where there are many."""
    return after_steps(steps, rows, lambda: answer)


def after_steps(
    steps: Iterable[object], rows: int, then: Callable[[], M | Coroutine[Any, Any, M]]
) -> M | Coroutine[Any, Any, M]:
    """What ``then`` answers when the ``steps`` over a request's ``rows`` are done, which may take a while."""
    if rows > ROWS_AT_ONCE:
        return _step_slowly(steps, then)
    for _ in steps:
        pass
    return then()


async def _step_slowly(steps: Iterable[object], then: Callable[[], M | Coroutine[Any, Any, M]]) -> M:
    await in_slices(steps)
    answer: Any = then()
    whole: M = await answer if isinstance(answer, CoroutineType) else answer
    return whole


async def _handle_slowly(
    handle: Handle, parts: Parts, node: Node, request: Any, context: RequestContext
) -> Any:
    whole: Any = None
    slices = Slices()
    for continues, rows in _nested(request, parts) if parts.asked_inner else _flat(request, parts):
        setattr(request, parts.asked, rows)
        answer: Any = handle(node, request, context)
        if isinstance(answer, CoroutineType):
            answer = await answer
        if whole is None:
            whole = answer
        elif continues:
            last, first = getattr(whole, parts.answered)[-1], getattr(answer, parts.answered)[0]
            getattr(last, parts.answered_inner).extend(getattr(first, parts.answered_inner))
        else:
            getattr(whole, parts.answered).extend(getattr(answer, parts.answered))
        if slices.is_over():
            await slices.pause()
    return whole


def _flat(request: Any, parts: Parts) -> Iterator[tuple[bool, list[Any]]]:
    rows = getattr(request, parts.asked)
    for start in range(0, len(rows), ROWS_OF_PART):
        yield False, rows[start : start + ROWS_OF_PART]


def _nested(request: Any, parts: Parts) -> Iterator[tuple[bool, list[Any]]]:
    """A topic at a time, with some of its partitions; and whether it is that of the part before."""
    for topic in getattr(request, parts.asked):
        inner = getattr(topic, parts.asked_inner)
        for start in range(0, len(inner) or 1, ROWS_OF_PART):
            setattr(topic, parts.asked_inner, inner[start : start + ROWS_OF_PART])
            yield start > 0, [topic]
