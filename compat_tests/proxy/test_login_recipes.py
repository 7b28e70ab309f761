"""docs/proxy.md, "Log-in in the middle": every command, with the files beside it, before a secured broker."""

from __future__ import annotations

import pathlib
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

import oncelog
from compat_tests.pages.recipes import ROOT, recipes
from tests.common.certificates import Authority, pem_listener
from tests.common.oncelog_process import Process

PAGE = ROOT / "docs" / "proxy.md"
AUTHORITY = Authority()
OPEN, SECURED, LISTEN = "127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:19092"
USERS = {"prod-app": "prod-secret", "prod-guest": "guest-secret"}
TOPIC_DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


def commands() -> list[str]:
    found: list[str] = re.findall(r"(?m)^    (oncelog proxy .*)$", PAGE.read_text())
    return [command for command in found if "--user" in command or "--upstream-config" in command]


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, oncelog.Broker]]:
    config = {
        **pem_listener(AUTHORITY.identity("server"), AUTHORITY, listeners="SASL_SSL://127.0.0.1:0"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    }
    topics = ["orders", "other"]
    with (
        oncelog.Broker(topics=topics) as plain,
        oncelog.Broker(topics=topics, users=USERS, config=config) as secured,
    ):
        yield {OPEN: plain, SECURED: secured}


def login(user: str, password: str) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def error_of(servers: str, topic: str = "orders", **settings: Any) -> int | None:
    """The error of a record that a client writes."""
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": servers, "message.timeout.ms": 5000, "log_level": 0, **settings},
        on_delivery=lambda error, _: errors.append(error),
    )
    producer.produce(topic, b"coffee")
    producer.flush(10)
    [error] = errors
    return None if error is None else error.code()


@pytest.mark.parametrize("command", commands())
def test_a_command(command: str, tmp_path: pathlib.Path, clusters: dict[str, oncelog.Broker]) -> None:
    for recipe in recipes(PAGE).values():
        for name, text in recipe.files.items():
            if name.endswith((".properties", ".toml")):
                (tmp_path / name).write_text(text)
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "ca.pem").write_bytes(AUTHORITY.pem)
    [upstream] = [address for address in clusters if address in command]
    cluster = clusters[upstream]
    words = shlex.split(command.replace(upstream, cluster.bootstrap_servers).replace(LISTEN, "127.0.0.1:0"))
    process = Process(tmp_path, *words[1:], cwd=tmp_path, command=(sys.executable, "-P", "-m", "oncelog"))
    try:
        servers = process.wait_ready()["address"]
        if "--pass-logins" in command:
            assert error_of(servers, **login("prod-app", "prod-secret")) is None
            assert error_of(servers, **login("prod-app", "wrong")) is not None
        elif "--user" in command:
            assert error_of(servers, **login("app", "app-secret")) is None
            assert error_of(servers) is not None
            denied = TOPIC_DENIED if "--acl" in command else None
            assert error_of(servers, "other", **login("app", "app-secret")) == denied
        else:
            assert error_of(servers) is None
        user = "User:ANONYMOUS" if upstream == OPEN else "User:prod-app"
        assert cluster.requests("Produce")[-1].principal == user
        assert process.end(signal.SIGTERM) == 0
    finally:
        process.close()


def test_there_are_recipes() -> None:
    assert len(commands()) == 5
