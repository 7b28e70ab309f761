"""Tokens that the test kit signs (``oauth=True``): who gets in with them, and the reasons of who does not."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import oncelog
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common.sasl_client import Closed, LoginFailed, SaslClient

USERS = {"app": "secret"}
TIMEOUT_S = 60
TOLD = '{"status":"invalid_token"}'


@pytest.mark.slow
def test_confluent_kafka() -> None:
    with oncelog.Broker(topics=["t"], oauth=True, tls=True) as kafka:
        producer = Producer(kafka.client_config(token="shop"))
        producer.produce("t", b"value")
        assert producer.flush(60) == 0
        assert kafka.wait_for("Produce").principal == "User:shop"
        assert kafka.failed_logins() == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python() -> None:
    from kafka import KafkaProducer

    with oncelog.Broker(topics=["t"], oauth=True) as kafka:
        producer = KafkaProducer(**kafka.client_config("kafka-python", token="shop"))
        producer.send("t", b"value").get(60)
        producer.close()
        assert kafka.wait_for("Produce").principal == "User:shop"


def test_aiokafka() -> None:
    async def main() -> None:
        async with oncelog.AsyncBroker(topics=["t"], oauth=True, tls=True) as kafka:
            async with AIOKafkaProducer(**kafka.client_config("aiokafka", token="shop")) as producer:
                await producer.send_and_wait("t", b"value")
            assert (await kafka.wait_for("Produce")).principal == "User:shop"

    asyncio.run(main())


@pytest.mark.slow
def test_users_and_tokens_at_once() -> None:
    with oncelog.Broker(users=USERS, oauth=True, process=True) as kafka:
        for settings in (kafka.client_config(user="app"), kafka.client_config(token="shop")):
            assert AdminClient(settings).list_topics(timeout=60).brokers


@pytest.mark.slow
def test_through_a_proxy() -> None:
    with (
        oncelog.Broker(topics=["t"]) as cluster,
        oncelog.Proxy(cluster.bootstrap_servers, oauth=True) as kafka,
    ):
        assert "t" in AdminClient(kafka.client_config(token="shop")).list_topics(timeout=60).topics
        refused = str(kafka.token("shop", expired=True))
        with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
            client.log_in("OAUTHBEARER", "", refused)
        assert "the token has expired" in kafka.wait_for_failed_login().reason


# -- the reasons

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"expired": True}, "the token has expired: exp is "),
    "not yet valid": ({"not_yet_valid": True}, "the token is not yet valid: nbf is "),
    "audience": (
        {"audience": "others"},
        'the token is for another audience: aud is "others"; expected oncelog (sasl.oauthbearer.expected.audience)',
    ),
    "issuer": ({"issuer": "me"}, 'the token is of another issuer: iss is "me"; expected https://issuer.'),
    "no subject": ({"claims": {"sub": None}}, "the token has no subject: sub is null"),
    "signature": ({"of_a_stranger": True}, "the token's signature is not that of key oncelog-1"),
    "key id": ({"key_id": "other"}, 'the token\'s key id is unknown: kid is "other"; there are oncelog-1'),
    "algorithm": ({"unsigned": True}, "the token is malformed: expected header.claims.signature"),
    "scope": ({"claims": {"scope": ["a", "a"]}}, "the token's scopes must differ"),
}


@pytest.fixture(scope="module")
def shared() -> Any:
    with oncelog.Broker(oauth=True, config={"connection.failed.authentication.delay.ms": 0}) as kafka:
        yield kafka


@pytest.mark.parametrize("case", REFUSED)
def test_the_broker_says_why_and_the_client_learns_no_more(shared: oncelog.Broker, case: str) -> None:
    made, why = REFUSED[case]
    shown = shared.token("shop", **made)
    before = next(reversed(shared.failed_logins()), None)
    with SaslClient(shared.bootstrap_servers) as client:
        client.handshake("OAUTHBEARER")
        assert client.authenticate(f"n,,\1auth=Bearer {shown}\1\1".encode()) == TOLD.encode()
        with pytest.raises(LoginFailed) as failed:
            client.authenticate(b"\1")
        assert failed.value.message == TOLD
        with pytest.raises(Closed):
            client.call(MetadataRequest([]), 12)
    said = shared.wait_for_failed_login(after=before)
    assert said.reason.startswith(f"OAUTHBEARER: {why}")
    assert (said.step, said.mechanism) == ("SASL", "OAUTHBEARER")
    assert said.principal == (None if case == "no subject" else "User:shop")
    assert [one for one in shared.failed_logins() if before is None or one.number > before.number] == [said]
    assert shown.text.split(".")[1] not in repr(said) + "".join(shared.log_lines)


def test_the_log_says_why_once_for_each_client_that_is_turned_away() -> None:
    with oncelog.Broker(oauth=True) as kafka:
        with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
            client.log_in("OAUTHBEARER", "", str(kafka.token("shop", audience="others")))
        kafka.wait_for_failed_login()
        [line] = [line for line in kafka.log_lines if "connection closed" in line]
        assert "authentication failed: OAUTHBEARER: the token is for another audience: aud is" in line


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_client_that_does_not_end_a_refused_log_in(goes_on: bool) -> None:
    """aiokafka and kafkajs take the refusal for success; franz-go closes the connection."""
    with oncelog.Broker(oauth=True) as kafka:
        with SaslClient(kafka.bootstrap_servers) as client:
            client.handshake("OAUTHBEARER")
            client.authenticate(f"n,,\1auth=Bearer {kafka.token('shop', issuer='me')}\1\1".encode())
            failed = kafka.wait_for_failed_login(timeout=60)
            assert "the token is of another issuer" in failed.reason
            if goes_on:
                with pytest.raises(Closed):
                    client.call(MetadataRequest([]), 12)
        end = time.monotonic() + TIMEOUT_S
        while not (closed := [line for line in kafka.log_lines if "connection closed" in line]):
            assert time.monotonic() < end
        assert "the token is of another issuer" in closed[0]
        assert len(closed) == 1
        assert kafka.failed_logins() == [failed]


def test_a_second_token_may_be_right() -> None:
    with oncelog.Broker(oauth=True) as kafka:
        with SaslClient(kafka.bootstrap_servers) as client:
            client.handshake("OAUTHBEARER")
            for token in (kafka.token("shop", expired=True), kafka.token("shop")):
                answer = client.authenticate(f"n,,\1auth=Bearer {token}\1\1".encode())
            assert answer == b""
            assert client.call(MetadataRequest([]), 12).error_code == 0
        assert [one.reason.partition(":")[2][:22] for one in kafka.failed_logins()] == [
            " the token has expired"
        ]
        assert kafka.requests("Metadata")
        assert [line for line in kafka.log_lines if "connection closed" in line] == []


def test_a_renewal_that_is_refused() -> None:
    with oncelog.Broker(oauth=True) as kafka:
        with SaslClient(kafka.bootstrap_servers) as client:
            client.log_in("OAUTHBEARER", "", str(kafka.token("shop")))
            assert client.call(MetadataRequest([]), 12).error_code == 0
            with pytest.raises(LoginFailed) as failed:
                client.log_in("OAUTHBEARER", "", str(kafka.token("shop", of_a_stranger=True)))
            assert failed.value.message == TOLD
        assert "the token's signature is not that of key" in kafka.wait_for_failed_login().reason


def test_unsecured_tokens_have_reasons_too() -> None:
    config = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}
    with oncelog.Broker(config=config) as kafka, oncelog.Broker(oauth=True) as issuing:
        with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed) as failed:
            client.log_in("OAUTHBEARER", "", str(issuing.token("shop", unsigned=True, expired=True)))
        assert failed.value.message == TOLD
        said = kafka.wait_for_failed_login()
        assert said.reason.startswith("OAUTHBEARER: the token has expired: exp is ")
        assert said.principal == "User:shop"


# -- stock clients with tokens that are refused


@pytest.mark.slow
def test_confluent_kafka_is_refused() -> None:
    with oncelog.Broker(oauth=True) as kafka:
        said: list[str] = []
        settings = kafka.client_config(token=kafka.token("shop", expired=True))
        settings["error_cb"] = lambda error: said.append(str(error))
        client = AdminClient(settings)
        assert "the token has expired" in kafka.wait_for_failed_login(timeout=60).reason
        while not said:
            client.poll(0.05)
        assert TOLD in said[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_is_refused() -> None:
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError as PythonError

    with oncelog.Broker(oauth=True) as kafka:
        token = kafka.token("shop", not_yet_valid=True)
        with pytest.raises(PythonError):
            KafkaAdminClient(**kafka.client_config("kafka-python", token=token), bootstrap_timeout_ms=1000)
        assert "the token is not yet valid" in kafka.wait_for_failed_login(timeout=60).reason


def test_aiokafka_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def main() -> None:
        async with oncelog.AsyncBroker(oauth=True) as kafka:
            token = kafka.token("shop", of_a_stranger=True)
            producer = AIOKafkaProducer(**kafka.client_config("aiokafka", token=token))
            with pytest.raises(KafkaError):
                await producer.start()
            await producer.stop()
            failed = await kafka.wait_for_failed_login(timeout=60)
            assert "the token's signature is not that of key oncelog-1" in failed.reason

    asyncio.run(main())


# -- times


@pytest.mark.slow
def test_tokens_are_of_the_brokers_time() -> None:
    with oncelog.Broker(oauth=True) as kafka:
        kafka.clock.advance(days=30)
        assert AdminClient(kafka.client_config(token="shop")).list_topics(timeout=60).brokers
        kept = kafka.token("shop", lifetime=600)
        assert int(str(kept.claims["exp"])) - kafka.clock.now_ms() / 1000 > 500
        kafka.clock.advance(hours=1)
        with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
            client.log_in("OAUTHBEARER", "", str(kept))


@pytest.mark.slow
def test_each_log_in_by_a_name_has_a_new_token() -> None:
    with oncelog.Broker(topics=["t"], oauth=True) as kafka:
        settings = kafka.client_config(token="shop")
        for _ in range(2):
            producer = Producer(settings)
            producer.produce("t", b"value")
            assert producer.flush(60) == 0
            kafka.clock.advance(days=1)


@pytest.mark.slow
def test_a_function_may_make_the_tokens() -> None:
    with oncelog.Broker(oauth=True) as kafka:
        names = iter(["one", "two"])
        settings = kafka.client_config(token=lambda: kafka.token(next(names), lifetime=5))
        for name in ("one", "two"):
            assert AdminClient({**settings, "client.id": name}).list_topics(timeout=60).brokers
            assert kafka.wait_for("Metadata", client_id=name).principal == f"User:{name}"


# -- settings


@pytest.mark.slow
def test_a_token_follows_the_configuration() -> None:
    config = {
        "sasl.oauthbearer.expected.audience": "brokers,others",
        "sasl.oauthbearer.expected.issuer": "https://me.example",
        "sasl.oauthbearer.sub.claim.name": "client",
    }
    with oncelog.Broker(oauth=True, config=config) as kafka:
        token = kafka.token("shop", claims={"scope": "orders"})
        assert {name: token.claims.get(name) for name in ("client", "aud", "iss", "scope")} == {
            "client": "shop",
            "aud": "brokers",
            "iss": "https://me.example",
            "scope": "orders",
        }
        assert token.text not in repr(token)
        assert AdminClient(kafka.client_config(token=token)).list_topics(timeout=60).brokers


def test_settings_for_programs_of_other_languages(tmp_path: Path) -> None:
    path = tmp_path / "token.jwt"
    with oncelog.Broker(oauth=True) as kafka:
        token = kafka.token("shop")
        assert kafka.client_config("java", token=token, token_file=path) == {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            ),
            "sasl.login.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
            ),
            "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
        }
        assert (path.read_text(), oct(path.stat().st_mode)[-3:]) == (token.text, "600")
        assert json.loads(json.dumps(kafka.client_config("kafkajs", token=token)))["sasl"] == {
            "mechanism": "oauthbearer",
            "oauthBearerProvider": token.text,
        }


def test_what_makes_no_sense_is_named(tmp_path: Path) -> None:
    with oncelog.Broker(users=USERS, oauth=True) as kafka, oncelog.Broker(oauth=True) as tokens_only:
        text = str(kafka.token("shop"))
        for broker, arguments, said in (
            (
                tokens_only,
                {},
                "token= is missing: clients of this broker log in, by a token such as token='shop'",
            ),
            (kafka, {}, "(its users= are app); or token="),
            (kafka, {"user": "app", "token": "shop"}, "user= and token= exclude each other"),
            (kafka, {"token": text}, "token=: expected a name, or a result of token(), not its text"),
            (kafka, {"token": 5}, "token=5: expected a name, or a result of token()"),
            (kafka, {"client": "kcat", "token": "shop"}, "kcat can show no signed token"),
            (kafka, {"client": "librdkafka", "token": "shop"}, "a function of the program gives it"),
            (kafka, {"client": "java", "token": "shop"}, "token_file= is missing: Java reads its token"),
            (kafka, {"token": "shop", "token_file": "x"}, "token_file= is for client 'java' with a token="),
            (
                kafka,
                {"client": "java", "token": "shop", "token_file": tmp_path / "none" / "x"},
                "No such file or directory",
            ),
            (kafka, {"user": "app", "mechanism": "OAUTHBEARER"}, "token= logs in by OAUTHBEARER"),
        ):
            with pytest.raises(oncelog.InvalidArgumentError) as raised:
                broker.client_config(**arguments)
            assert said in str(raised.value)
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"lifetime": 0}, "lifetime=0: expected seconds above 0; expired=True has ended"),
            ({"lifetime": "1"}, "lifetime='1': expected seconds above 0"),
            ({"expired": True, "not_yet_valid": True}, "exclude each other"),
            ({"claims": ["scope"]}, "claims=['scope']: expected a dictionary, such as {'scope': 'orders'}"),
            ({"claims": {"x": b"1"}}, "is not JSON serializable"),
        ]
        for arguments, said in wrong:
            with pytest.raises(oncelog.InvalidArgumentError) as raised:
                kafka.token("shop", **arguments)
            assert said in str(raised.value)
    with oncelog.Broker() as kafka:
        with pytest.raises(oncelog.InvalidArgumentError, match=r"token\(\) is for a broker with oauth=True"):
            kafka.token("shop")
        with pytest.raises(oncelog.InvalidArgumentError, match="the broker was made without oauth=True"):
            kafka.client_config(token="shop")
    for options, said in (
        (
            {"oauth": True, "config": {"listeners": "PLAINTEXT://127.0.0.1:0"}},
            "oauth=True has no effect: no list",
        ),
        ({"oauth": "shop"}, "oauth='shop': expected True or False"),
        (
            {"tls": "old"},
            "tls='old': expected True, False or one of 'expired', 'of_a_stranger', 'other_host'",
        ),
    ):
        with pytest.raises(oncelog.InvalidArgumentError, match=said):
            oncelog.Broker(**options)
    with pytest.raises(oncelog.InvalidArgumentError, match="oauth= and pass_logins= exclude each other"):
        oncelog.Proxy("127.0.0.1:1", oauth=True, pass_logins=True)


# -- a broker that clients refuse


@pytest.mark.parametrize(
    ("tls", "broker_says"),
    [
        ("expired", "the client says: certificate expired"),
        ("of_a_stranger", "the client says: unknown ca"),
        ("other_host", "the client says: bad certificate"),
    ],
)
def test_a_broker_that_clients_refuse(tls: Any, broker_says: str) -> None:
    with oncelog.Broker(tls=tls, users=USERS) as kafka:
        said: list[str] = []
        settings: dict[str, Any] = kafka.client_config(user="app")
        settings["error_cb"] = lambda error: said.append(str(error))
        client = AdminClient(settings)
        failed = kafka.wait_for_failed_login(step="TLS", timeout=60)
        assert broker_says in failed.reason
        while not said:
            client.poll(0.05)
        assert "certificate" in said[0]
