"""Sessions: how they end and are renewed, by a clock that the test moves; limits before the log-in."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer

import oncelog
from oncelog.wire.framing import encode_frame
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.common.sasl_client import Closed, LoginFailed, SaslClient

USERS = {"app": "secret", "other": "x"}
ILLEGAL_STATE = 34
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
CONFIG = {
    "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "60000",
    "connections.max.reauth.ms": "30000",
}


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(users=USERS, config=CONFIG) as broker:
        broker.clock.freeze()
        yield broker


def is_served(client: SaslClient) -> bool:
    try:
        return client.call(MetadataRequest([]), 12).error_code == 0
    except Closed:
        return False


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_session_ends(kafka: oncelog.Broker, mechanism: str) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in(mechanism, "app", "secret")
        length_s = 60 if mechanism == "PLAIN" else 30
        assert client.lifetime_ms == length_s * 1000
        kafka.clock.advance(seconds=length_s - 1)
        assert is_served(client)
        kafka.clock.advance(seconds=2)
        assert not is_served(client)


def test_a_client_that_cannot_renew_its_session_is_disconnected(
    kafka: oncelog.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiokafka.conn")

    async def main() -> None:
        async with AIOKafkaProducer(**kafka.client_config("aiokafka", user="app")) as producer:
            for _ in range(3):
                await producer.send_and_wait("t", b"value")
            assert "0 bytes read" not in caplog.text
            kafka.clock.advance(seconds=61)
            await producer.send_and_wait("t", b"value")

    asyncio.run(main())
    assert caplog.text.count("0 bytes read on a total of 4 expected bytes") == 1


def test_a_session_is_renewed_even_after_its_end(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "app", "secret")
        for _ in range(3):
            kafka.clock.advance(seconds=61)
            client.log_in("PLAIN", "app", "secret")
            assert is_served(client)


def test_a_renewal_may_follow_another_after_a_second(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "app", "secret")
        client.log_in("PLAIN", "app", "secret")
        assert client.handshake("PLAIN").error_code == ILLEGAL_STATE
        kafka.clock.advance(seconds=1.1)
        client.log_in("PLAIN", "app", "secret")


def test_a_renewal_for_another_user_is_refused(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "app", "secret")
        with pytest.raises(LoginFailed, match=r"from User\.app: User\.other"):
            client.log_in("PLAIN", "other", "x")
        assert not is_served(client)


def test_a_renewal_by_another_mechanism_is_refused(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "app", "secret")
        assert client.handshake("SCRAM-SHA-256").error_code == 0
        with pytest.raises(Closed):
            client.authenticate(b"n,,n=app,r=x")


def test_a_request_during_a_renewal_is_refused(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "app", "secret")
        client.handshake("PLAIN")
        assert not is_served(client)


def test_a_token_after_the_login(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "app", "secret")
        assert client.call(SaslAuthenticateRequest(b"x"), 2).error_code == ILLEGAL_STATE


def test_bare_tokens(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.handshake("PLAIN", 0)
        assert client.bare(b"\0app\0secret") == b""
        assert is_served(client)
    with SaslClient(kafka.bootstrap_servers) as client:
        client.handshake("PLAIN", 0)
        with pytest.raises(Closed):
            client.bare(b"\0app\0wrong")


def test_who_fails_learns_it_late() -> None:
    config = {"connection.failed.authentication.delay.ms": "150"}
    with oncelog.Broker(users=USERS, config=config) as kafka, SaslClient(kafka.bootstrap_servers) as client:
        before = time.monotonic()
        with pytest.raises(LoginFailed):
            client.log_in("PLAIN", "app", "wrong")
        assert time.monotonic() - before >= 0.15


def test_a_large_message_before_the_login_closes(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        assert client.call(ApiVersionsRequest("x", "1"), 3).error_code == 0
        client.socket.sendall((512 * 1024 + 1).to_bytes(4, "big"))
        with pytest.raises(Closed):
            client.receive()


@pytest.mark.slow
@pytest.mark.parametrize("says", ["nothing", "a byte now and then"])
def test_who_does_not_log_in_is_closed_in_time(says: str) -> None:
    config = {"connections.max.idle.ms": "1000"}
    with oncelog.Broker(users=USERS, config=config) as kafka, SaslClient(kafka.bootstrap_servers) as client:
        client.socket.settimeout(0.3)
        for byte in encode_frame(bytes(1000)):  # for five minutes
            try:
                if says == "a byte now and then":
                    client.socket.sendall(bytes([byte]))
                if client.socket.recv(1) == b"":
                    return
            except TimeoutError:
                pass
            except ConnectionError:
                return
        pytest.fail("the connection was not closed")
