"""Listeners and advertised listeners."""

import pytest

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import (
    ListenerConfig,
    ListenerEndpoint,
    parse_endpoint,
    resolve_listeners,
)


def resolved(**texts: str) -> list[str]:
    """Return each listener as ``listener > advertised listener``."""
    config = BrokerConfig({name.replace("_", "."): text for name, text in texts.items()})
    return [f"{one.bind} > {one.advertised}" for one in resolve_listeners(config, lambda: "me")[0]]


def refusal(**texts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolved(**texts)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://localhost:9092", ListenerEndpoint("PLAINTEXT", "localhost", 9092)),
        ("plaintext://h:0", ListenerEndpoint("PLAINTEXT", "h", 0)),
        ("A://:1", ListenerEndpoint("A", "", 1)),
        ("A://[::1]:1", ListenerEndpoint("A", "::1", 1)),
        ("A://[fe80::1%eth0]:1", ListenerEndpoint("A", "fe80::1%eth0", 1)),
        ("A://my_host-1.example:65535", ListenerEndpoint("A", "my_host-1.example", 65535)),
    ],
)
def test_endpoints(text: str, endpoint: ListenerEndpoint) -> None:
    assert parse_endpoint(text) == endpoint


def test_an_endpoint_is_written_as_it_is_read() -> None:
    assert str(parse_endpoint("A://[::1]:1")) == "A://[::1]:1"


@pytest.mark.parametrize(
    "text",
    [
        "foo",
        "://h:1",
        "A://h",
        "A://h:",
        "A://h:x",
        "A://h:65536",
        "A://h:-1",
        "A://a b:9",
        "A://é:1",
        "A://h:²",
    ],
)
def test_malformed_endpoints(text: str) -> None:
    with pytest.raises(ValueError, match="Unable to parse"):
        parse_endpoint(text)


def test_the_default_is_this_machine_only() -> None:
    assert resolved() == ["PLAINTEXT://127.0.0.1:9092 > PLAINTEXT://127.0.0.1:9092"]


def test_kafkas_own_server_properties() -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
        }
    )
    found, warnings = resolve_listeners(config, lambda: "me")
    assert found == [
        ListenerConfig(
            ListenerEndpoint("PLAINTEXT", "", 9092),
            ListenerEndpoint("PLAINTEXT", "localhost", 9092),
            "PLAINTEXT",
        )
    ]
    assert warnings == ["listener CONTROLLER://:9093 is the controller's: not opened, oncelog needs none"]


def test_a_listener_at_every_address_advertises_the_host_name() -> None:
    assert resolved(listeners="PLAINTEXT://:9092") == ["PLAINTEXT://:9092 > PLAINTEXT://me:9092"]


def test_two_listeners_each_advertise_their_own_address() -> None:
    assert resolved(
        listeners="INSIDE://0.0.0.0:29092,OUTSIDE://0.0.0.0:9092",
        advertised_listeners="INSIDE://kafka:29092,OUTSIDE://localhost:9092",
        listener_security_protocol_map="INSIDE:PLAINTEXT, outside:plaintext",
    ) == [
        "INSIDE://0.0.0.0:29092 > INSIDE://kafka:29092",
        "OUTSIDE://0.0.0.0:9092 > OUTSIDE://localhost:9092",
    ]


def test_a_listener_need_not_be_advertised() -> None:
    assert resolved(
        listeners="PLAINTEXT://a:1,B://b:2",
        advertised_listeners="PLAINTEXT://a:1",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    ) == ["PLAINTEXT://a:1 > PLAINTEXT://a:1", "B://b:2 > None"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"listeners": "PLAINTEXT://0.0.0.0:9092"},
            "listeners=PLAINTEXT://0.0.0.0:9092: "
            "clients cannot be told to connect to 0.0.0.0: set --advertise HOST:PORT",
        ),
        (
            {"advertised_listeners": "PLAINTEXT://[::]:9092"},
            "advertised.listeners=PLAINTEXT://[::]:9092: "
            "clients cannot be told to connect to ::: set --advertise HOST:PORT",
        ),
        ({"listeners": ""}, "listeners=: there is no listener for clients"),
        ({"listeners": "CONTROLLER://:1"}, "listeners=CONTROLLER://:1: there is no listener for clients"),
        (
            {"listeners": "FOO://a:1"},
            "listeners=FOO://a:1: No security protocol defined for listener FOO: "
            "listener.security.protocol.map=FOO:PLAINTEXT defines one",
        ),
        (
            {"listeners": "PLAINTEXT://a:1,plaintext://b:2"},
            "listeners=PLAINTEXT://a:1,plaintext://b:2: each listener must have a different name",
        ),
        (
            {"listeners": "PLAINTEXT://a:1,SSL://a:1"},
            "listeners=PLAINTEXT://a:1,SSL://a:1: each listener must have a different address",
        ),
        (
            {"advertised_listeners": "B://a:1"},
            "advertised.listeners=B://a:1: B://a:1 is advertised, but listeners has no B",
        ),
        (
            {"advertised_listeners": "CONTROLLER://a:1"},
            "advertised.listeners=CONTROLLER://a:1: there must be at least one advertised listener for clients",
        ),
        (
            {"listener_security_protocol_map": "A"},
            "listener.security.protocol.map=A: A is not NAME:PROTOCOL with a known protocol",
        ),
        (
            {"listeners": "foo"},
            "listeners=foo: Unable to parse foo to a broker endpoint, expected NAME://HOST:PORT",
        ),
    ],
)
def test_invalid_listeners(texts: dict[str, str], message: str) -> None:
    assert refusal(**texts) == message


def test_a_refusal_says_where_the_key_came_from() -> None:
    config = BrokerConfig({"listeners": "FOO://a:1"}, {"listeners": "f:3"})
    with pytest.raises(ConfigError, match=r"\[from f:3\]$"):
        resolve_listeners(config, lambda: "me")
