"""Real parts that any test may ask for: Kafka's jars and its tools. Missing ones skip (fail with CI=true).

And what Hypothesis does in all tests, and which seeds they have.
"""

import gc
import pathlib
import subprocess
from typing import Protocol

import pytest
from hypothesis import settings

from tests.common import jars, orphans, seeds

pytest_plugins = ["tests.common.recorded.plugin", "tests.common.scheduling"]

# The same examples in every run, also without CI=true, and no example is too slow. `--hypothesis-profile=default` takes
# new ones.
settings.load_profile("ci")


class KafkaTool(Protocol):
    """`jars.run_tool`."""

    def __call__(
        self,
        main_class: str,
        *arguments: str,
        input: str | None = None,
        timeout_s: float = ...,
        check: bool = ...,
    ) -> "subprocess.CompletedProcess[str]": ...


def pytest_configure() -> None:
    orphans.end_with_this_process()


def pytest_collection_finish() -> None:
    """Leave the collected tests, a million objects, out of each look for garbage: a tenth of the fast tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def kafka_libs() -> pathlib.Path:
    """The folder with Kafka's jars."""
    try:
        return jars.kafka_libs()
    except jars.RealPartMissing as missing:
        jars.require(str(missing))


@pytest.fixture(scope="session")
def kafka_tool(kafka_libs: pathlib.Path) -> KafkaTool:
    """Run a tool by its main class: kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--files", ...)."""
    try:
        jars.java()
    except jars.RealPartMissing as missing:
        jars.require(str(missing))
    return jars.run_tool


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test with seeds those of ONCELOG_SEED instead."""
    if chosen := seeds.chosen():
        marks = metafunc.definition.own_markers
        marks[:] = [
            pytest.mark.parametrize("seed", chosen).mark
            if mark.name == "parametrize" and mark.args[0] == "seed"
            else mark
            for mark in marks
        ]
