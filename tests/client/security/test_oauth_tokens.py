"""Tokens of OAUTHBEARER: made here, read from a file, and fetched from an issuer."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trio

import oncelog
from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.opening import open_connection
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.client.security.oauth_tokens import tokens_of
from oncelog.broker.seams.transport import connect
from oncelog.wire.messages.metadata import MetadataRequest
from tests.client.security.test_keys import LOGIN_HANDLER, oauth
from tests.common.tokens import unsecured

URL_KEY = "sasl.oauthbearer.token.endpoint.url"
CONFIG = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}


def token(name: str, life_s: float = 3600) -> str:
    return unsecured({"sub": name, "iat": time.time(), "exp": time.time() + life_s})


def retrieving(url: str, options: str = "", **more: str) -> dict[str, str]:
    return {
        **oauth(options, sasl_login_callback_handler_class=LOGIN_HANDLER, **more),
        URL_KEY: url,
    }


@pytest.fixture(scope="module")
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(config=CONFIG) as broker:
        yield broker


def served(kafka: oncelog.Broker, *clients: ClientSecurity) -> list[str]:
    """The principals by which these clients are served, one after the other. Raises AuthenticationError."""
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    found = []

    async def main() -> None:
        for security in clients:
            connection = await open_connection(connect, host, int(port), security=security)
            await connection.call(MetadataRequest([]))
            connection.close()
            found.append(kafka.requests("Metadata")[-1].principal)

    trio.run(main)
    return found


class Issuer:
    """An HTTP server that gives tokens; `replies` has the status and document of each response."""

    def __init__(self, *replies: tuple[int, str]) -> None:
        self.asked: list[tuple[str, str]] = []
        """The Authorization header and the body of each request."""
        issuer = self
        left = list(replies)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                issuer.asked.append((self.headers["Authorization"], body))
                status, document = left.pop(0)
                self.send_response(status)
                self.send_header("Content-Length", str(len(document)))
                self.end_headers()
                self.wfile.write(document.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Issuer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def settings(self, options: str = 'clientId="me" clientSecret="hidden" scope="kafka"') -> dict[str, str]:
        return retrieving(self.url, options, sasl_login_retry_backoff_ms="1")


def test_a_token_that_nobody_signs(kafka: oncelog.Broker) -> None:
    options = (
        'unsecuredLoginStringClaim_name="app" unsecuredLoginPrincipalClaimName="name" '
        'unsecuredLoginStringClaim_sub="bearer" unsecuredLoginListClaim_scope="|a|b" '
        'unsecuredLoginNumberClaim_n="7" unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_traceId="7"'
    )
    assert served(kafka, ClientSecurity(oauth(options))) == ["User:bearer"]


def test_a_token_in_a_file_is_read_for_each_login(kafka: oncelog.Broker, tmp_path: Path) -> None:
    path = tmp_path / "a token.jwt"
    client = ClientSecurity(retrieving(path.as_uri()))
    path.write_text(token("first") + "\n")
    assert served(kafka, client) == ["User:first"]
    path.write_text(token("second"))
    assert served(kafka, client) == ["User:second"]
    path.write_text("no token")
    with pytest.raises(AuthenticationError, match=r"OAUTHBEARER: no token in .*a token.jwt"):
        served(kafka, client)
    path.unlink()
    with pytest.raises(AuthenticationError, match=r"cannot read the token in .*: No such file"):
        served(kafka, client)


def test_a_token_that_has_expired(kafka: oncelog.Broker, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token("app", -10))
    with pytest.raises(AuthenticationError, match='"status":"invalid_token"'):
        served(kafka, ClientSecurity(retrieving((tmp_path / "token").as_uri())))


@pytest.mark.slow
def test_a_token_is_fetched_and_used_for_most_of_its_life(kafka: oncelog.Broker) -> None:
    with Issuer((200, f'{{"access_token": "{token("app")}"}}')) as issuer:
        client = ClientSecurity(issuer.settings())
        assert served(kafka, client) == ["User:app"]

        async def main() -> list[str]:
            tokens, _ = tokens_of(issuer.settings(), {"clientId": "me", "clientSecret": "x"})
            return [await tokens.token() for _ in range(3)]

    basic = base64.b64encode(b"me:hidden").decode()
    assert issuer.asked == [(f"Basic {basic}", "grant_type=client_credentials&scope=kafka")]
    replies = [(200, f'{{"id_token": "{token(name, life_s)}"}}') for name, life_s in (("a", 0), ("b", 3600))]
    with Issuer(*replies) as issuer:
        first, second, third = trio.run(main)
    assert first != second == third


@pytest.mark.slow
def test_keys_win_over_jaas_options_and_are_quoted() -> None:
    with Issuer((200, f'{{"access_token": "{token("app")}"}}')) as issuer:
        values = {
            **issuer.settings(),
            "sasl.oauthbearer.client.credentials.client.id": "an id",
            "sasl.oauthbearer.client.credentials.client.secret": "a:b",
            "sasl.oauthbearer.scope": "x y",
            "sasl.oauthbearer.header.urlencode": "true",
        }
        tokens, _ = tokens_of(values, {"clientId": "me"})
        trio.run(tokens.token)
    basic = base64.b64encode(b"an+id:a%3Ab").decode()
    assert issuer.asked == [(f"Basic {basic}", "grant_type=client_credentials&scope=x+y")]


@pytest.mark.slow
def test_an_issuer_that_refuses(kafka: oncelog.Broker) -> None:
    refusal = '{"error": "invalid_client", "error_description": "no such client"}'
    with Issuer((401, refusal)) as issuer, pytest.raises(AuthenticationError) as caught:
        served(kafka, ClientSecurity(issuer.settings()))
    assert str(caught.value).endswith(
        f"OAUTHBEARER: no token from {issuer.url}: 401 invalid_client - no such client"
    )
    assert len(issuer.asked) == 1


@pytest.mark.slow
def test_an_issuer_that_fails_is_asked_again(kafka: oncelog.Broker) -> None:
    good = f'{{"access_token": "{token("app")}"}}'
    with Issuer((503, ""), (200, "no json"), (200, "{}"), (200, good)) as issuer:
        assert served(kafka, ClientSecurity(issuer.settings())) == ["User:app"]
    values = {**issuer.settings(), "sasl.login.retry.backoff.max.ms": "20"}
    with pytest.raises(AuthenticationError, match=r"no token from .*: <urlopen error"):
        served(kafka, ClientSecurity(values))
