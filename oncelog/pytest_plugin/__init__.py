"""The pytest plugin: fixtures `kafka`, `kafka_proc`, `kafka_noproc`, `kafka_proxy`, `kafka_prove`, `async_kafka` and
`async_kafka_proxy`; docs/how-to/testing.md, docs/how-to/proxy.md and docs/how-to/prove.md show their use.

pytest imports it in every project that has oncelog installed. So this module imports nothing of the broker; the
fixtures do, when a test asks for one. And it works with any pytest that Python 3.11 runs, from 6.2 on.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.pytest_plugin import factories, fixture_brokers, left_clients, proxies, unfired_rules
from oncelog.pytest_plugin.plain_imports import install_plain_imports
from oncelog.pytest_plugin.settings import NAMES, SettingError, add_options, common_settings

if TYPE_CHECKING:
    import pluggy

__all__ = [
    "async_kafka",
    "async_kafka_proxy",
    "factories",
    "kafka",
    "kafka_noproc",
    "kafka_proc",
    "kafka_prove",
    "kafka_proxy",
]

_errors_at_the_end: list[str] = []
"""About groups that stay in a cluster."""

kafka = factories.kafka()
kafka_proc = factories.kafka_proc()
kafka_noproc = factories.kafka_noproc()
async_kafka = factories.async_kafka()
kafka_proxy = factories.kafka_proxy()
kafka_prove = factories.kafka_prove()
async_kafka_proxy = factories.async_kafka("kafka_proxy")


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)
    proxies.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.add_cleanup(install_plain_imports())
    settings = ", ".join(f"{name}=" for name in NAMES)
    config.addinivalue_line(
        "markers", f"kafka({settings}): settings of the broker that the fixture kafka starts"
    )
    of_proxies = ", ".join(f"{name}=" for name in proxies.NAMES)
    config.addinivalue_line(
        "markers", f"kafka_proxy({of_proxies}): settings of the proxy that the fixture kafka_proxy starts"
    )
    try:
        common_settings(config)
    except SettingError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header(config: pytest.Config) -> list[str]:
    settings = common_settings(config)
    if settings.bootstrap_servers is None:
        return []
    through = ", through a proxy" if settings.through_proxy else ""
    return [f"kafka: the cluster at {settings.bootstrap_servers}{through}"]


def pytest_sessionfinish() -> None:
    """Delete the groups of the last tests on a cluster, if their members are gone by now."""
    module = sys.modules.get("oncelog.pytest_plugin.cluster_carrier")
    _errors_at_the_end[:] = [] if module is None else module.delete_left_groups()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _errors_at_the_end:
        terminalreporter.write_line(f"kafka: {line}", yellow=True)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    left_clients.note_fixture(fixturedef.argname, fixturedef.scope, fixturedef.argnames)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None]:
    """Looks after the test, when pytest has forgotten the values of its fixtures."""
    yield
    left_clients.check(item)


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Runs after the test, if it has passed."""
    if unfired_rules.is_error(item.config):
        unfired_rules.check(made for _, made in fixture_brokers.made_for(item))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Runs after the end of the test's own fixtures."""
    for _, made in fixture_brokers.made_for(item):
        unfired_rules.note(item.config, made)


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Runs after the fixtures of the test."""
    fixture_brokers.check_markers(item)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    found = fixture_brokers.made_for(item) if call.excinfo is not None else []
    if found:
        from oncelog.pytest_plugin.report import hide_frames, sections

        hide_frames()
    report = (yield).get_result()
    if report.failed and found:
        # A Kafka cluster without a proxy tells nothing of the test.
        report.sections += sections({one.name: one.broker for _, one in found if one.is_observed})
