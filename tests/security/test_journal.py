"""Log-ins in the journal, and that it shows no secret: in Python, over HTTP, in a failed test's report."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

import oncelog
from oncelog.broker.control.messages import HIDDEN
from oncelog.broker.control_http.annotations import to_json
from oncelog.pytest_plugin.report import sections
from oncelog.wire.messages.alter_configs import AlterableConfig as OldConfig
from oncelog.wire.messages.alter_configs import AlterConfigsRequest
from oncelog.wire.messages.alter_configs import AlterConfigsResource as OldResource
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from oncelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.common.sasl_client import Closed, LoginFailed, SaslClient

USERS = {"app": "pass-word-of-app"}
BROKER_RESOURCE = 4


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(users=USERS, config={"delegation.token.secret.key": "the-key"}) as broker:
        yield broker


def everything_shown(kafka: oncelog.Broker) -> bytes:
    """All that a test can see of requests."""
    found = kafka.requests()
    texts = [repr(found), "".join(text for _, text in sections({"kafka": kafka})), *kafka.log_lines]
    texts += [repr((one.body, one.response)) for one in found]
    return pickle.dumps(found) + json.dumps(to_json(found)).encode() + "".join(texts).encode()


def shows(kafka: oncelog.Broker, secret: bytes) -> bool:
    """Whether a secret can be seen, as it is or in base64."""
    shown = everything_shown(kafka)
    return secret in shown or base64.b64encode(secret) in shown


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login(kafka: oncelog.Broker, mechanism: str) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in(mechanism, "app", USERS["app"])
        client.call(MetadataRequest(None), 12)
        peer = "{}:{}".format(*client.socket.getsockname())
    tokens = 1 if mechanism == "PLAIN" else 2
    last = kafka.wait_for("SaslAuthenticate", times=tokens)
    handshake = kafka.wait_for("SaslHandshake")
    assert (handshake.body.mechanism, handshake.mechanism, handshake.principal) == (
        mechanism,
        mechanism,
        "User:ANONYMOUS",
    )
    assert (last.client_id, last.peer, last.listener) == ("sasl", peer, "SASL_PLAINTEXT")
    assert (last.principal, last.mechanism, last.outcome, last.errors) == (
        "User:app",
        mechanism,
        "responded",
        (),
    )
    assert kafka.wait_for("Metadata").principal == "User:app"
    assert last.body.auth_bytes == HIDDEN.encode()
    assert repr(last).partition(": ")[2] == (
        f"SaslAuthenticate v2 client_id='sasl' principal='User:app' mechanism='{mechanism}' responded>"
    )
    assert not shows(kafka, USERS["app"].encode())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password(kafka: oncelog.Broker, mechanism: str) -> None:
    with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
        client.log_in(mechanism, "app", "wrong-pass-word")
    failed = kafka.wait_for("SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED")
    assert (failed.principal, failed.mechanism, failed.outcome) == ("User:app", mechanism, "responded")
    assert "failed" in failed.response.error_message
    assert (
        f"principal=User:app mechanism={mechanism}: SASL_AUTHENTICATION_FAILED"
        in sections({"kafka": kafka})[0][1]
    )
    assert not shows(kafka, b"wrong-pass-word")


def test_the_proof_of_scram_is_hidden(kafka: oncelog.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    received: list[bytes] = []
    authenticate = SaslClient.authenticate

    def noted(self: SaslClient, token: bytes, version: int = 2) -> bytes:
        sent.append(token)
        received.append(authenticate(self, token, version))
        return received[-1]

    monkeypatch.setattr(SaslClient, "authenticate", noted)
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("SCRAM-SHA-256", "app", USERS["app"])
    kafka.wait_for("SaslAuthenticate", times=2)
    for token in (*sent, *received):
        assert not shows(kafka, token)
    assert not shows(kafka, sent[1].partition(b",p=")[2])


def test_an_unknown_mechanism(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.handshake("GSSAPI")
    failed = kafka.wait_for("SaslHandshake", error="UNSUPPORTED_SASL_MECHANISM")
    assert (failed.mechanism, failed.body.mechanism) == ("GSSAPI", "GSSAPI")


@pytest.mark.parametrize(
    ("password", "outcome", "errors"),
    [(USERS["app"], "responded", ()), ("wrong", "closed", ("SASL_AUTHENTICATION_FAILED",))],
)
def test_tokens_without_headers(kafka: oncelog.Broker, password: str, outcome: str, errors: Any) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.handshake("PLAIN", version=0)
        try:
            client.bare(f"\0app\0{password}".encode())
        except Closed:
            assert errors
    found = kafka.wait_for("SaslAuthenticate", error=errors[0] if errors else "NONE")
    assert (found.client_id, found.principal, found.outcome, found.errors) == (
        "sasl",
        "User:app",
        outcome,
        errors,
    )
    assert not shows(kafka, f"\0app\0{password}".encode())


def test_the_journal_bounds_logins() -> None:
    with oncelog.Broker(users=USERS, requests_kept=2) as kafka:
        for _ in range(3):
            with SaslClient(kafka.bootstrap_servers) as client:
                client.log_in("PLAIN", "app", USERS["app"])
        kafka.wait_for("SaslAuthenticate", times=2)
        with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
            client.log_in("PLAIN", "x" * 10_000, "wrong")
        failed = kafka.wait_for("SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED")
        assert len(failed.principal) == 205
        assert len(kafka.requests("SaslAuthenticate")) == 2


def test_a_broker_that_keeps_no_requests() -> None:
    with oncelog.Broker(users=USERS, requests_kept=0) as kafka:
        with SaslClient(kafka.bootstrap_servers) as client:
            client.log_in("PLAIN", "app", USERS["app"])
        assert kafka.requests() == []


def test_a_login_at_a_listener_without_sasl() -> None:
    with oncelog.Broker() as kafka:
        with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
            client.log_in("PLAIN", "app", USERS["app"])
        found = kafka.wait_for("SaslAuthenticate", error="ILLEGAL_SASL_STATE")
        assert (found.mechanism, found.principal, found.body.auth_bytes) == (
            None,
            "User:ANONYMOUS",
            HIDDEN.encode(),
        )
        assert not shows(kafka, USERS["app"].encode())


def test_salted_passwords(kafka: oncelog.Broker) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "app", USERS["app"])
        rows = [ScramCredentialUpsertion(name, 1, 4096, b"salt", salted) for name in ("new", "newer")]
        client.call(AlterUserScramCredentialsRequest([], rows), 0)
    request = kafka.wait_for("AlterUserScramCredentials")
    assert [(one.name, one.salt, one.salted_password) for one in request.body.upsertions] == [
        ("new", b"salt", HIDDEN.encode()),
        ("newer", b"salt", HIDDEN.encode()),
    ]
    assert not shows(kafka, salted)


def test_delegation_tokens(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "app", USERS["app"])
        token = client.call(CreateDelegationTokenRequest(None, None, [], 60_000), 3)
        client.call(RenewDelegationTokenRequest(token.hmac, 1000), 2)
        client.call(DescribeDelegationTokenRequest(None), 3)
        client.call(ExpireDelegationTokenRequest(token.hmac, -1), 2)
    kafka.wait_for("ExpireDelegationToken")
    created = kafka.wait_for("CreateDelegationToken").response
    [described] = kafka.wait_for("DescribeDelegationToken").response.tokens
    assert created.hmac == described.hmac == HIDDEN.encode()
    assert (created.token_id, described.token_id) == (token.token_id, token.token_id)
    assert len(token.hmac) == 64
    assert not shows(kafka, token.hmac)


def test_passwords_in_configurations(kafka: oncelog.Broker) -> None:
    key = "listener.name.ssl.ssl.keystore.password"
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "app", USERS["app"])
        shown = AlterableConfig("log.retention.ms", 0, "1000000")
        configs = [AlterableConfig(key, 0, "pass-word-of-keys"), shown]
        client.call(
            IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER_RESOURCE, "", configs)], True), 1
        )
        old = [OldConfig(key, "pass-word-of-keys")]
        client.call(AlterConfigsRequest([OldResource(BROKER_RESOURCE, "", old)], True), 2)
    request = kafka.wait_for("IncrementalAlterConfigs", error=None)
    assert [one.value for one in request.body.resources[0].configs] == [HIDDEN, "1000000"]
    kafka.wait_for("AlterConfigs", error=None)
    assert not shows(kafka, b"pass-word-of-keys")


@pytest.mark.parametrize("api", ["SaslHandshake", "SaslAuthenticate"])
def test_a_rule_about_logins_is_refused(kafka: oncelog.Broker, api: str) -> None:
    with pytest.raises(oncelog.InvalidArgumentError, match=f"{api} is a part of the log-in, which no rule"):
        kafka.faults.on(api).close()


def test_a_failed_login_can_be_waited_for(kafka: oncelog.Broker) -> None:
    with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
        client.log_in("PLAIN", "app", "wrong")
    failed = kafka.wait_for_failed_login()
    assert (failed.step, failed.listener, failed.mechanism, failed.principal) == (
        "SASL",
        "SASL_PLAINTEXT",
        "PLAIN",
        "User:app",
    )
    assert "wrong" not in repr(failed)
    with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
        client.log_in("SCRAM-SHA-256", "nobody", "wrong")
    other = kafka.wait_for_failed_login(after=failed, listener="sasl_plaintext")
    assert (other.principal, other.mechanism) == ("User:nobody", "SCRAM-SHA-256")
    assert kafka.failed_logins() == [failed, other]
    assert kafka.failed_logins(listener="OTHER") == []
    with pytest.raises(oncelog.WaitTimeoutError, match="others that failed"):
        kafka.wait_for_failed_login(step="TLS", timeout=0)
    kafka.reset()
    assert kafka.failed_logins() == []


def test_a_failed_handshake_can_be_waited_for() -> None:
    with oncelog.Broker(tls=True) as kafka:
        host, port = kafka.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as plain, pytest.raises(ssl.SSLError):
            ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")
        failed = kafka.wait_for_failed_login(step="TLS")
        assert (failed.listener, failed.mechanism, failed.principal) == ("SSL", None, None)
        assert failed.reason.startswith("TLS handshake: "), failed
        assert "unknown ca" in failed.reason
