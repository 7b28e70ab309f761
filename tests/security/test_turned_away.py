"""docs/security.md, "When a client is turned away": each reason is what the broker says of such a client."""

from __future__ import annotations

import pathlib
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

import pytest

import oncelog
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common.sasl_client import Closed, LoginFailed, SaslClient

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "security.md"
USERS = {"app": "secret"}
TIMEOUT_S = 60


def reasons_of_the_page() -> list[str]:
    _, _, after = PAGE.read_text().partition("\n## When a client is turned away\n")
    return re.findall(r"(?m)^\| `([^`]+)`", after.partition("\n## ")[0])


def shake_hands(address: str, context: ssl.SSLContext, name: str = "localhost") -> None:
    """Shake hands, and read once: a refusal of the client's certificate comes after the client's part."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        secured.recv(1)


@pytest.mark.slow
def test_the_reasons_on_the_page() -> None:
    found: dict[str, str] = {}

    def note(reason: str, kafka: oncelog.Broker, act: Callable[[], object]) -> None:
        """Do what is turned away. The broker's reason is kept under the page's."""
        with suppress(ssl.SSLError, ConnectionError, Closed, LoginFailed):
            act()
        found[reason] = kafka.wait_for_failed_login().reason
        kafka.reset()

    with oncelog.Broker(users=USERS, tls=True) as kafka:
        authority = kafka.client_config(user="app")["ssl.ca.pem"]
        address = kafka.bootstrap_servers
        good = ssl.create_default_context(cadata=authority)
        other_suites = ssl.create_default_context(cadata=authority)
        other_suites.maximum_version = ssl.TLSVersion.TLSv1_2
        other_suites.set_ciphers("ECDHE-RSA-AES256-GCM-SHA384")

        def plain_text() -> None:
            with SaslClient(address) as client:
                client.call(MetadataRequest([]), 12)

        def without_login() -> None:
            with SaslClient(address, good) as client:
                client.call(MetadataRequest([]), 12)

        def log_in(mechanism: str) -> Callable[[], None]:
            def run() -> None:
                with SaslClient(address, good) as client:
                    client.log_in(mechanism, "nobody", "x")

            return run

        def unknown_mechanism() -> None:
            with SaslClient(address, good) as client:
                client.handshake("GSSAPI")

        note("the client says: unknown ca", kafka, lambda: shake_hands(address, ssl.create_default_context()))
        note(
            "the client says: bad certificate", kafka, lambda: shake_hands(address, good, "elsewhere.example")
        )
        note("wrong version number", kafka, plain_text)
        note("no shared cipher", kafka, lambda: shake_hands(address, other_suites))
        note("before the log-in", kafka, without_login)
        note("Unsupported SASL mechanism", kafka, unknown_mechanism)
        note("Invalid username or password", kafka, log_in("PLAIN"))
        note("Invalid user credentials", kafka, log_in("SCRAM-SHA-256"))

    with oncelog.Broker(oauth=True) as kafka:
        address = kafka.bootstrap_servers

        def show(token: object) -> Callable[[], None]:
            def run() -> None:
                with SaslClient(address) as client:
                    client.log_in("OAUTHBEARER", "", str(token))

            return run

        note("the token has expired", kafka, show(kafka.token("app", expired=True)))
        note("the token is not yet valid", kafka, show(kafka.token("app", not_yet_valid=True)))
        note("the token is for another audience", kafka, show(kafka.token("app", audience="others")))
        note("the token is of another issuer", kafka, show(kafka.token("app", issuer="others")))
        note("the token has no subject", kafka, show(kafka.token("app", claims={"sub": None})))
        note("the token has no exp", kafka, show(kafka.token("app", claims={"exp": None})))
        note("the token's signature is not that of", kafka, show(kafka.token("app", of_a_stranger=True)))
        note("the token's key id is unknown", kafka, show(kafka.token("app", key_id="other")))
        note("the token's algorithm is", kafka, show(f"{kafka.token('app', unsigned=True)}eA"))
        note("the token is malformed", kafka, show("x"))

    with oncelog.Broker(tls=True, config={"ssl.client.auth": "required"}) as kafka:
        address = kafka.bootstrap_servers
        good = ssl.create_default_context(cadata=kafka.client_config(certificate="app")["ssl.ca.pem"])
        note("peer did not return a certificate", kafka, lambda: shake_hands(address, good))

    for reason, said in found.items():
        assert reason in said
    left = [reason for reason in reasons_of_the_page() if reason not in found]
    assert left == [
        "this looks like a TLS handshake",  # tests/net/test_unexpected_bytes.py
        "the client's certificate is refused",  # test_tls.py
        "the token lacks the scope",  # test_oauthbearer.py
        "denied",  # test_in_force.py
    ]
