"""Exceptions in groups, as nurseries raise them."""

from __future__ import annotations


def only_error(error: BaseException) -> BaseException:
    """Return the error, out of groups that hold nothing else."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
