"""Stock clients whose sessions end (``connections.max.reauth.ms``): some renew their log-ins and go on, others are
disconnected and come again, on both targets and through a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import pathlib
import re
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import aiokafka
import pytest
from aiokafka.conn import CloseReason  # type: ignore[import-untyped,unused-ignore]
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer  # type: ignore[import-untyped,unused-ignore]

from compat_tests.brokers import TARGETS
from compat_tests.matrices import params_of
from compat_tests.proxy.running_proxy import RunningProxy
from compat_tests.security.client_programs import running
from compat_tests.security.logged_in_clients import (
    OAUTH_PACKAGE,
    OAUTHBEARER,
    Case,
    Said,
    Way,
    java_settings,
    librdkafka_settings,
)
from compat_tests.security.python_client import aiokafka_settings, kafka_python_settings
from compat_tests.security.sasl import MECHANISMS, PASSWORD, USER, SaslTarget, while_sessions_pass
from tests.common.jars import RealPartMissing, require
from tests.common.tokens import unsecured

pytestmark = pytest.mark.slow
SESSION_MS = 2500
"""franz-go renews a session a second before its end, and Kafka refuses a second renewal within a second."""
SESSIONS = 3
"""A client sends while so many sessions of another client end, one after the other."""
RENEWED_MIN = SESSIONS - 1
TIMEOUT_S = 30

PASSED, ENDED_HERE = "log-ins pass a proxy", "log-ins end at a proxy"


class Sender(NamedTuple):
    """A client in a program of another language, which sends records while sessions end. See `Way`."""

    client: str
    renews: bool
    mechanism: str = "PLAIN"
    has_bare_tokens: bool = False
    renewal_ms: int = 1000


SENDERS = {
    **{
        f"{client} by {mechanism}": Sender(client, renews=True, mechanism=mechanism)
        for client in ("java", "franz-go", "sarama", "kafkajs")
        for mechanism in (*MECHANISMS, OAUTHBEARER)
    },
    "sarama with bare tokens": Sender("sarama", renews=False, has_bare_tokens=True),
    "kafkajs whose renewals come too often": Sender("kafkajs", renews=False, renewal_ms=2 * SESSION_MS),
}


def parts_of(name: str) -> dict[str, Hashable]:
    """The values of a sender that meet each way in."""
    client, _, *more = SENDERS[name]
    return {"client": client, "how": tuple(more)}


def new_target(name: str) -> SaslTarget:
    return SaslTarget(name, session_ms=SESSION_MS)


@pytest.fixture(scope="module", params=[*TARGETS, PASSED, ENDED_HERE])
def kind(request: pytest.FixtureRequest) -> str:
    """Of a way in."""
    return str(request.param)


@pytest.fixture(scope="module")
def way(kind: str, upstream: str) -> Iterator[Way]:
    """Yield the address and credentials of a client whose sessions are short."""
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(new_target(kind if kind in TARGETS else upstream).running())
        servers = target.short_sessions
        if kind == PASSED:
            proxy = RunningProxy(servers, ["SASL_PLAINTEXT"], ["--pass-logins"])
            servers = stack.enter_context(proxy).addresses["SASL_PLAINTEXT"]
        elif kind == ENDED_HERE:
            properties = {
                "connections.max.reauth.ms": str(SESSION_MS),
                "sasl.enabled.mechanisms": ",".join((*MECHANISMS, OAUTHBEARER)),
                "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                    f'{OAUTH_PACKAGE}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";'
                ),
            }
            words = [word for key, text in properties.items() for word in ("-c", f"{key}={text}")]
            options = ["--user", f"{USER}:{PASSWORD}", *words]
            proxy = RunningProxy(target.broker.bootstrap, ["SASL_PLAINTEXT"], options)
            servers = stack.enter_context(proxy).addresses["SASL_PLAINTEXT"]
        yield Way(servers, "SASL_PLAINTEXT", mechanism="PLAIN", user=USER, password=PASSWORD)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_does_not_notice_the_sessions_of_a_proxy(
    mechanism: str, upstream: str, tmp_path: pathlib.Path
) -> None:
    """It does not log in; the proxy does, and renews its session with the requests of the client."""
    with new_target(upstream).running() as target:
        logged_in = Way("", "SASL_PLAINTEXT", mechanism=mechanism, user=USER, password=PASSWORD)
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in java_settings(logged_in).items()))
        options = ["--upstream-config", str(config)]
        with RunningProxy(target.short_sessions, ["PLAINTEXT"], options) as proxy:
            way = Way(proxy.addresses["PLAINTEXT"], "PLAINTEXT")
            run_librdkafka(way, target.short_sessions)


def test_librdkafka_renews_its_sessions(way: Way) -> None:
    run_librdkafka(way, way.servers)


def run_librdkafka(way: Way, sessions: str) -> None:
    """Send while sessions at the address `sessions` end."""
    told: list[str] = []
    errors: list[str] = []
    producer = Producer(
        {
            **librdkafka_settings(way),
            "statistics.interval.ms": 500,
            "stats_cb": told.append,
            "error_cb": lambda error: errors.append(str(error)),
        }
    )
    for _ in while_sessions_pass(sessions, SESSIONS):
        producer.produce("librdkafka", b"value")
        assert producer.flush(TIMEOUT_S) == 0
    brokers = json.loads(told[-1])["brokers"].values()
    connected = [broker for broker in brokers if broker["connects"]]
    assert {(broker["connects"], broker["disconnects"]) for broker in connected} == {(1, 0)}
    assert errors == []


def test_kafka_python_renews_its_sessions(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.net.connection")
    producer = KafkaProducer(**kafka_python_settings(way))
    try:
        for _ in while_sessions_pass(way.servers, SESSIONS):
            producer.send("kafka-python", b"value").get(TIMEOUT_S)
    finally:
        producer.close()
    logins = Counter(re.findall(r"host=\[(\S+)\].* Authenticated as app", caplog.text))
    """By connection: one to bootstrap from, and the producer's."""
    assert len(logins) <= 2
    assert max(logins.values()) > RENEWED_MIN


def test_aiokafka_is_disconnected_and_comes_again(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    """It does not know how to renew a session."""
    caplog.set_level(logging.DEBUG, "aiokafka.conn")

    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(**aiokafka_settings(way)) as producer:
            for _ in while_sessions_pass(way.servers, SESSIONS):
                await producer.send_and_wait("aiokafka", b"value")

    asyncio.run(send())
    broken = f"({CloseReason.CONNECTION_BROKEN}, 0 bytes read"
    closed = [record.getMessage() for record in caplog.records if "Closing connection" in record.msg]
    assert len([message for message in closed if broken in message]) >= RENEWED_MIN


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Callable[[Case], Said] | str]]:
    """The programs by client; a text says what the machine lacks for one."""
    folder = tmp_path_factory.mktemp("programs")
    found: dict[str, Callable[[Case], Said] | str] = {}
    with contextlib.ExitStack() as stack:
        for client in sorted({sender.client for sender in SENDERS.values()}):
            try:
                found[client] = stack.enter_context(running(client, folder))
            except RealPartMissing as missing:
                found[client] = str(missing)
        yield found


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A file with a token for the user that nobody signed."""
    path = tmp_path_factory.mktemp("token") / "token.jwt"
    now = int(time.time())
    path.write_text(unsecured({"sub": USER, "iat": now, "exp": now + 3600}))
    return path


@pytest.fixture(scope="module")
def said(
    request: pytest.FixtureRequest,
    kind: str,
    way: Way,
    programs: dict[str, Callable[[Case], Said] | str],
    token: pathlib.Path,
) -> dict[str, Future[list[Said]]]:
    """What each sender that a test wants says of each of its records. They send side by side."""
    tests = [params_of(item) for item in request.session.items if item.path == request.path]
    wanted = [one["name"] for one in tests if one.get("kind") == kind and "name" in one]
    port = way.servers.rpartition(":")[2]
    topics = {name: f"at-{port}-{number}" for number, name in enumerate(wanted)}
    admin = AdminClient(librdkafka_settings(way))
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics.values()]).values():
        made.result(TIMEOUT_S)
    # A Kafka's broker leads new partitions a moment after the response, and Sarama waits for that for 0.3 s.
    first = Producer(librdkafka_settings(way))
    for topic in topics.values():
        first.produce(topic, b"value")
    assert first.flush(TIMEOUT_S) == 0

    def send(name: str) -> list[Said]:
        sender = SENDERS[name]
        program = programs[sender.client]
        if isinstance(program, str):
            raise RealPartMissing(program)
        by_token = sender.mechanism == OAUTHBEARER
        own = dataclasses.replace(
            way,
            mechanism=sender.mechanism,
            token_file=str(token) if by_token and sender.client != "java" else "",  # Java makes one itself
            has_bare_tokens=sender.has_bare_tokens,
            renewal_ms=sender.renewal_ms,
        )
        case = Case(own, topics[name], "value", TIMEOUT_S, is_kept=True)
        shown = token.read_text() if by_token else PASSWORD
        passing = while_sessions_pass(way.servers, SESSIONS, sender.mechanism, shown, case.topic)
        return [program(case) for _ in passing]

    with ThreadPoolExecutor(len(wanted)) as pool:
        return {name: pool.submit(send, name) for name in wanted}


@pytest.mark.pairwise(name=parts_of)
@pytest.mark.parametrize("name", SENDERS)
def test_programs(kind: str, name: str, said: dict[str, Future[list[Said]]]) -> None:
    """Those that renew their sessions keep their connections; the others are disconnected, and come again."""
    sender = SENDERS[name]
    try:
        answers = said[name].result()
    except RealPartMissing as missing:
        require(str(missing))
    errors = [answer for answer in answers if answer.error]
    opened = [int(answer.value) for answer in answers if answer.value]
    if sender.has_bare_tokens and kind == PASSED:
        assert not opened  # docs/reference/differences.md
    elif sender.renews:
        # Java and Sarama have an eighth of a second for a renewal: on a busy machine one may come too late.
        assert (errors, opened[-1] - opened[0] < RENEWED_MIN) == ([], True), opened
    else:
        assert opened[-1] - opened[0] >= RENEWED_MIN
        assert not errors or sender.client == "kafkajs"
