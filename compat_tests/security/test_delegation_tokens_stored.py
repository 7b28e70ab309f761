"""Delegation tokens in time and on the disk: what ends with one, and a directory that goes to oncelog and back."""

from __future__ import annotations

import base64
import pathlib

import pytest

from compat_tests.brokers import TARGETS
from compat_tests.differential import Session
from compat_tests.security.sasl import PASSWORD, USER, SaslTarget
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common import exchanges
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields
from tests.common.sasl_client import Closed, LoginFailed, SaslClient

LIFETIME_MS = 1500
TOKEN_EXPIRED = 66
HOUR_MS = 3_600_000


def owner_of(target: SaslTarget) -> Session:
    """A session of the user, who has logged in with a password."""
    return Session(target.bootstrap, user=(USER, PASSWORD))


def create(owner: Session, lifetime_ms: int = -1, renewers: tuple[str, ...] = ()) -> Fields:
    rows = [{"principal_type": "User", "principal_name": name} for name in renewers]
    asked: Fields = {"owner_principal_name": None, "renewers": rows, "max_lifetime_ms": lifetime_ms}
    response: Fields = owner.call_unobserved("CreateDelegationToken", 3, asked)
    assert response["error_code"] == 0, response
    return response


def change(owner: Session, api: str, token: Fields, period_ms: int) -> int:
    """Renew or expire. Returns when the token expires."""
    field = {"Renew": "renew_period_ms", "Expire": "expiry_time_period_ms"}[api]
    asked = {"hmac": token["hmac"], field: period_ms}
    response = owner.call_unobserved(f"{api}DelegationToken", 2, asked)
    assert response["error_code"] == 0, response
    return int(response["expiry_timestamp_ms"])


def described(owner: Session) -> dict[str, Fields]:
    """All tokens by id."""
    response = owner.call_unobserved("DescribeDelegationToken", 3, {"owners": None})
    assert response["error_code"] == 0, response
    return {row["token_id"]: row for row in response["tokens"]}


def until_described(owner: Session, wanted: dict[str, int]) -> dict[str, Fields]:
    """All tokens, once they are those, each with the time at which it expires: Kafka's broker learns of a change after
    the response.
    """
    deadline = now_ms() + WAIT_MS
    while True:
        found = described(owner)
        if {token_id: row["expiry_timestamp"] for token_id, row in found.items()} == wanted:
            return found
        assert now_ms() < deadline, (found, wanted)


def log_in(client: SaslClient, token: Fields, mechanism: str = "SCRAM-SHA-256") -> None:
    password = base64.b64encode(token["hmac"]).decode()
    client.log_in(mechanism, token["token_id"], password, ",tokenauth=true")


def is_let_in(target: SaslTarget, token: Fields) -> bool:
    """Whether a client gets in by the token, by either SCRAM, and a request of its is served."""
    found = set()
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with SaslClient(target.bootstrap) as client:
            try:
                log_in(client, token, mechanism)
            except LoginFailed:
                found.add(False)
            else:
                client.call(MetadataRequest([]), 12)
                found.add(True)
    (answer,) = found
    return answer


def call_for(client: SaslClient, duration_ms: int) -> None:
    """Send requests. Raises Closed."""
    end = now_ms() + duration_ms
    while now_ms() < end:
        client.call(MetadataRequest([]), 12)


@pytest.mark.parametrize("name", TARGETS)
def test_a_session_ends_with_its_token(name: str) -> None:
    """A token that has expired and is not removed yet lets a client in for a session of no time, as Kafka's does."""
    with SaslTarget(name).running() as target:
        owner = owner_of(target)
        token = create(owner, LIFETIME_MS)
        until_described(owner, {token["token_id"]: token["expiry_timestamp_ms"]})
        with SaslClient(target.bootstrap) as client:
            log_in(client, token)
            assert 0 < client.lifetime_ms <= LIFETIME_MS
            with pytest.raises(Closed):
                call_for(client, 20_000)
        assert now_ms() >= token["expiry_timestamp_ms"]
        asked = {"hmac": token["hmac"], "renew_period_ms": -1}
        assert owner.call_unobserved("RenewDelegationToken", 2, asked)["error_code"] == TOKEN_EXPIRED
        with SaslClient(target.bootstrap) as client:
            log_in(client, token)
            assert client.lifetime_ms == 0
            with pytest.raises(Closed):
                client.call(MetadataRequest([]), 12)
        owner.end()


@exchanges.METADATA
def test_a_directory_with_users_and_tokens_goes_to_oncelog_and_back(tmp_path: pathlib.Path) -> None:
    """Kafka makes some, oncelog removes, renews and makes some, Kafka has what is left; each lets in by them."""
    data_dir = tmp_path / "data"
    with SaslTarget("kafka", data_dir).running() as kafka:
        owner = owner_of(kafka)
        kept, renewed, gone = (
            create(owner, renewers=("bob", "eve")),
            create(owner, 9 * HOUR_MS),
            create(owner),
        )
        gone_before = create(owner)
        tokens = (kept, renewed, gone, gone_before)
        ends = {token["token_id"]: token["expiry_timestamp_ms"] for token in tokens}
        until_described(owner, ends)
        change(owner, "Expire", gone_before, -1)
        del ends[gone_before["token_id"]]
        ends[renewed["token_id"]] = change(owner, "Expire", renewed, HOUR_MS)
        before = until_described(owner, ends)
        assert [is_let_in(kafka, token) for token in tokens] == [True, True, True, False]
        owner.end()
    with SaslTarget("oncelog", data_dir).running(with_user=False) as ours:
        assert logs_in_with_password(ours)
        owner = owner_of(ours)
        assert described(owner) == before
        assert [is_let_in(ours, token) for token in tokens] == [True, True, True, False]
        ends[renewed["token_id"]] = change(owner, "Renew", renewed, 2 * HOUR_MS)
        change(owner, "Expire", gone, -1)
        del ends[gone["token_id"]]
        new = create(owner, renewers=("bob",))
        ends[new["token_id"]] = new["expiry_timestamp_ms"]
        after = until_described(owner, ends)
        owner.end()
    with SaslTarget("kafka", data_dir).running(with_user=False) as again:
        owner = owner_of(again)
        assert until_described(owner, ends) == after
        assert logs_in_with_password(again)
        assert [is_let_in(again, token) for token in (kept, renewed, gone, new)] == [True, True, False, True]
        owner.end()


def logs_in_with_password(target: SaslTarget) -> bool:
    """Whether the user, and not with another password, gets in by both SCRAMs."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with SaslClient(target.bootstrap) as client:
            client.log_in(mechanism, USER, PASSWORD)
            client.call(MetadataRequest([]), 12)
        with SaslClient(target.bootstrap) as client, pytest.raises(LoginFailed):
            client.log_in(mechanism, USER, "wrong")
    return True
