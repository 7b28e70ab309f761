"""On which targets a test runs."""

import pytest

from compat_tests.brokers import TARGETS
from compat_tests.proxied import BEFORE_ONCELOG, PROXY_CLUSTER
from tests.common.recorded.plugin import recorder_of
from tests.common.recorded.recorder import ASKED

OURS_ON_TARGETS = (
    "oncelog",
    pytest.param("kafka", marks=pytest.mark.whole_run("oncelog answers our clients as Kafka does")),
)
"""For tests of our own clients, whose code changes: the half on Kafka is no fact of Kafka alone."""


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Run a test with the fixture `target` on TARGETS, and on those that it is `also_on`."""
    given = [name for mark in metafunc.definition.iter_markers("parametrize") for name in names(mark)]
    if "target" in metafunc.fixturenames and "target" not in given:
        also = also_on(metafunc.definition, metafunc.config)
        ours = metafunc.definition.get_closest_marker("our_client") is not None
        metafunc.parametrize("target", (*(OURS_ON_TARGETS if ours else TARGETS), *also), indirect=True)


def also_on(test: pytest.Item, config: pytest.Config) -> tuple[str, ...]:
    """The further targets of a test in this run: without asking Kafka, proxies before oncelog."""
    also = [name for mark in test.iter_markers("also_on") for name in mark.args]
    if recorder_of(config).mode != ASKED:
        also = [BEFORE_ONCELOG.get(name, name) for name in also if name != PROXY_CLUSTER]
    return tuple(dict.fromkeys(also))


def names(mark: pytest.Mark) -> list[str]:
    """Return the arguments that a `parametrize` gives values."""
    given = mark.args[0]
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


def register(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "also_on(*targets): runs on these targets of proxied.py, too")
    config.addinivalue_line("markers", "our_client: asks the target by a client of oncelog's own")


def upstream(config: pytest.Config) -> str:
    """The target before which a proxy, a prover or a client of ours stands in this run."""
    return "kafka" if recorder_of(config).mode == ASKED else "oncelog"
