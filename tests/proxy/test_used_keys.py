"""Settings that would have no effect on a proxy are refused; which these are, the keys' declarations say."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator, Sequence

import pytest

import oncelog
from oncelog.broker.client.security import keys as client_keys
from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.checks import STANDARD_AUTHORIZER
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.definitions_known import keys_without_effect
from oncelog.broker.proxy.options import parse_proxy_arguments
from oncelog.broker.proxy.settings import ProxySettings, proxy_settings
from tests.config.test_in_effect import ALSO_READ, COMPUTED
from tests.proxy.proxy_config import ProxyConfig

ROOT = pathlib.Path(__file__).parents[2]
OF_CLIENTS = (
    "it is a key of clients: for the proxy's connections to the cluster, put it into the file of --upstream-config "
    "(in a program, upstream_config=)"
)
OF_BROKERS = "it is for the cluster's brokers; a proxy uses the keys of listeners, log-ins, rights and quotas"


def settings(*arguments: str, **environment: str) -> tuple[ProxySettings, list[str]]:
    return proxy_settings(
        parse_proxy_arguments(("--upstream", "a:1", *arguments)), environment, lambda: "here"
    )


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        (["-c", "num.partitions=3"], [f"num.partitions has no effect on a proxy: {OF_BROKERS} [from -c]"]),
        (
            ["-c", "log.dirs=/d", "-c", "node.id=7", "-c", "max.connections=5"],
            [
                f"log.dirs has no effect on a proxy: {OF_BROKERS} [from -c]",
                f"node.id has no effect on a proxy: {OF_BROKERS} [from -c]",
            ],
        ),
        # Kafka has it; oncelog does nothing with it.
        (
            ["-c", "background.threads=3"],
            [f"background.threads has no effect on a proxy: {OF_BROKERS} [from -c]"],
        ),
        (
            ["-c", "ssl.endpoint.identification.algorithm="],
            [f"ssl.endpoint.identification.algorithm has no effect on a proxy: {OF_CLIENTS} [from -c]"],
        ),
        (
            ["-c", "listener.name.plaintext.ssl.endpoint.identification.algorithm="],
            [
                "listener.name.plaintext.ssl.endpoint.identification.algorithm has no effect on a proxy: "
                f"{OF_CLIENTS} [from -c]"
            ],
        ),
        (
            ["-c", "super.users=User:app"],
            [
                "super.users has no effect on a proxy: there are no ACLs without authorizer.class.name [from -c]"
            ],
        ),
        (
            ["-c", "listener.name.other.ssl.client.auth=none"],
            [
                "listener.name.other.ssl.client.auth has no effect on a proxy: it has no listener OTHER; there are "
                "PLAINTEXT [from -c]"
            ],
        ),
        (
            ["-c", "listener.name.plaintext.num.partitions=3"],
            [f"listener.name.plaintext.num.partitions has no effect on a proxy: {OF_BROKERS} [from -c]"],
        ),
        (
            ["--pass-logins", "-c", "sasl.enabled.mechanisms=PLAIN"],
            ["sasl.enabled.mechanisms has no effect on a proxy: log-ins pass through it [from -c]"],
        ),
        (
            ["--listen", "127.0.0.1:1", "-c", "listeners=PLAINTEXT://127.0.0.1:2"],
            ["listeners has no effect beside --listen [from -c]"],
        ),
        (
            ["-c", "num.partition=3"],
            ["Unknown configuration num.partition (value 3); did you mean num.partitions? [from -c]"],
        ),
    ],
)
def test_what_has_no_effect_is_refused(arguments: Sequence[str], problems: Sequence[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(*arguments)
    assert list(caught.value.problems) == problems


def test_what_has_an_effect() -> None:
    found, warnings = settings("-c", "listeners=PLAINTEXT://127.0.0.1:7000", "-c", "max.connections=5")
    assert [row.bind.port for row in found.listeners] == [7000]
    assert found.config.max_connections == 5
    found, _ = settings("--user", "app:secret", "-c", "sasl.enabled.mechanisms=PLAIN")
    assert found.config.sasl_enabled_mechanisms == ("PLAIN",)
    acl = "User:app All topic:orders"
    found, _ = settings("--acl", acl, "-c", "super.users=User:root")
    assert found.config.texts["super.users"] == "User:root"
    assert warnings == []


def test_acls_that_have_no_effect() -> None:
    acl = "User:app All topic:orders"
    _, warnings = settings("--acl", acl)
    assert [text.partition(";")[0] for text in warnings] == [
        "--acl of User:app: no listener asks for a log-in, so all clients are User:ANONYMOUS"
    ]
    _, warnings = settings("--acl", acl, "--user", "app:secret")
    assert warnings == []
    with pytest.raises(ConfigError, match=r"--acl has no effect: authorizer\.class\.name is empty"):
        settings("--acl", acl, "-c", "authorizer.class.name=")


def test_variables_may_be_there_for_brokers() -> None:
    _, warnings = settings(KAFKA_NUM_PARTITIONS="3", KAFKA_LOG_DIRS="/d", KAFKA_MAX_CONNECTIONS="5")
    assert warnings == [
        "keys that have no effect on a proxy: log.dirs, num.partitions [from the environment]"
    ]


@pytest.mark.parametrize("name", ["num.partitions", "log.dirs", "group.initial.rebalance.delay.ms"])
def test_in_a_program(name: str) -> None:
    with pytest.raises(oncelog.InvalidArgumentError) as caught:
        oncelog.Proxy("127.0.0.1:1", config={name: 3})
    assert str(caught.value) == f"config {name} has no effect on a proxy: {OF_BROKERS}"


def test_in_a_program_what_has_an_effect() -> None:
    oncelog.Proxy("127.0.0.1:1", config={"max.connections": 5})
    oncelog.Proxy("127.0.0.1:1", acls=[], config={"super.users": "User:root"})


# -- the declarations are true


def test_a_proxy_in_a_test_reads_no_other_keys() -> None:
    config = ProxyConfig({"max.connections": "5"})
    assert config.max_connections == 5
    with pytest.raises(AssertionError, match=re.escape("a proxy reads num.partitions")):
        _ = config.num_partitions


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a module imports, at any time, but for those that only its types need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)
        yield from imported(node)


def modules_of(*roots: str) -> dict[str, str]:
    """The text of each module that these come to import."""
    found: dict[str, str] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        path = ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py")
        if name not in found and name.startswith("oncelog.") and path.exists():
            found[name] = path.read_text()
            waiting += imported(ast.parse(found[name]))
    return found


@pytest.mark.slow
def test_all_keys_of_proxies_are_read_in_what_a_proxy_imports() -> None:
    modules = modules_of("oncelog.broker.proxy.serve", "oncelog.broker.proxy.settings")
    assert "oncelog.broker.node.node" not in modules
    texts = [
        text
        for name, text in modules.items()
        if not name.startswith(("oncelog.broker.config.", "oncelog.broker.client."))
        or name.endswith(".listeners")
    ]
    read = set(re.findall(r"\.([a-z_]+)", "\n".join(texts)))
    named = set(re.findall(r'"((?:sasl|oncelog)\.[a-z.]+)"', "\n".join(texts))) | ALSO_READ
    named |= {name for attribute, names in COMPUTED.items() if attribute in read for name in names}
    unread = [
        name
        for name, key in BrokerConfig.KEYS.items()
        if key.of_proxies and key.in_effect and key.attribute not in read and name not in named
    ]
    assert unread == []


# -- docs/how-to/proxy.md: keys that a broker takes with a warning


def about_access(name: str) -> bool:
    return name.startswith(("ssl.", "sasl.", "security.")) or name in (
        "principal.builder.class",
        "client.quota.callback.class",
    )


def test_the_page_names_the_keys_that_a_broker_takes_and_a_proxy_refuses() -> None:
    _, _, after = (ROOT / "docs/how-to/proxy.md").read_text().partition("## Keys that `oncelog serve` takes")
    rows = [row.split("|") for row in after.partition("\n## ")[0].splitlines() if row.startswith("| `")]
    config = BrokerConfig({"authorizer.class.name": STANDARD_AUTHORIZER})
    access = {name for name in {*BrokerConfig.KEYS, *keys_without_effect()} if about_access(name)}
    without = {name for name in access if not config.has_effect(name)}
    named: list[set[str]] = []
    for _, cell, instead, _ in rows:
        found: set[str] = set()
        for pattern in re.findall(r"`([^`]+)`", cell):
            prefix = pattern.removesuffix("*")
            family = {name for name in access if name.startswith(prefix)} if prefix != pattern else {pattern}
            assert family, pattern
            found |= family
        assert not any(found & other for other in named)
        named.append(found)
        upstream = "--upstream-config" in instead
        assert all((name in client_keys.USED) == upstream for name in found), found
    assert set().union(*named) == without
    # So it is: the broker warns of them all, the proxy refuses each.
    texts = {name: keys_without_effect().get(name) or BrokerConfig.KEYS[name] for name in without}
    given = {name: key.to_text(key.default) or "1" for name, key in texts.items()}
    assert set(BrokerConfig(given).without_effect) == without
    with pytest.raises(ConfigError) as caught:
        settings(*(word for name, text in given.items() for word in ("-c", f"{name}={text}")))
    assert {problem.split(" has no effect on a proxy")[0] for problem in caught.value.problems} == without
