"""Eight stock clients get into a broker by every way that they know, or are turned away, as beside Kafka."""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from compat_tests.brokers import TARGETS, check_after
from compat_tests.security.client_programs import running
from compat_tests.security.logged_in_clients import (
    CLIENTS,
    OAUTHBEARER,
    Case,
    Said,
    Way,
)
from compat_tests.security.secured import USERS, Secured, allow_urls, write_certificates
from tests.common.jars import RealPartMissing, require

MAKE_TOKENS = ("java", "confluent-kafka", "kcat")
"""Clients that make tokens which nobody signs; kcat can show no others."""
PREFIX = "matrix-"
TIMEOUT_S = 60.0
SILENCE_S = 5.0
AT_ONCE = 12


def password_way(listener: str, mechanism: str, user: str = "app", password: str = "") -> dict[str, str]:
    return {
        "listener": listener,
        "protocol": listener,
        "mechanism": mechanism,
        "user": user,
        "password": password or USERS.get(user, "x"),
    }


def token_way(listener: str, token: str) -> dict[str, str]:
    return {
        "listener": listener,
        "protocol": listener,
        "mechanism": OAUTHBEARER,
        "user": "app",
        "token": token,
    }


LET_IN: dict[str, dict[str, str]] = {
    "PLAIN": password_way("SASL_SSL", "PLAIN"),
    "SCRAM-SHA-256": password_way("SASL_SSL", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": password_way("SASL_SSL", "SCRAM-SHA-512"),
    "SCRAM without TLS": password_way("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "OAUTHBEARER": token_way("SASL_SSL", "signed"),
    "OAUTHBEARER, unsigned": token_way("SASL_PLAINTEXT", "unsecured"),
    "certificate": {"listener": "SSL", "protocol": "SSL", "certificate": "app"},
    "no certificate where one is asked for": {"listener": "ASKING", "protocol": "SSL"},
}
TURNED_AWAY: dict[str, dict[str, str]] = {
    "PLAIN, wrong password": password_way("SASL_PLAINTEXT", "PLAIN", password="wrong"),
    "PLAIN, unknown user": password_way("SASL_SSL", "PLAIN", "nobody"),
    "SCRAM, wrong password": password_way("SASL_SSL", "SCRAM-SHA-512", password="wrong"),
    "SCRAM, unknown user": password_way("SASL_PLAINTEXT", "SCRAM-SHA-256", "nobody"),
    "OAUTHBEARER, token of a stranger": token_way("SASL_SSL", "strange"),
    "certificate of a strange authority": {"listener": "SSL", "protocol": "SSL", "certificate": "stranger"},
    "expired certificate": {"listener": "ASKING", "protocol": "SSL", "certificate": "expired"},
    "no certificate": {"listener": "SSL", "protocol": "SSL"},
    "strange authority of the server": {"listener": "ASKING", "protocol": "SSL", "ca": "strange-ca"},
    "TLS on a port without": {"listener": "PLAINTEXT", "protocol": "SSL"},
    "no TLS on a port with it": {"listener": "ASKING", "protocol": "PLAINTEXT"},
    "no rights": password_way("SASL_PLAINTEXT", "PLAIN", "guest"),
}
CASES = {**LET_IN, **TURNED_AWAY}


def parts_of(case: str) -> dict[str, Hashable]:
    """The values of a case that meet each client."""
    way = CASES[case]
    shown = way.get("mechanism") or way.get("certificate")
    return {"listener": way["listener"], "protocol": way["protocol"], "shown": shown}


PASSWORD, TOKEN, CERTIFICATE, SERVER, TLS_THERE, NO_TLS_THERE, RIGHTS = range(7)
TURNED_AWAY_KINDS = dict(
    zip(
        TURNED_AWAY,
        (*[PASSWORD] * 4, TOKEN, *[CERTIFICATE] * 3, SERVER, TLS_THERE, NO_TLS_THERE, RIGHTS),
        strict=True,
    )
)
GENERIC = "KafkaConnectionError: .*Unable to bootstrap", "KafkaTimeoutError: .*Unable to bootstrap"
"""aiokafka and kafka-python tell only their log why they could not connect."""
KCAT_REFUSED = "Failed to acquire metadata: Local: Broker transport failure"
ENDS: dict[str, tuple[str, ...]] = {
    "java": (
        "^SaslAuthenticationException: Authentication failed",
        '^SaslAuthenticationException: {"status":"invalid_token"}',
        "^SslAuthenticationException: Failed to process post-handshake messages",
        "^SslAuthenticationException: SSL handshake failed",
        "^TimeoutException: ",
        "^TimeoutException: ",
        "^TransactionalIdAuthorizationException: ",
    ),
    # A failed handshake is one of two errors: it depends on whether librdkafka sees the close first. A port without TLS
    # closes with bytes unread, so librdkafka may see a reset instead, and has another text for that.
    "confluent-kafka": (
        "^_AUTHENTICATION: .*Authentication failed",
        '^_AUTHENTICATION: .*{"status":"invalid_token"}',
        "^_(SSL|TRANSPORT): .*SSL alert number",
        "^_(SSL|TRANSPORT): .*certificate verify failed",
        "^_(SSL|TRANSPORT): .*(connecting to a PLAINTEXT broker listener|SSL connection closed by peer)",
        "^_(TIMED_OUT|TRANSPORT): ",
        "^TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ",
    ),
    "kafka-python": (*[GENERIC[1]] * 6, "^TransactionalIdAuthorizationFailedError: "),
    "aiokafka": (*[GENERIC[0]] * 6, "^TransactionalIdAuthorizationFailed: "),
    "kcat": (
        f"{KCAT_REFUSED}.*SASL authentication error: Authentication failed",
        f'{KCAT_REFUSED}.*SASL authentication error: {{"status":"invalid_token"}}',
        f"{KCAT_REFUSED}.*SSL alert number",
        f"{KCAT_REFUSED}.*certificate verify failed",
        f"{KCAT_REFUSED}.*(SSL handshake failed: .*unexpected eof|SSL connection closed by peer)",
        KCAT_REFUSED,
        "Transactional Id authorization failed",
    ),
    "franz-go": (
        "SASL_AUTHENTICATION_FAILED.*Authentication failed",
        "unexpected data in oauth response",
        r"^\*tls.permanentError: remote error: tls: ",
        "x509: certificate signed by unknown authority",
        r"^\*kgo.ErrFirstReadEOF: ",
        "is this a plaintext connection speaking to a tls endpoint",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    "sarama": (
        "^sarama.sentinelError: .*SASL Authentication failed: Authentication failed",
        "^sarama.sentinelError: .*invalid credentials with SASL mechanism OAUTHBEARER",
        "^sarama.sentinelError: .*remote error: tls: ",
        "^sarama.sentinelError: .*x509: certificate signed by unknown authority",
        "^sarama.sentinelError: .*EOF",
        "^sarama.sentinelError: .*(EOF|connection reset)",
        "^sarama.KError: .*Transactional ID authorization failed",
    ),
    "kafkajs": (
        "^KafkaJSSASLAuthenticationError: .*Authentication failed",
        "^KafkaJSConnectionClosedError: Closed connection",
        "^KafkaJSNumberOfRetriesExceeded: Connection error: .*alert",
        "^KafkaJSNumberOfRetriesExceeded: Connection error: self-signed certificate in certificate chain",
        "^KafkaJSNumberOfRetriesExceeded: Connection error: .*before secure TLS connection was established",
        "^KafkaJSNumberOfRetriesExceeded: (Closed connection|Connection error)",
        "^KafkaJSProtocolError: .*authorization failed",
    ),
}
"""The error of each client, by the kind of failure: a pattern for its name and text. The text of a TLS alert is not
compared (docs/reference/differences.md)."""
SILENT = ("TLS on a port without", "no TLS on a port with it")
"""Cases in which some clients try until their time is over."""

Key = tuple[str, str, str]
"""Target, client and case."""


def topic_of(client: str, case: str) -> str:
    return f"{PREFIX}{client}-{list(CASES).index(case)}"


@pytest.fixture(scope="module")
def wanted(request: pytest.FixtureRequest) -> list[Key]:
    """The runs that the selected tests want."""
    found = []
    for item in request.session.items:
        if item.path == request.path and isinstance(item, pytest.Function):
            callspec = getattr(item, "callspec", None)
            given: dict[str, Any] = callspec.params if callspec else {}
            if "case" in given:
                found.append((given["target"], given["client"], given["case"]))
    return found


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def secured(wanted: list[Key], certificates: pathlib.Path) -> Iterator[dict[str, Secured]]:
    """The targets, with users, topics and ACLs. oncelog logs no traceback."""
    found = {target: Secured(target, certificates) for target in {target for target, _, _ in wanted}}
    with contextlib.ExitStack() as stack:
        try:
            for one in found.values():
                stack.enter_context(one.broker)
        except RealPartMissing as missing:
            require(str(missing))
        for target, one in found.items():
            if target == "oncelog":
                stack.enter_context(contextlib.contextmanager(check_after)(one.broker))
            one.prepare([topic_of(client, case) for client in CLIENTS for case in LET_IN], PREFIX)
        yield found


@pytest.fixture(scope="module")
def runners(
    wanted: list[Key], tmp_path_factory: pytest.TempPathFactory, certificates: pathlib.Path
) -> Iterator[dict[str, Callable[[Case], Said] | str]]:
    """The clients that are wanted; a text says what the machine lacks for one."""
    clients = {client for _, client, _ in wanted}
    found: dict[str, Callable[[Case], Said] | str] = {}
    tokens = [file.as_uri() for file in certificates.glob("*.jwt")]
    folder = tmp_path_factory.mktemp("programs")
    with contextlib.ExitStack() as stack:
        for client in sorted(clients):
            try:
                found[client] = stack.enter_context(running(client, folder, allow_urls(*tokens)))
            except RealPartMissing as missing:
                found[client] = str(missing)
        yield found


@pytest.fixture(scope="module")
def outcomes(
    wanted: list[Key],
    secured: dict[str, Secured],
    runners: dict[str, Callable[[Case], Said] | str],
    certificates: pathlib.Path,
) -> Iterator[dict[Key, Future[Said] | str]]:
    """All runs that are wanted, side by side: some only end when their time is over."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found: dict[Key, Future[Said] | str] = {}
        for target, client, case in wanted:
            run = runners[client]
            if isinstance(run, str):
                found[target, client, case] = run
                continue
            given = CASES[case]
            certificate, token = given.get("certificate"), given.get("token")
            if client == "kcat" or (client in MAKE_TOKENS and token == "unsecured"):
                token = None
            way = Way(
                secured[target].address(given["listener"]),
                given["protocol"],
                str(certificates / f"{given.get('ca', 'ca')}.pem"),
                str(certificates / f"{certificate}.pem") if certificate else "",
                given.get("mechanism", ""),
                given.get("user", ""),
                given.get("password", ""),
                token_file=str(certificates / f"{token}.jwt") if token else "",
            )
            tries_on = client == "kafka-python" and case in TURNED_AWAY and case != "no rights"
            timeout_s = SILENCE_S if case in SILENT or tries_on else TIMEOUT_S
            asked = Case(way, topic_of(client, case), f"{client} by {case}", timeout_s)
            found[target, client, case] = pool.submit(run, asked)
        yield found
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def said(outcomes: dict[Key, Future[Said] | str], target: str, client: str, case: str) -> Said:
    outcome = outcomes[target, client, case]
    if isinstance(outcome, str):
        require(outcome)
    return outcome.result()


@pytest.mark.pairwise(case=parts_of)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", LET_IN)
def test_a_client_is_let_in(client: str, case: str, said: Said) -> None:
    """It commits a transaction and reads its record in a group."""
    if client == "kcat" and "SCRAM" in case:
        # The librdkafka of kcat's package sends a nonce that Kafka refuses since 3.9.1 (librdkafka mended it in 2.6.1).
        assert "invalid credentials with SASL mechanism SCRAM" in said.text
    elif client == "kcat" and case == "OAUTHBEARER":
        assert '{"status":"invalid_token"}' in said.text
    else:
        assert said == Said(f"{client} by {case}"), said.text


@pytest.mark.pairwise(case=lambda case: {"kind": TURNED_AWAY_KINDS[case], **parts_of(case)})
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("case", TURNED_AWAY)
def test_a_client_is_turned_away(target: str, client: str, case: str, said: Said) -> None:
    expected = ENDS[client][TURNED_AWAY_KINDS[case]]
    if (target, client, case) == ("oncelog", "franz-go", "no TLS on a port with it"):
        expected = r"^\*kgo.ErrFirstReadEOF: "  # docs/reference/differences.md
    elif (client, case) == ("aiokafka", "OAUTHBEARER, token of a stranger"):
        # It takes the refusal for success. Kafka answers its next request with an error
        # (docs/reference/differences.md).
        expected = {"oncelog": GENERIC[0], "kafka": "Did we not perform bootstrap"}[target]
    assert not said.value
    assert re.search(expected, f"{said.error}: {said.text}", re.DOTALL), said
