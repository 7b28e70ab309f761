"""Factories of fixtures, for a ``conftest.py``.

from oncelog.pytest_plugin import factories

kafka = factories.kafka(topics={"orders": 3})             # a broker for each test, with these topics
app_kafka = factories.kafka_proc(config={...})            # one for the session
clean_kafka = factories.kafka("app_kafka")                # that one, reset before each test
async_kafka = factories.async_kafka("clean_kafka")        # the same broker, for asynchronous tests
kafka_proxy = factories.kafka_proxy("127.0.0.1:9092")     # a proxy before a cluster
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pytest

from oncelog.pytest_plugin.fixture_brokers import failure, in_use
from oncelog.pytest_plugin.proxies import KafkaProxySettings, proxy_of
from oncelog.pytest_plugin.settings import KafkaSettings, SettingError, Settings, fixture_settings

if TYPE_CHECKING:
    from oncelog import AsyncBroker, AsyncProxy, Broker, Proxy, Verdict

Scope = Literal["session", "package", "module", "class", "function"]


def kafka(proc: str | None = None, *, scope: Scope = "function", **settings: Unpack[KafkaSettings]) -> Any:
    """Make a fixture: a broker for each test, which no other test has used.

    proc: the name of a fixture of a wider scope. The test then gets that broker, reset, instead of one of its own.
    scope: pytest's; a wider one shares the broker.
    settings: as `oncelog.Broker` has them. Those of the test's markers are added; with ``proc`` these are
        ``topics`` and ``faults`` only.
    """
    make = _fresh(settings) if proc is None else _reset(proc, settings)
    return pytest.fixture(scope=scope)(make)


def kafka_proc(**settings: Unpack[KafkaSettings]) -> Any:
    """Make a fixture: one broker for all tests of the process; with pytest-xdist each worker has its own."""
    return kafka(scope="session", **settings)


def kafka_noproc(
    bootstrap_servers: str | None = None,
    *,
    command_config: Mapping[str, object] | str | os.PathLike[str] | None = None,
) -> Any:
    """Make a fixture: a Kafka cluster that runs already, at these addresses or at ``--kafka-bootstrap-servers``.

    command_config: how to log in there, by the keys of Kafka's clients, or the path of a client.properties; without it,
        what ``--kafka-command-config`` says.
    """

    @pytest.fixture(scope="session")
    def kafka_noproc(request: pytest.FixtureRequest) -> Iterator[Broker]:
        """The Kafka cluster at --kafka-bootstrap-servers."""
        settings = _checked(request, {})
        settings.bootstrap_servers = bootstrap_servers or settings.bootstrap_servers
        if isinstance(command_config, str | os.PathLike):
            settings.command_config = request.config.rootpath / command_config
        elif command_config is not None:
            settings.command_config = command_config
        if settings.bootstrap_servers is None:
            raise failure(
                request,
                "no cluster: give --kafka-bootstrap-servers=HOST:PORT, or kafka_bootstrap_servers in the ini file",
            )
        yield from _carried(request, settings)

    return kafka_noproc


def kafka_proxy(
    upstream: str | None = None, /, *, scope: Scope = "function", **settings: Unpack[KafkaProxySettings]
) -> Any:
    """Make a fixture: a proxy before a cluster.

    upstream: its addresses, or the name of a fixture that has ``bootstrap_servers``. Without it, what
        ``--kafka-proxy-upstream`` says, and without that the broker, or the cluster, of the fixture ``kafka``.
    settings: as `oncelog.Proxy` has them. Those of the test's markers ``kafka_proxy`` win.
    """
    given: KafkaProxySettings = settings
    if upstream is not None:
        given["upstream"] = upstream

    def kafka_proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
        """A proxy before a Kafka cluster, an oncelog.Proxy; settings by @pytest.mark.kafka_proxy."""
        yield from proxy_of(request, given)

    return pytest.fixture(scope=scope)(kafka_proxy)


def kafka_prove(**settings: Any) -> Any:
    """Make a fixture: `oncelog.prove`, which fails the test unless the program keeps its promise.

    settings: those of `oncelog.prove` that all tests share.
    """

    @pytest.fixture
    def kafka_prove() -> Callable[..., Verdict]:
        """Proves a program by oncelog.prove; fails the test unless it keeps its promise."""
        from oncelog import prove

        def run(program: Any, **options: Any) -> Verdict:
            __tracebackhide__ = True
            verdict = prove(program, **{**settings, **options})
            verdict.assert_kept()
            return verdict

        return run

    return kafka_prove


def async_kafka(fixture: str = "kafka") -> Any:
    """Make a fixture: the broker, or the proxy, of another fixture as an `oncelog.AsyncBroker`, or an
    `oncelog.AsyncProxy`, for tests in asyncio and Trio.
    """

    @pytest.fixture
    def async_kafka(request: pytest.FixtureRequest) -> AsyncBroker | AsyncProxy:
        """The Kafka broker of another fixture as an oncelog.AsyncBroker, for asyncio and Trio."""
        from oncelog import AsyncBroker, AsyncProxy, Broker, Proxy
        from oncelog.pytest_plugin.real_cluster import AsyncCluster, Cluster

        broker = request.getfixturevalue(fixture)
        if not isinstance(broker, Broker | Proxy):
            raise failure(request, f"the fixture {fixture} is no oncelog.Broker, but {broker!r}")
        kind: Any = AsyncBroker
        if not isinstance(broker, Broker):
            kind = AsyncProxy
        elif isinstance(broker, Cluster):
            kind = AsyncCluster
        shared: AsyncBroker | AsyncProxy = kind._sharing(broker)
        return shared

    return async_kafka


def _fresh(given: KafkaSettings) -> Callable[[pytest.FixtureRequest], Iterator[Broker]]:
    def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
        """A Kafka broker, an oncelog.Broker; settings by @pytest.mark.kafka."""
        yield from _carried(request, _checked(request, given))

    return kafka


def _reset(proc: str, given: KafkaSettings) -> Callable[[pytest.FixtureRequest], Iterator[Broker]]:
    def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
        """A Kafka broker that tests share, an oncelog.Broker, reset before each test."""
        settings = _checked(request, given)
        unfit = sorted(settings.of_the_test - {"topics", "faults"})
        if unfit:
            raise failure(
                request,
                f"{', '.join(unfit)}: the broker of {proc} is shared, so a test can only add topics and faults to it; "
                "a broker of the test's own can have more",
            )
        from oncelog import OncelogError

        broker: Broker = request.getfixturevalue(proc)
        try:
            broker.reset()
            there = set(broker.topics)
            topics = settings.arguments.get("topics", {})
            broker.create_topics({name: value for name, value in topics.items() if name not in there})
            faults = settings.arguments.get("faults", ())
            with in_use(request, broker, faults, are_of_the_test=settings.has_own_faults):
                yield broker
        except (OncelogError, OSError) as error:
            raise failure(request, str(error)) from None

    return kafka


def _checked(request: pytest.FixtureRequest, given: KafkaSettings) -> Settings:
    try:
        return fixture_settings(request, given)
    except SettingError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def _carried(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Broker]:
    """Start a broker, or find the cluster, for as long as the fixture lives."""
    from oncelog import Broker, OncelogError

    faults = settings.arguments.pop("faults", ())
    try:
        if settings.bootstrap_servers is None:
            broker = Broker(**settings.arguments)
        else:
            from oncelog.pytest_plugin.real_cluster import cluster

            broker = cluster(settings, request.node.nodeid)
        with closing(broker):
            broker.start()
            with in_use(request, broker, faults, are_of_the_test=settings.has_own_faults):
                yield broker
    except (OncelogError, OSError) as error:
        raise failure(request, str(error)) from None
