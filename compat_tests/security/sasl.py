"""Both targets with SASL listeners, and log-ins by stock clients."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka.abc
import aiokafka.admin
import aiokafka.errors
import kafka
import kafka.errors
import kafka.net.sasl.oauth
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.brokers import UNDISTURBED, UNDISTURBED_KAFKA, Broker, check_after, make_broker
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common.jars import RealPartMissing, require
from tests.common.process import free_ports
from tests.common.sasl_client import Closed, SaslClient

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "app", "app-secret, a=b"
SESSION_MS = 1500
IN, REFUSED, NO_MECHANISM = "in", "refused", "no such mechanism"
LOGIN_S = 20
PACE_MS = 25
BOOTSTRAP_MS = 3000
"""How long kafka-python tries again after a log-in that was refused."""

_PACKAGE = "org.apache.kafka.common.security"
_PLAIN = f'{_PACKAGE}.plain.PlainLoginModule required username="x" password="x" user_app="app-secret, a=b";'
_SCRAM = f"{_PACKAGE}.scram.ScramLoginModule required;"
_OAUTH = f'{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";'


def _listener(name: str) -> dict[str, str]:
    prefix = f"listener.name.{name}."
    return {
        f"{prefix}plain.sasl.jaas.config": _PLAIN,
        f"{prefix}scram-sha-256.sasl.jaas.config": _SCRAM,
        f"{prefix}scram-sha-512.sasl.jaas.config": _SCRAM,
        f"{prefix}oauthbearer.sasl.jaas.config": _OAUTH,
        f"{prefix}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    }


class SaslTarget:
    """A broker of a target, and the addresses of its listeners with SASL. A given ``data_dir`` is kept."""

    def __init__(self, name: str, data_dir: pathlib.Path | None = None, session_ms: int = SESSION_MS) -> None:
        self.name = name
        self._data_dir = data_dir
        sasl, session = free_ports(2)
        self.bootstrap = f"127.0.0.1:{sasl}"
        self.short_sessions = f"127.0.0.1:{session}"
        """The address of the listener whose sessions end after `session_ms`."""
        self.properties = {
            **UNDISTURBED,
            # A Kafka on oncelog's directory starts once oncelog's session is over: it must not last minutes.
            **(UNDISTURBED_KAFKA if name == "kafka" and data_dir is None else {}),
            "listeners": f"SASL_PLAINTEXT://{self.bootstrap},SESSION://{self.short_sessions}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SESSION:SASL_PLAINTEXT"
            ),
            **_listener("sasl_plaintext"),
            **_listener("session"),
            **{
                f"listener.name.session.{mechanism.lower()}.connections.max.reauth.ms": str(session_ms)
                for mechanism in (*MECHANISMS, "OAUTHBEARER")
            },
            "delegation.token.secret.key": "the-key",
            "connection.failed.authentication.delay.ms": "50",
        }
        self.broker: Broker

    @contextlib.contextmanager
    def running(self, *, with_user: bool = True) -> Iterator[SaslTarget]:
        """Run it; make a SCRAM user, unless the data directory has it."""
        try:
            with make_broker(self.name, self.properties, self._data_dir) as self.broker:
                if with_user:
                    self._add_user()
                for _ in check_after(self.broker):
                    yield self
        except RealPartMissing as missing:
            require(str(missing))

    def _add_user(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for result in admin.alter_user_scram_credentials([change]).values():
                result.result(LOGIN_S)


# -- sessions that end: nothing but a request of its client shows that one has, and Kafka's clock cannot be moved


def waiting_fetch(topic: str) -> FetchRequest:
    """A Fetch that the broker answers after `PACE_MS`: the topic has fewer bytes than it wants."""
    row = FetchTopic(
        topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)]
    )
    return FetchRequest(max_wait_ms=PACE_MS, min_bytes=1 << 30, topics=[row])


def until_closed(client: SaslClient, topic: str = "") -> Iterator[None]:
    """Send requests until the broker closes the connection; between them others have their turn.

    With the name of a topic, a request takes `PACE_MS`, and leaves the machine to others.
    """
    request = waiting_fetch(topic) if topic else MetadataRequest([])
    deadline = time.monotonic() + LOGIN_S
    with contextlib.suppress(Closed):
        while True:
            client.call(request, 12)
            assert time.monotonic() < deadline, "the session does not end"
            yield


def while_sessions_pass(
    address: str, count: int, mechanism: str = "PLAIN", password: str = PASSWORD, topic: str = ""
) -> Iterator[None]:
    """Go on until so many sessions of another client, by this mechanism, have ended, one after the other.

    The topic is that of `until_closed`.
    """
    for _ in range(count):
        with SaslClient(address) as witness:
            witness.log_in(mechanism, USER, password)
            yield from until_closed(witness, topic)


# -- clients: how a log-in ends


def confluent_settings(bootstrap: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    """Client settings; ``password`` is the token of OAUTHBEARER."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**settings, "oauth_cb": lambda _: (password, 4e9)}
    return {**settings, "sasl.username": user, "sasl.password": password}


def by_confluent(bootstrap: str, mechanism: str, user: str, password: str) -> str:
    said: list[str] = []
    settings = confluent_settings(bootstrap, mechanism, user, password)
    producer = Producer({**settings, "error_cb": lambda error: said.append(str(error))})
    while not said:
        producer.poll(0)
        try:
            producer.list_topics(timeout=1)
        except KafkaException:
            producer.poll(0.1)
            continue
        return IN
    if "mechanism" in said[0] and "unsupported" in said[0].lower():
        return NO_MECHANISM
    assert "uthentication" in said[0], said
    return REFUSED


class _Token(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def by_kafka_python(bootstrap: str, mechanism: str, user: str, password: str) -> str:
    more: dict[str, Any] = {"sasl_plain_username": user, "sasl_plain_password": password}
    if mechanism == "OAUTHBEARER":
        more = {"sasl_oauth_token_provider": _Token(password)}
    try:
        admin = kafka.KafkaAdminClient(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
            **more,
        )
    except kafka.errors.UnsupportedSaslMechanismError:
        return NO_MECHANISM
    except (kafka.errors.SaslAuthenticationFailedError, kafka.errors.KafkaTimeoutError):
        return REFUSED  # it tries again and again until the time is over
    admin.close()
    return IN


class _AioToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def by_aiokafka(bootstrap: str, mechanism: str, user: str, password: str) -> str:
    async def log_in() -> str:
        more: dict[str, Any] = {"sasl_plain_username": user, "sasl_plain_password": password}
        if mechanism == "OAUTHBEARER":
            more = {"sasl_oauth_token_provider": _AioToken(password)}
        client = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            **more,
        )
        try:
            await client.start()
        except aiokafka.errors.UnsupportedSaslMechanismError:
            return NO_MECHANISM
        except (aiokafka.errors.AuthenticationFailedError, aiokafka.errors.KafkaConnectionError):
            return REFUSED
        finally:
            await client.stop()
        return IN

    return asyncio.run(log_in())


CLIENTS: dict[str, Callable[[str, str, str, str], str]] = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}
