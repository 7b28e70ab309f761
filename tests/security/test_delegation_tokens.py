"""Delegation tokens: their four APIs, log-ins by them, and their end."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import oncelog
from oncelog.broker.handlers.describe_delegation_token import handle
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from oncelog.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from oncelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.common.sasl_client import Closed, LoginFailed, SaslClient

DAY_MS = 86_400_000
USERS = {"alice": "a-secret", "bob": "b-secret"}
CONFIG = {"delegation.token.secret.key": "the-key"}
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(users=USERS, config=CONFIG) as broker:
        broker.clock.freeze()
        yield broker


@dataclass
class As:
    """Requests of one user."""

    kafka: oncelog.Broker
    user: str

    def _call(self, request: object, version: int) -> object:
        with SaslClient(self.kafka.bootstrap_servers) as client:
            client.log_in("PLAIN", self.user, USERS[self.user])
            return client.call(request, version)  # type: ignore[arg-type]

    def create(
        self,
        owner: str | None = None,
        renewers: tuple[str, ...] = (),
        lifetime_ms: int = -1,
        version: int = 3,
    ) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(
            owner and "User",
            owner,
            [CreatableRenewers(*renewer.split(":")) for renewer in renewers],
            lifetime_ms,
        )
        response = self._call(request, version)
        assert isinstance(response, CreateDelegationTokenResponse)
        return response

    def renew(self, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        response = self._call(RenewDelegationTokenRequest(hmac, period_ms), 2)
        return response.error_code, response.expiry_timestamp_ms  # type: ignore[attr-defined]

    def expire(self, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
        response = self._call(ExpireDelegationTokenRequest(hmac, period_ms), 2)
        return response.error_code, response.expiry_timestamp_ms  # type: ignore[attr-defined]

    def describe(self, *owners: str, all: bool = False) -> list[DescribedDelegationToken]:
        asked = None if all else [DescribeDelegationTokenOwner("User", owner) for owner in owners]
        response = self._call(DescribeDelegationTokenRequest(asked), 3)
        assert response.error_code == 0  # type: ignore[attr-defined]
        return response.tokens  # type: ignore[attr-defined, no-any-return]


def now_ms(kafka: oncelog.Broker) -> int:
    return round(kafka.clock.now().timestamp() * 1000)


def log_in_by(kafka: oncelog.Broker, token: CreateDelegationTokenResponse, client: SaslClient) -> None:
    password = base64.b64encode(token.hmac).decode()
    client.log_in("SCRAM-SHA-256", token.token_id, password, ",tokenauth=true")


def test_a_token_is_made(kafka: oncelog.Broker) -> None:
    now = now_ms(kafka)
    token = As(kafka, "alice").create(renewers=("User:bob",))
    assert (token.error_code, token.principal_type, token.principal_name) == (0, "User", "alice")
    assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "alice")
    assert abs(token.issue_timestamp_ms - now) <= 1
    issued = token.issue_timestamp_ms
    assert (token.expiry_timestamp_ms - issued, token.max_timestamp_ms - issued) == (DAY_MS, 7 * DAY_MS)
    assert (len(token.token_id), len(token.hmac)) == (22, 64)
    [described] = As(kafka, "alice").describe("alice")
    assert (described.token_id, described.hmac) == (token.token_id, token.hmac)
    assert [renewer.principal_name for renewer in described.renewers] == ["bob"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_version(kafka: oncelog.Broker, version: int) -> None:
    token = As(kafka, "alice").create("bob" if version == 3 else "", version=version)
    requester = "alice" if version == 3 else ""
    assert (token.error_code, token.token_requester_principal_name) == (0, requester)
    with SaslClient(kafka.bootstrap_servers) as client:
        client.log_in("PLAIN", "alice", USERS["alice"])
        [described] = client.call(DescribeDelegationTokenRequest(None), version).tokens
    assert (described.hmac, described.token_requester_principal_name) == (token.hmac, requester)


def test_a_short_life(kafka: oncelog.Broker) -> None:
    token = As(kafka, "alice").create(lifetime_ms=1000)
    issued = token.issue_timestamp_ms
    assert (token.expiry_timestamp_ms - issued, token.max_timestamp_ms - issued) == (1000, 1000)


def test_a_client_logs_in_by_a_token(kafka: oncelog.Broker) -> None:
    token = As(kafka, "alice").create(lifetime_ms=60_000)
    with SaslClient(kafka.bootstrap_servers) as client:
        log_in_by(kafka, token, client)
        assert client.lifetime_ms == 60_000
        assert client.call(ApiVersionsRequest("x", "1"), 3).error_code == 0
        # Who has logged in by a token gets none.
        assert client.call(CreateDelegationTokenRequest(None, None, [], -1), 3).error_code == NOT_ALLOWED
        assert client.call(DescribeDelegationTokenRequest(None), 3).error_code == NOT_ALLOWED
        assert client.call(RenewDelegationTokenRequest(token.hmac, -1), 2).error_code == NOT_ALLOWED
        assert client.call(ExpireDelegationTokenRequest(token.hmac, -1), 2).error_code == NOT_ALLOWED
        kafka.clock.advance(seconds=61)
        with pytest.raises(Closed):
            client.call(MetadataRequest([]), 12)


@pytest.mark.parametrize("extensions", ["", ",tokenauth=false"])
def test_a_token_is_no_user(kafka: oncelog.Broker, extensions: str) -> None:
    token = As(kafka, "alice").create()
    password = base64.b64encode(token.hmac).decode()
    with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
        client.log_in("SCRAM-SHA-256", token.token_id, password, extensions)


def test_a_user_is_no_token_and_a_wrong_hmac_is_refused(kafka: oncelog.Broker) -> None:
    token = As(kafka, "alice").create()
    for name, password in (("alice", USERS["alice"]), (token.token_id, "wrong"), ("nobody", "x")):
        with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed) as raised:
            client.log_in("SCRAM-SHA-512", name, password, ",tokenauth=true")
        assert raised.value.message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
        )


def test_renewal(kafka: oncelog.Broker) -> None:
    token = As(kafka, "alice").create(renewers=("User:bob",))
    issued = token.issue_timestamp_ms
    kafka.clock.advance(hours=12)
    half = DAY_MS // 2
    assert As(kafka, "bob").renew(token.hmac) == (0, issued + half + DAY_MS)
    assert As(kafka, "alice").renew(token.hmac, 1000) == (0, issued + half + 1000)
    assert As(kafka, "alice").renew(token.hmac, 9 * DAY_MS) == (0, issued + half + DAY_MS)
    assert As(kafka, "alice").renew(b"other") == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    other = As(kafka, "bob").create()
    assert As(kafka, "alice").renew(other.hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)


def test_expiry_on_demand(kafka: oncelog.Broker) -> None:
    token = As(kafka, "alice").create()
    issued = token.issue_timestamp_ms
    assert As(kafka, "bob").expire(token.hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert As(kafka, "alice").expire(token.hmac, 5000) == (0, issued + 5000)
    assert As(kafka, "alice").expire(token.hmac) == (0, issued)
    assert As(kafka, "alice").expire(token.hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    with SaslClient(kafka.bootstrap_servers) as client, pytest.raises(LoginFailed):
        log_in_by(kafka, token, client)


def test_expired_tokens_are_removed_in_time() -> None:
    config = {**CONFIG, "delegation.token.expiry.check.interval.ms": "3600000"}
    with oncelog.Broker(users=USERS, config=config) as kafka:
        token = As(kafka, "alice").create(lifetime_ms=1000)
        kafka.clock.advance(seconds=2)
        assert As(kafka, "alice").renew(token.hmac)[0] in (
            ErrorCode.DELEGATION_TOKEN_EXPIRED,
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        )
        kafka.clock.advance(hours=2)
        assert As(kafka, "alice").describe(all=True) == []


def test_tokens_outlive_a_death(kafka: oncelog.Broker) -> None:
    token = As(kafka, "alice").create()
    kafka.kill()
    kafka.start()
    with SaslClient(kafka.bootstrap_servers) as client:
        log_in_by(kafka, token, client)
    assert [one.hmac for one in As(kafka, "alice").describe(all=True)] == [token.hmac]


def test_who_knows_of_a_token() -> None:
    acls = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    with oncelog.Broker(users={**USERS}, config={**CONFIG, **acls}) as kafka:
        mine, bobs = As(kafka, "alice").create(), As(kafka, "alice").create("bob")
        assert (bobs.principal_name, bobs.token_requester_principal_name) == ("bob", "alice")
        assert As(kafka, "bob").create("alice").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert {one.token_id for one in As(kafka, "alice").describe(all=True)} == {
            mine.token_id,
            bobs.token_id,
        }
        assert [one.token_id for one in As(kafka, "bob").describe(all=True)] == [bobs.token_id]
        assert [one.token_id for one in As(kafka, "bob").describe("alice")] == [bobs.token_id]
        assert As(kafka, "bob").describe() == []


def test_without_the_secret_there_are_no_tokens() -> None:
    with oncelog.Broker(users=USERS) as kafka:
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert As(kafka, "alice").create().error_code == disabled
        assert As(kafka, "alice").renew(b"x") == (disabled, 0)
        assert As(kafka, "alice").expire(b"x") == (disabled, 0)


def test_a_renewer_is_a_user(kafka: oncelog.Broker) -> None:
    refused = As(kafka, "alice").create(renewers=("Group:bob",))
    assert (refused.error_code, refused.issue_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)


def test_who_has_not_logged_in_gets_none() -> None:
    with oncelog.Broker(config=CONFIG) as kafka, SaslClient(kafka.bootstrap_servers) as client:
        created = client.call(CreateDelegationTokenRequest(None, None, [], -1), 3)
        assert (created.error_code, created.expiry_timestamp_ms) == (NOT_ALLOWED, -1)
        assert client.call(RenewDelegationTokenRequest(b"x", -1), 1).expiry_timestamp_ms == -1
        assert client.call(ExpireDelegationTokenRequest(b"x", -1), 1).error_code == NOT_ALLOWED
        assert client.call(DescribeDelegationTokenRequest(None), 1).error_code == NOT_ALLOWED


class AskedToken(SimpleNamespace):
    """A token that counts how often somebody looks at its renewers."""

    looks = 0

    @property
    def renewers(self) -> list[str]:
        self.looks += 1
        return ["User:bob"]


def test_many_owners_do_not_make_each_token_cost_more() -> None:
    tokens = [
        AskedToken(owner=f"User:{number}", requester="User:alice", token_id="t") for number in range(10)
    ]
    access: Any = SimpleNamespace(
        delegation_tokens=SimpleNamespace(all=lambda: tokens, require_enabled=lambda: None),
        authorization=SimpleNamespace(allows=lambda *asked: False),
    )
    connection = SimpleNamespace(security_protocol="SASL_SSL", is_token_authenticated=False)
    context: Any = SimpleNamespace(connection=connection, principal="User:eve", api_version=3)
    owners = [DescribeDelegationTokenOwner("User", f"stranger {number}") for number in range(1000)]
    assert handle(access, DescribeDelegationTokenRequest([*owners]), context).tokens == []
    owners.append(DescribeDelegationTokenOwner("User", "bob"))
    assert handle(access, DescribeDelegationTokenRequest(owners), context).tokens == []
    assert max(token.looks for token in tokens) <= 3
