"""Each mechanism's client against the broker's own server of it, and against servers that lie."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial

import pytest

from oncelog.broker.client.security.mechanisms import (
    ChallengeRefused,
    OAuthBearerClient,
    PlainClient,
    SaslClient,
    ScramClient,
)
from oncelog.broker.credentials.scram import SCRAM_MECHANISMS, credential, salted_password
from oncelog.broker.security.sasl.mechanism import SaslError, SaslServer
from oncelog.broker.security.sasl.oauthbearer import OAuthBearerServer, OAuthToken, TokenRefused
from oncelog.broker.security.sasl.plain import PlainServer
from oncelog.broker.security.sasl.scram import ScramServer, TokenCredential

NAME, PASSWORD = "a,name=x", "a-secret, é"
ENDS_MS = 99
CLIENT_NONCE, SERVER_NONCE = "client", "server"


def log_in(client: SaslClient, server: SaslServer) -> None:
    """Raises SaslError, ChallengeRefused."""
    token: bytes | None = client.first()
    while token is not None:
        token = client.following(server.evaluate(token))
    assert server.is_complete


def scram_client(name: str, password: str = PASSWORD, *, is_token: bool = False) -> ScramClient:
    mechanism = SCRAM_MECHANISMS[name]
    return ScramClient(
        mechanism, NAME, partial(salted_password, mechanism, password), CLIENT_NONCE, is_token=is_token
    )


def scram_server(name: str) -> ScramServer:
    mechanism = SCRAM_MECHANISMS[name]
    known = credential(mechanism, PASSWORD, b"salt", 4096)
    token = TokenCredential(known, "owner", ENDS_MS)
    return ScramServer(mechanism, {NAME: known}.get, {NAME: token}.get, lambda: SERVER_NONCE)


@pytest.mark.parametrize("name", SCRAM_MECHANISMS)
def test_scram(name: str) -> None:
    server = scram_server(name)
    log_in(scram_client(name), server)
    assert server.authorization_id == NAME
    with pytest.raises(SaslError):
        log_in(scram_client(name, "wrong"), scram_server(name))


def test_scram_by_a_delegation_token() -> None:
    server = scram_server("SCRAM-SHA-256")
    log_in(scram_client("SCRAM-SHA-256", is_token=True), server)
    assert (server.authorization_id, server.is_token_authenticated) == ("owner", True)


def test_plain() -> None:
    server = PlainServer({NAME: PASSWORD}.get)
    log_in(PlainClient(NAME, PASSWORD), server)
    assert server.authorization_id == NAME


def test_oauthbearer() -> None:
    server = OAuthBearerServer(lambda token: OAuthToken(token, ENDS_MS))
    log_in(OAuthBearerClient("a.b.c", {"traceId": "7"}), server)
    assert server.authorization_id == "a.b.c"


def test_a_token_that_is_refused_is_acknowledged() -> None:
    def refuse(token: str) -> OAuthToken:
        raise TokenRefused("it has expired")

    client, server = OAuthBearerClient("a.b.c", {}), OAuthBearerServer(refuse)
    answer = client.following(server.evaluate(client.first()))
    assert answer == b"\x01"
    with pytest.raises(SaslError):
        server.evaluate(answer)


SALT = base64.b64encode(b"salt").decode()


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        ("", "malformed"),
        ("\xff", "malformed"),
        (f"r=other,s={SALT},i=4096", "malformed"),
        (f"r={CLIENT_NONCE}x,s={SALT},i=0", "malformed"),
        (f"r={CLIENT_NONCE}x,s={SALT},i=4095", "4095 iterations; expected 4096 to 1000000"),
        (f"r={CLIENT_NONCE}x,s={SALT},i=2000000000", "2000000000 iterations"),
    ],
)
def test_a_first_message_of_scram_that_is_refused(challenge: str, said: str) -> None:
    with pytest.raises(ChallengeRefused, match=said):
        scram_client("SCRAM-SHA-256").following(challenge.encode("latin-1"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda last: b"v=" + base64.b64encode(b"x" * 32), "the broker does not know the password"),
        (lambda last: b"e=other-error", "e=other-error"),
        (lambda last: b"", "malformed last message"),
        (lambda last: last + b"\n", "malformed last message"),
    ],
)
def test_a_broker_that_does_not_prove_itself(changed: Callable[[bytes], bytes], said: str) -> None:
    client, server = scram_client("SCRAM-SHA-512"), scram_server("SCRAM-SHA-512")
    second = client.following(server.evaluate(client.first()))
    assert second is not None
    with pytest.raises(ChallengeRefused, match=said):
        client.following(changed(server.evaluate(second)))
