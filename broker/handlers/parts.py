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

from oncelog.broker.slices import Slices, in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator

    from oncelog.broker.handlers.table import Handle
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services
    from oncelog.wire.messages.offset_fetch import OffsetFetchRequestGroup
    from oncelog.wire.schema import Message

    M = TypeVar("M", bound=Message)

ROWS_AT_ONCE = 100
"""Rows of a request that are answered in one go."""
ROWS_OF_PART = 8
"""Rows that the handler is given at once where there are more: they should take much less than a slice."""
LARGE_ROWS_AT_ONCE = 1
"""The same where one row may be answered with very many: a group with all its offsets or members."""


class Parts(NamedTuple):
    """Where a request has its rows, and the answer its own: names of arrays; ``inner`` ones where they are nested."""

    asked: str
    answered: str
    asked_inner: str = ""
    answered_inner: str = ""
    same: Callable[[Any], Hashable] | None = None
    """Of rows that may be answered with very many: what two have in common that get the same answer. It is made once,
    since a short request may name a large group any number of times."""


def _of_group(asked: OffsetFetchRequestGroup) -> Hashable:
    if asked.topics is not None:
        return id(asked)  # its answer is not much longer than it is
    return asked.group_id, asked.member_id, asked.member_epoch


PARTS = {
    10: Parts("coordinator_keys", "coordinators"),
    9: Parts("groups", "groups", same=_of_group),
    15: Parts("groups", "groups", same=str),
    21: Parts("topics", "topics", "partitions", "partitions"),
    23: Parts("topics", "topics", "partitions", "partitions"),
    61: Parts("topics", "topics", "partition_indexes", "partitions"),
    65: Parts("transactional_ids", "transaction_states", same=str),
    69: Parts("group_ids", "groups", same=str),
}
"""By API key."""

_DESCRIBE_CONFIGS = 32
LONG_ANSWERS = frozenset((*PARTS, _DESCRIBE_CONFIGS))
"""API keys whose answers may be much longer than requests: where they were waited for, they are encoded in steps."""


def in_parts(handle: Handle, parts: Parts) -> Handle:
    """The handler that answers a request of many rows in parts, and any other as ``handle`` does."""

    def handle_parts(services: Services, request: Any, context: RequestContext) -> Any:
        rows = getattr(request, parts.asked)
        count = len(rows)
        if parts.asked_inner:
            count += sum([len(getattr(row, parts.asked_inner)) for row in rows])
        if count <= (ROWS_AT_ONCE if parts.same is None else LARGE_ROWS_AT_ONCE):
            return handle(services, request, context)
        return _handle_slowly(handle, parts, services, request, context)

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
    handle: Handle, parts: Parts, services: Services, request: Any, context: RequestContext
) -> Any:
    if parts.same is None:
        return await _handle_each(handle, parts, services, request, context)
    rows = getattr(request, parts.asked)
    keys = [parts.same(row) for row in rows]
    distinct = dict(zip(keys, rows, strict=True))
    setattr(request, parts.asked, list(distinct.values()))
    whole = await _handle_each(handle, parts, services, request, context)
    answered = dict(zip(distinct, getattr(whole, parts.answered), strict=True))
    setattr(whole, parts.answered, [answered[key] for key in keys])
    return whole


async def _handle_each(
    handle: Handle, parts: Parts, services: Services, request: Any, context: RequestContext
) -> Any:
    whole: Any = None
    slices = Slices()
    for continues, rows in _nested(request, parts) if parts.asked_inner else _flat(request, parts):
        setattr(request, parts.asked, rows)
        answer: Any = handle(services, request, context)
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
    at_once = ROWS_OF_PART if parts.same is None else LARGE_ROWS_AT_ONCE
    for start in range(0, len(rows), at_once):
        yield False, rows[start : start + at_once]


def _nested(request: Any, parts: Parts) -> Iterator[tuple[bool, list[Any]]]:
    """A topic at a time, with some of its partitions; and whether it is that of the part before."""
    for topic in getattr(request, parts.asked):
        inner = getattr(topic, parts.asked_inner)
        for start in range(0, len(inner) or 1, ROWS_OF_PART):
            setattr(topic, parts.asked_inner, inner[start : start + ROWS_OF_PART])
            yield start > 0, [topic]
