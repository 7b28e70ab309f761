"""Exceptions in groups, as nurseries raise them."""

from __future__ import annotations

import trio


def only_error(error: BaseException) -> BaseException:
    """Return the error, out of groups that hold nothing else."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group, or of a group in it, that is no cancellation."""
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            return first_error(one)
        if not isinstance(one, trio.Cancelled):
            return one
    return group.exceptions[0]
