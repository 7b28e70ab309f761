"""Requests with many rows are handled in chunks. Between two chunks other connections have their turn.

The number of rows in a request is bounded (`wire.compiler.REQUEST_ELEMENTS_MAX`), but a row may cost a handler tens of
microseconds. The handler of such a request is an iterator that fills the response, a row at each step: `chunked` and
`chunked_then` take as many steps at once as fit in a slice. Where one row may take longer than that, `chunked_by_row`
responds to every row on its own. Between two chunks other requests may change what the next rows are about. What is all
or nothing is done in one step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

from oncelog.broker.requests.request import Pending, wait_for_response
from oncelog.broker.scheduling.slices import Slices, in_slices
from oncelog.wire.steps import take

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from oncelog.wire.schema import Message
    from oncelog.wire.steps import Steps

    M = TypeVar("M", bound=Message)
    Row = TypeVar("Row")
    Result = TypeVar("Result")

ROWS_AT_ONCE = 100
"""The rows of a request that are handled without a break."""
PARTITIONS_A_STEP = 10
"""So many partitions of a topic cost as much as a row of something."""
LARGE_ROWS_AT_ONCE = 1
"""The same for rows with perhaps very large results, such as a group with all its offsets or members."""


def chunked(steps: Iterable[object], rows: int, response: M, *, are_costly: bool = False) -> M | Pending[M]:
    """Return the ``response`` after the ``steps`` have filled it: at once, or a `Pending` one.

    ``rows`` is the number of rows in the request: beyond `ROWS_AT_ONCE`, and where they ``are_costly`` (a regular
    expression is compiled), the steps are taken in slices.
    """
    return chunked_then(steps, rows, lambda: response, are_costly=are_costly)


def chunked_then(
    steps: Iterable[object], rows: int, respond: Callable[[], M | Pending[M]], *, are_costly: bool = False
) -> M | Pending[M]:
    """Take the ``steps`` as `chunked` does; return what ``respond`` returns after the last."""
    if rows > ROWS_AT_ONCE or are_costly:
        return Pending(_step_slowly(steps, respond))
    for _ in steps:
        pass
    return respond()


def chunked_by_row(
    rows: list[Row],
    respond: Callable[[list[Row]], M | Pending[M]],
    results: Callable[[M], list[Result]],
    same: Callable[[Row], Hashable],
) -> M | Pending[M]:
    """Return the response to the ``rows`` of a request, each of which may have a very large result.

    ``respond`` makes the response to some rows, ``results`` takes the list of their results out of it. More than
    `LARGE_ROWS_AT_ONCE` rows are handled one by one. Rows for which ``same`` returns the same key share one result:
    a short request may name a large group any number of times.
    """
    if len(rows) <= LARGE_ROWS_AT_ONCE:
        return respond(rows)
    return Pending(_respond_by_row(rows, respond, results, same))


def after_a_turn(response: M | Pending[M]) -> Pending[M]:
    """Return the ``response`` to a request whose step may have taken long: others have their turn before it leaves."""
    return response if isinstance(response, Pending) else Pending(_after_a_turn(response))


async def _after_a_turn(response: M) -> M:
    await trio.lowlevel.checkpoint()
    return response


def chunked_by_part(
    rows: list[Row],
    respond: Callable[[list[Row]], M | Pending[M]],
    results: Callable[[M], list[Result]],
) -> M | Pending[M]:
    """Return the response to the ``rows`` of a request, which ``respond`` makes for `ROWS_AT_ONCE` of them at a time;
    ``results`` takes the list of their results out of it. The request of each part is one of its own, for the log, too.
    """
    if len(rows) <= ROWS_AT_ONCE:
        return respond(rows)
    return Pending(_respond_by_part(rows, respond, results))


def chunked_steps(steps: Steps[Result | Pending[Result]]) -> Result | Pending[Result]:
    """Return what the generator returns: at once if it takes at most `ROWS_AT_ONCE` steps, else `Pending`, and the
    other steps are taken in slices.
    """
    result = take(steps, ROWS_AT_ONCE)
    return Pending(_finish_slowly(steps)) if result is None else result


def then_steps(response: M | Pending[M], steps: Callable[[M], Steps[M]]) -> M | Pending[M]:
    """Return what the ``steps`` make of a response, as `chunked_steps`."""
    return (
        Pending(_then_steps(response, steps))
        if isinstance(response, Pending)
        else chunked_steps(steps(response))
    )


async def _then_steps(response: Pending[M], steps: Callable[[M], Steps[M]]) -> M:
    result: M = await in_slices(steps(await wait_for_response(response)))
    return result


async def _finish_slowly(steps: Steps[Result | Pending[Result]]) -> Result:
    return await wait_for_response(await in_slices(steps))


async def _respond_by_part(
    rows: list[Row],
    respond: Callable[[list[Row]], M | Pending[M]],
    results: Callable[[M], list[Result]],
) -> M:
    told: list[Result] = []
    slices = Slices()
    for at in range(0, len(rows), ROWS_AT_ONCE):
        response = await wait_for_response(respond(rows[at : at + ROWS_AT_ONCE]))
        told += results(response)
        if slices.is_over():
            await slices.pause()
    results(response)[:] = told
    return response


async def _step_slowly(steps: Iterable[object], respond: Callable[[], M | Pending[M]]) -> M:
    await in_slices(steps)
    return await wait_for_response(respond())


async def _respond_by_row(
    rows: list[Row],
    respond: Callable[[list[Row]], M | Pending[M]],
    results: Callable[[M], list[Result]],
    same: Callable[[Row], Hashable],
) -> M:
    keys = [same(row) for row in rows]
    found: dict[Hashable, Result] = {}
    slices = Slices()
    for key, row in dict(zip(keys, rows, strict=True)).items():
        response = await wait_for_response(respond([row]))
        [found[key]] = results(response)
        if slices.is_over():
            await slices.pause()
    # The responses differ only in their results: put all results into the last one.
    results(response)[:] = [found[key] for key in keys]
    return response
