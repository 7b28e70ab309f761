"""The fixture `kafka_proxy`: a proxy before the broker of another fixture, or before a Kafka cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import pytest

from oncelog.pytest_plugin.fixture_brokers import failure, in_use
from oncelog.pytest_plugin.settings import SettingError, unknown_setting

if TYPE_CHECKING:
    from oncelog import Proxy

INI = "kafka_proxy_upstream"
OPTION = "--kafka-proxy-upstream"
HELP = "the Kafka cluster before which kafka_proxy stands; without it, the broker or the cluster of the fixture kafka"
MARKER = "kafka_proxy"


class KafkaProxySettings(TypedDict, total=False):
    """The settings of ``factories.kafka_proxy`` and ``@pytest.mark.kafka_proxy``: the arguments of `oncelog.Proxy`.

    upstream: addresses of a cluster, or the name of a fixture that has ``bootstrap_servers``.
    faults: a rule or several for ``kafka_proxy.faults.add``, or the path of a file for ``kafka_proxy.faults.load``.
    """

    upstream: str
    upstream_config: Mapping[str, object] | str | os.PathLike[str]
    upstream_users: Mapping[str, Mapping[str, str]]
    pass_logins: bool
    filters: Iterable[object]
    config: Mapping[str, object]
    data_dir: str | os.PathLike[str]
    port: int
    users: Mapping[str, str]
    acls: Iterable[object]
    tls: bool | Literal["expired", "of_a_stranger", "other_host"]
    oauth: bool
    seed: int
    requests_kept: int
    process: bool
    faults: Mapping[str, object] | Iterable[Mapping[str, object]] | str | os.PathLike[str]


NAMES = tuple(KafkaProxySettings.__annotations__)


def add_options(parser: pytest.Parser) -> None:
    """Add the options of the command line and of the ini file."""
    group = parser.getgroup("oncelog")
    group.addoption(OPTION, action="store", metavar="HOST:PORT,...", dest=INI, help=HELP)
    parser.addini(INI, HELP, type="string")


def proxy_of(request: pytest.FixtureRequest, given: KafkaProxySettings) -> Iterator[Proxy]:
    """Start a proxy with the settings of the factory and of the test's markers, for as long as the fixture lives."""
    from oncelog import OncelogError, Proxy

    try:
        arguments, has_own_faults = _joined(request, given)
        faults = arguments.pop("faults", ())
        upstream, behind, login = _upstream(request, arguments.pop("upstream", None))
        arguments.setdefault("upstream_config", login)
        seed = request.config.getoption("kafka_seed") or request.config.getini("kafka_seed")
        if seed and "seed" not in arguments:
            arguments["seed"] = int(seed)
        with closing(Proxy(upstream, **arguments)) as proxy:
            proxy.start()
            with in_use(request, proxy, faults, are_of_the_test=has_own_faults, behind=behind):
                yield proxy
    except (OncelogError, OSError, SettingError) as error:
        raise failure(request, str(error)) from None


def _joined(request: pytest.FixtureRequest, given: KafkaProxySettings) -> tuple[dict[str, Any], bool]:
    """Return the settings, where those of a marker win, and whether a marker has ``faults``. Raises SettingError."""
    found: dict[str, Any] = {}
    has_own_faults = False
    places = [(f"the factory of {request.fixturename}", given)]
    if request.scope != "session":
        markers = reversed(list(request.node.iter_markers(MARKER)))
        for marker in markers:
            if marker.args:
                raise SettingError(
                    f"@pytest.mark.{MARKER} takes keyword arguments, such as upstream='host:9092'"
                )
            places.append((f"@pytest.mark.{MARKER}", marker.kwargs))
            has_own_faults |= "faults" in marker.kwargs
    for place, settings in places:
        for name, value in settings.items():
            if name not in NAMES:
                raise unknown_setting(place, name, NAMES)
            found[name] = value
    for name in ("faults", "upstream_config"):
        if isinstance(found.get(name), str | os.PathLike):
            found[name] = request.config.rootpath / found[name]
    return found, has_own_faults and request.scope == "function"


def _upstream(
    request: pytest.FixtureRequest, given: str | None
) -> tuple[str, str | None, Mapping[str, object]]:
    """Return the addresses of the cluster, the fixture that has them, if one does, and how to log in there."""
    text = given or request.config.getoption(INI) or request.config.getini(INI)
    if text and ":" in text:
        return str(text), None, {}
    fixture = str(text or "kafka")
    broker = request.getfixturevalue(fixture)
    servers = getattr(broker, "bootstrap_servers", None)
    if not isinstance(servers, str):
        raise SettingError(f"the fixture {fixture} has no bootstrap_servers, and is {broker!r}")
    return servers, fixture, getattr(broker, "command_config", {})
