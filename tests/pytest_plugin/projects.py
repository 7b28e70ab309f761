"""Runs the tests of a project."""

from __future__ import annotations

import pytest

END_AT_ONCE = """
    import os, sys

    def pytest_unconfigure():
        sys.stdout.flush()
        os._exit(0)
"""
"""A client of librdkafka that nobody has closed may wait for ever in its end, once its broker is gone."""
RUN_S = 300
"""Nothing takes as long, on a slow machine either."""


def run(pytester: pytest.Pytester, tests: str, *arguments: str, **outcomes: int) -> pytest.RunResult:
    """Run the tests in this process; the outcomes must be these."""
    pytester.makepyfile(tests)
    result = pytester.runpytest_inprocess(*arguments)
    result.assert_outcomes(**outcomes)
    return result


def run_with_clients(
    pytester: pytest.Pytester, tests: str, *arguments: str, **outcomes: int
) -> pytest.RunResult:
    """Run the tests in a process of their own, with which their clients end."""
    pytester.makepyfile(tests)
    pytester.makepyfile(end_at_once=END_AT_ONCE)
    result = pytester.runpytest_subprocess("-p", "end_at_once", *arguments, timeout=RUN_S)
    result.assert_outcomes(**outcomes)
    return result
