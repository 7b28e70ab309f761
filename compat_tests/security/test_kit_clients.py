"""The settings that the test kit gives for clients of other languages let them in: passwords, certificates, tokens."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

import oncelog
from compat_tests.clients.stock_clients import run_kcat
from compat_tests.control.programs import java_program, javascript_program
from compat_tests.security.client_programs import PROGRAMS
from compat_tests.security.logged_in_clients import Case, Program, Said, Way
from compat_tests.security.secured import allow_urls
from tests.common.jars import RealPartMissing, require

pytestmark = pytest.mark.slow

USERS = {"app": 'secret "1\\'}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["by-app"], users=USERS, tls=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def certified() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["by-app"], tls=True, config={"ssl.client.auth": "required"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def with_tokens() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(oauth=True, tls=True) as broker:
        yield broker


def run(command: list[str], kafka: oncelog.Broker, client: str, **how: Any) -> Said:
    """Run a program's transaction with the kit's settings. Returns its words about it and its record."""
    topic = f"{client}-{how.get('mechanism', 'other')}".lower()
    kafka.create_topics([topic])
    program = Program(command, lambda _: kafka.client_config(client, **how))
    try:
        return program(Case(Way("", ""), topic, "value", TIMEOUT_S))
    finally:
        program.close()


@pytest.mark.parametrize("client", ["java", "kafkajs"])
def test_a_program(
    client: str, kafka: oncelog.Broker, certified: oncelog.Broker, tmp_path: pathlib.Path
) -> None:
    try:
        if client == "java":
            command = java_program(tmp_path, PROGRAMS / "LoggedInClient.java")
        else:
            command = javascript_program(tmp_path, PROGRAMS / "client.mjs")
    except RealPartMissing as missing:
        require(str(missing))
    for mechanism in MECHANISMS:
        assert run(command, kafka, client, user="app", mechanism=mechanism) == Said("value")
    assert run(command, certified, client, certificate="app") == Said("value")
    assert certified.wait_for("EndTxn").principal == "User:CN=app,O=oncelog development"


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the Java program, which may read a token from the file ``token`` beside it."""
    folder = tmp_path_factory.mktemp("java")
    try:
        command = java_program(folder, PROGRAMS / "LoggedInClient.java")
    except RealPartMissing as missing:
        require(str(missing))
    return [command[0], allow_urls((folder / "token").as_uri()), *command[1:], str(folder / "token")]


def test_tokens_in_java(with_tokens: oncelog.Broker, java: list[str]) -> None:
    *command, path = java
    taken = {"token": "shop", "token_file": path}
    assert run(command, with_tokens, "java", **taken) == Said("value")
    assert with_tokens.wait_for("EndTxn").principal == "User:shop"
    for refused, why in (
        (with_tokens.token("shop", audience="others"), "the token is for another audience"),
        (with_tokens.token("shop", of_a_stranger=True), "the token's signature is not that of key"),
    ):
        with_tokens.reset()
        said = run(command, with_tokens, "java", token=refused, token_file=path)
        assert (said.error, said.text) == ("SaslAuthenticationException", '{"status":"invalid_token"}')
        assert why in with_tokens.wait_for_failed_login().reason


def test_tokens_in_kafkajs(with_tokens: oncelog.Broker, tmp_path: pathlib.Path) -> None:
    try:
        command = javascript_program(tmp_path, PROGRAMS / "client.mjs")
    except RealPartMissing as missing:
        require(str(missing))
    with_tokens.reset()
    assert run(command, with_tokens, "kafkajs", token="shop") == Said("value")
    with_tokens.reset()
    expired = with_tokens.token("shop", expired=True)
    assert run(command, with_tokens, "kafkajs", token=expired).error
    assert "the token has expired" in with_tokens.wait_for_failed_login().reason


def test_kcat(kafka: oncelog.Broker, certified: oncelog.Broker) -> None:
    for broker, how in ((kafka, {"user": "app", "mechanism": "PLAIN"}), (certified, {"certificate": "app"})):
        settings = broker.client_config("kcat", **how)
        words = [word for key, text in settings.items() for word in ("-X", f"{key}={text}")]
        run_kcat(broker.bootstrap_servers, *words, "-P", "-t", "by-app", input=b"value")
        assert [record.value for record in broker.topic("by-app").records()] == [b"value"]
