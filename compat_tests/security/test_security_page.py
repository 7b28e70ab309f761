"""docs/how-to/security.md: its set-ups are run, and its clients' settings are those that `test_clients` runs."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
import shlex
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

import oncelog
from compat_tests.clients.stock_clients import run_kcat
from compat_tests.control.programs import java_program
from compat_tests.oncelog_server import ROOT
from compat_tests.security.client_programs import PROGRAMS, PYTHON
from compat_tests.security.logged_in_clients import (
    OAUTHBEARER,
    Case,
    Program,
    Said,
    Way,
    java_settings,
    librdkafka_settings,
    plain_settings,
    run_kcat_case,
)
from compat_tests.security.python_client import (
    AioTokenFile,
    KafkaTokenFile,
    aiokafka_settings,
    kafka_python_settings,
)
from compat_tests.security.secured import allow_urls
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common.jars import RealPartMissing, require, run_tool
from tests.common.process import Process, free_ports
from tests.common.sasl_client import SaslClient
from tests.common.tokens import Issuer, key_set

PAGE = ROOT / "docs" / "how-to" / "security.md"
TOOLS = {
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}
TOKENS = "kafka-delegation-tokens.sh", "org.apache.kafka.tools.DelegationTokenCommand"
CA = "certs/ca.pem"
RUN = "/run/app"
WAYS = {
    "Clients with a password": Way(
        "127.0.0.1:9092", "SASL_SSL", CA, "", "SCRAM-SHA-512", "app", "app-secret"
    ),
    "Clients with a certificate": Way("127.0.0.1:9093", "SSL", CA, "certs/client.pem"),
    "Clients with a token": Way(
        "127.0.0.1:9092", "SASL_SSL", CA, "", OAUTHBEARER, "app", token_file="/run/app/token.jwt"
    ),
}
START_TIMEOUT_S = 30
TIMEOUT_S = 60.0
REFUSED_S = 5.0


def block(heading: str, first: str) -> list[str]:
    """The lines of code after the first line that begins with `first`, below a heading."""
    _, _, after = PAGE.read_text().partition(f"\n## {heading}\n")
    _, _, after = re.split(r"(?m)^## ", after)[0].partition(f"\n{first}")
    found: list[str] = []
    for line in after.splitlines()[1:]:
        if line.startswith("    "):
            found.append(line[4:])
        elif found and line:
            break
    assert found, (heading, first)
    return [line for line in found if line]


def commands(tool: str) -> list[list[str]]:
    """The words of every command of the page that begins with `tool`."""
    return [shlex.split(line) for line in PAGE.read_text().splitlines() if line.startswith(f"    {tool} ")]


def file_of_page(name: str) -> list[str]:
    """The lines of a file on the page, without its name."""
    lines = PAGE.read_text().splitlines()
    start = lines.index(f"    # {name}") + 1
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("    "))
    return [line[4:] for line in lines[start:end]]


def run_oncelog(*arguments: str) -> Process:
    command = [sys.executable, "-m", "oncelog", *arguments]
    env = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return Process(command, env, without=("KAFKA_", "ONCELOG_"))


@contextlib.contextmanager
def ready(process: Process) -> Iterator[str]:
    """The ready line of a broker."""
    try:
        line = process.stdout.wait_for("oncelog ready", START_TIMEOUT_S)
        assert line, process.output()
        yield line
    finally:
        process.end(kill=True)


def comparable(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with the token that they read instead of the function or object that reads it."""
    found = dict(settings)
    if "oauth_cb" in found:
        found["oauth_cb"] = found["oauth_cb"]("")[0]
    provider = found.get("sasl_oauth_token_provider")
    if provider is not None:
        token = provider.token()
        found["sasl_oauth_token_provider"] = token if isinstance(token, str) else asyncio.run(token)
    return found


@pytest.mark.parametrize("heading", WAYS)
def test_the_settings_are_those_that_are_run(heading: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "token.jwt").write_text("the token")
    way = replace(WAYS[heading], token_file=WAYS[heading].token_file.replace(RUN, str(tmp_path)))
    contexts: list[dict[str, Any]] = []
    names = {
        "create_ssl_context": lambda **files: contexts.append(files),
        "AioTokenFile": AioTokenFile,
        "KafkaTokenFile": KafkaTokenFile,
        "Path": pathlib.Path,
        "time": time,
    }

    def lines(first: str) -> list[str]:
        return [line.replace(RUN, str(tmp_path)) for line in block(heading, first)]

    def shown(client: str) -> dict[str, Any]:
        return comparable(eval("\n".join(lines(client)), names))

    assert dict(line.split("=", 1) for line in lines("Java")) == java_settings(way)
    assert shown("confluent-kafka") == comparable(librdkafka_settings(way))
    assert shown("kafka-python") == comparable(kafka_python_settings(way))
    plain = replace(way, protocol="SASL_PLAINTEXT", ca="", certificate="")
    expected = {**aiokafka_settings(plain), "security_protocol": way.protocol, "ssl_context": None}
    assert shown("aiokafka") == comparable(expected)
    assert contexts == [{"cafile": way.ca, **({"certfile": way.certificate} if way.certificate else {})}]


@pytest.mark.parametrize("heading", WAYS)
def test_the_lines_of_go_and_javascript_stand_in_the_programs(heading: str) -> None:
    programs = "".join(file.read_text() for file in [*PROGRAMS.glob("go/*.go"), PROGRAMS / "client.mjs"])
    lines = [
        line
        for line in PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()
        if line.startswith("    ")
        and line.split()[0].startswith(("kgo", "config.", "pair", "made", "const", "return", "token,"))
    ]
    assert len(lines) >= 3
    assert [line for line in lines if line.strip() not in programs] == []


@pytest.mark.parametrize(
    ("heading", "first"),
    [("One user, at once", "may be"), ("OAUTHBEARER with tokens that nobody signed", "believes")],
)
def test_a_broker_of_one_command(heading: str, first: str) -> None:
    started = shlex.split(PAGE.read_text().partition(f"\n## {heading}\n\n")[2].splitlines()[0])
    port = free_ports(1)[0]
    arguments = [word.replace("127.0.0.1:9092", f"127.0.0.1:{port}") for word in started[1:]]
    arguments += [] if "--listen" in arguments else ["--port", str(port)]
    with ready(run_oncelog(*arguments, "--memory")):
        words = shlex.split(block(heading, first)[0].partition("| kcat ")[2])
        assert words[:2] == ["-b", "127.0.0.1:9092"]
        run_kcat(f"127.0.0.1:{port}", *words[2:], input=b"hello")
        settings = words[2 : words.index("-P")]
        read = run_kcat(f"127.0.0.1:{port}", *settings, "-C", "-t", "greetings", "-e", "-q")
        assert read.stdout == b"hello\n"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    make_certificates(commands("oncelog certs")[0], tmp_path)
    return tmp_path


def make_certificates(words: list[str], folder: pathlib.Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "oncelog", *words[1:]],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr


def test_certificates_of_one_authority(tmp_path: pathlib.Path) -> None:
    for words in commands("oncelog certs")[1:]:
        make_certificates(words, tmp_path)
    context = ssl.create_default_context(cafile=str(tmp_path / "first" / "ca.pem"))
    context.load_cert_chain(tmp_path / "second" / "client.pem")
    for folder, why in (("first", None), ("expired", "certificate has expired")):
        config = {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tmp_path / folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "first" / "ca.pem"),
            "ssl.client.auth": "required",
        }
        with oncelog.Broker(config=config) as kafka:
            if why is None:
                with SaslClient(kafka.bootstrap_servers, context) as client:
                    assert client.call(MetadataRequest([]), 12).error_code == 0
                assert kafka.wait_for("Metadata").principal == "User:CN=audit,O=oncelog development"
            else:
                with pytest.raises(ssl.SSLCertVerificationError, match=why):
                    SaslClient(kafka.bootstrap_servers, context)


def test_who_may_do_what() -> None:
    [words] = [one for one in commands("oncelog --user") if "--acl" in one]
    port = free_ports(1)[0]
    with ready(run_oncelog(*words[1:], "--port", str(port), "--memory")):

        def settings(user: str) -> dict[str, Any]:
            way = Way(f"127.0.0.1:{port}", "SASL_PLAINTEXT", "", "", "PLAIN", user, f"{user}-secret")
            return librdkafka_settings(way)

        said: dict[str, KafkaError | None] = {}

        def note(error: KafkaError | None, message: Any) -> None:
            said[message.topic()] = error

        for topic in ("greetings", "others"):
            producer = Producer(settings("app"))
            producer.produce(topic, b"hello", on_delivery=note)
            assert producer.flush(TIMEOUT_S) == 0
        assert said["greetings"] is None
        assert said["others"] is not None
        assert said["others"].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        consumer = Consumer({**settings("app"), "group.id": "greetings", "auto.offset.reset": "earliest"})
        consumer.subscribe(["greetings"])
        record = consumer.poll(TIMEOUT_S)
        assert record is not None
        assert record.value() == b"hello"
        consumer.close()
        admin = AdminClient(settings("admin"))
        assert "greetings" in admin.list_topics(timeout=TIMEOUT_S).topics


def test_a_broker_with_everything(folder: pathlib.Path) -> None:
    ports = dict(zip(("127.0.0.1:9092", "127.0.0.1:9093"), free_ports(2), strict=True))

    def here(text: str) -> str:
        for address, port in ports.items():
            text = text.replace(address, f"127.0.0.1:{port}")
        return re.sub(r"(^|=)certs/", rf"\1{folder}/certs/", text)

    for name in ("server.properties", "admin.properties"):
        (folder / name).write_text("".join(here(line) + "\n" for line in file_of_page(name)))
    with (
        ready(run_oncelog("--config", str(folder / "server.properties"), "--memory")),
        contextlib.ExitStack() as stack,
    ):
        try:
            for tool, main_class in TOOLS.items():
                for words in commands(tool):
                    arguments = [here(word).replace("admin.p", f"{folder}/admin.p") for word in words[1:]]
                    listed = run_tool(main_class, *arguments).stdout
            java = java_program(folder, PROGRAMS / "LoggedInClient.java")
        except RealPartMissing as missing:
            require(str(missing))
        assert "User:CN=app,O=oncelog development" in listed
        python = [sys.executable, "-m", "compat_tests.security.python_client", "confluent-kafka"]
        runners = {"java": Program(java, java_settings), "confluent": Program(python, plain_settings)}
        for runner in runners.values():
            stack.callback(runner.close)
        for way in WAYS.values():
            if way.token_file:
                continue
            fields = {**vars(way), "servers": here(way.servers), "ca": here(way.ca)}
            fields["certificate"] = here(way.certificate)
            case = Case(Way(**fields), "greetings", "hello", TIMEOUT_S)
            assert {name: run(case) for name, run in runners.items()} == dict.fromkeys(runners, Said("hello"))
        assert run_kcat_case(case) == Said("hello")


def test_delegation_tokens(tmp_path: pathlib.Path) -> None:
    """The tool's commands in the page's order; Java logs in by the token before its end, and not after."""
    heading = "Delegation tokens"
    started = shlex.split(PAGE.read_text().partition(f"\n## {heading}\n\n")[2].splitlines()[0])
    port = free_ports(1)[0]
    filled = {"127.0.0.1:9092": f"127.0.0.1:{port}", "app.properties": f"{tmp_path}/app.properties"}

    def fill(text: str) -> str:
        for name, value in filled.items():
            text = text.replace(name, value)
        return text

    (tmp_path / "app.properties").write_text("\n".join(file_of_page("app.properties")))
    with (
        ready(run_oncelog(*started[1:], "--port", str(port), "--memory")),
        contextlib.ExitStack() as stack,
    ):
        tool, main_class = TOKENS
        create, *changes, expire = commands(tool)
        try:
            made = run_tool(main_class, *map(fill, create[1:])).stdout
            program = java_program(tmp_path, PROGRAMS / "LoggedInClient.java")
        except RealPartMissing as missing:
            require(str(missing))
        filled["TOKENID"], filled["HMAC"] = made.splitlines()[-1].split()[:2]
        settings = dict(fill(line).split("=", 1) for line in block(heading, "Java"))
        java = Program(program, lambda way: settings)
        stack.callback(java.close)
        case = Case(Way("", ""), "greetings", "hello", TIMEOUT_S)
        for words in changes:
            listed = run_tool(main_class, *map(fill, words[1:])).stdout
        assert filled["TOKENID"] in listed
        assert java(case) == Said("hello")
        run_tool(main_class, *map(fill, expire[1:]))
        assert java(case).error == "SaslAuthenticationException"


def test_the_lines_for_tokens_in_go_stand_in_the_program() -> None:
    shown = block("Delegation tokens", "franz-go")
    assert len(shown) == 2
    assert all(line in (PROGRAMS / "go" / "franz.go").read_text() for line in shown)


def test_a_broker_with_signed_tokens(folder: pathlib.Path) -> None:
    port = free_ports(1)[0]

    def here(text: str) -> str:
        text = text.replace("127.0.0.1:9092", f"127.0.0.1:{port}").replace(RUN, str(folder))
        return re.sub(r"(^|=)certs/", rf"\1{folder}/certs/", text)

    issuer, stranger = Issuer(), Issuer()
    (folder / "keys.json").write_bytes(key_set(issuer))
    claims = {"sub": "app", "aud": "brokers", "iss": "https://issuer.example", "iat": time.time(), "exp": 4e9}
    (folder / "token.jwt").write_text(issuer.token(claims))
    (folder / "strange.jwt").write_text(stranger.token(claims))
    settings = folder / "tokens.properties"
    settings.write_text("".join(here(line) + "\n" for line in file_of_page("tokens.properties")))
    shown = WAYS["Clients with a token"]
    way = replace(shown, servers=here(shown.servers), ca=here(shown.ca), token_file=here(shown.token_file))
    strange = replace(way, token_file=str(folder / "strange.jwt"))
    with ready(run_oncelog("--config", str(settings), "--memory")), contextlib.ExitStack() as stack:
        try:
            java, *options = java_program(folder, PROGRAMS / "LoggedInClient.java")
        except RealPartMissing as missing:
            require(str(missing))
        allowed = allow_urls(*(pathlib.Path(one.token_file).as_uri() for one in (way, strange)))
        runners = {"java": Program([java, allowed, *options], java_settings)}
        for client in PYTHON:
            command = [sys.executable, "-m", "compat_tests.security.python_client", client]
            runners[client] = Program(command, plain_settings)
        for client, runner in runners.items():
            stack.callback(runner.close)
            assert runner(Case(way, f"greetings-{client}", "hello", TIMEOUT_S)) == Said("hello")
            refused = runner(Case(strange, f"greetings-{client}", "hello", REFUSED_S))
            assert not refused.value
            assert refused.error
