"""On which targets a test runs."""

import pytest

from compat_tests.brokers import TARGETS


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Run a test with the fixture `target` on TARGETS, and on those that it is `also_on`; `pair` likewise."""
    also = tuple(name for mark in metafunc.definition.iter_markers("also_on") for name in mark.args)
    given = [name for mark in metafunc.definition.iter_markers("parametrize") for name in names(mark)]
    if "target" in metafunc.fixturenames and "target" not in given:
        metafunc.parametrize("target", (*TARGETS, *also), indirect=True)
    elif "pair" in metafunc.fixturenames and also:
        metafunc.parametrize("pair", ("oncelog", *also), indirect=True)


def names(mark: pytest.Mark) -> list[str]:
    """Return the arguments that a `parametrize` gives values."""
    given = mark.args[0]
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


def register(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "also_on(*targets): runs on these targets of brokers.py, too")
