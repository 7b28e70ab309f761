"""The log-in upstream is the proxy's own: no client logs in there through it, unless log-ins pass."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from oncelog.broker.client.connection import ClientConnection
from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.opening import open_connection
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.proxy.upstream_logins import UpstreamLogins
from oncelog.broker.security.sasl.authenticator import LoginExchange
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from oncelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from oncelog.wire.schema import Request
from tests.client.security.test_login import SESSION_S, password, sasl_broker
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.proxy.memory_pipes import MemoryPipes
from tests.proxy.memory_reactor import MemoryReactor
from tests.proxy.sim_proxy import HOST, PORT, SimProxy
from tests.proxy.test_logins import MECHANISMS, WITHOUT_LOGIN, settings

USERS = {"app": "proxy-secret"}
TOKEN = b"\0app\0app-secret"
"""PLAIN's, for the user of upstream."""
TOKENAUTH = ' tokenauth="true"'
ILLEGAL = SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
REFUSED = SaslAuthenticateResponse(
    ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
)


class Sees(Interceptor):
    """With it, every request is decoded."""


def upstream_login(kind: str) -> tuple[SimBroker, UpstreamLogins]:
    """A cluster, and the proxy's log-in there."""
    if kind == "no log-in":
        return SimBroker(), UpstreamLogins({})
    if kind == "one for all":
        return sasl_broker(), UpstreamLogins(settings())
    by_user = {"*": {"username": "app", "password": "app-secret"}}
    return sasl_broker(), UpstreamLogins(WITHOUT_LOGIN, by_user)


def watched(broker: SimBroker) -> list[LoginExchange]:
    """What upstream is asked about log-ins from now on."""
    seen: list[LoginExchange] = []
    broker.node.host.login_observers.append(
        lambda _, step: seen.append(step) if isinstance(step, LoginExchange) else None
    )
    return seen


async def connected(proxy: SimProxy, listener: str) -> ClientConnection:
    security = password("PLAIN", "app", USERS["app"]) if listener == "SASL_PLAINTEXT" else None
    connection = await open_connection(proxy.open_transport, HOST, PORT, security=security)
    assert not (await connection.call(MetadataRequest([]))).error_code  # it has its log-in upstream
    return connection


def is_no_login(response: Any) -> bool:
    return response in (ILLEGAL, REFUSED)


@pytest.mark.parametrize("with_interceptor", [False, True])
@pytest.mark.parametrize("with_fast_paths", [False, True])
@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("kind", ["no log-in", "one for all", "one for each user"])
def test_no_log_in_of_a_client_reaches_upstream(
    kind: str, listener: str, with_fast_paths: bool, with_interceptor: bool
) -> None:
    parts: Mapping[str, Any] = {"reactor": MemoryReactor(), "pipes": MemoryPipes()} if with_fast_paths else {}

    async def main() -> None:
        broker, logins = upstream_login(kind)
        async with (
            broker,
            SimProxy(
                broker.open_transport,
                [("simulated", 9092)],
                MECHANISMS,
                listeners=(listener,),
                users=USERS if listener == "SASL_PLAINTEXT" else None,
                logins=logins,
                **parts,
            ) as proxy,
        ):
            if with_interceptor:
                proxy.proxy.dispatcher.interception.install(Sees())
            connection = await connected(proxy, listener)
            seen = watched(broker)
            for token in (TOKEN, bytes(1_000_000)):
                for version in (0, 1, 2):
                    assert await connection.call(SaslAuthenticateRequest(token), version) == REFUSED
            if listener == "PLAINTEXT":  # elsewhere it renews the log-in at the proxy
                for version in (0, 1):
                    for mechanism in ("PLAIN", "SCRAM-SHA-256", "x"):
                        response = await connection.call(SaslHandshakeRequest(mechanism), version)
                        assert response == ILLEGAL
            in_flight: list[Any] = []
            for _ in range(3):  # in the order of the requests, among those that go upstream
                in_flight.append(await connection.send(MetadataRequest([])))
                in_flight.append(await connection.send(SaslAuthenticateRequest(TOKEN)))
            responses = [await one.wait_response() for one in in_flight]
            assert [is_no_login(one) for one in responses] == [False, True] * 3
            assert seen == []

    simulated(main)()


@simulated
async def test_a_client_renews_its_log_in_at_the_proxy_and_the_proxy_its_own_upstream() -> None:
    async with (
        sasl_broker() as broker,
        SimProxy(
            broker.open_transport,
            [("simulated", 9092)],
            {**MECHANISMS, "connections.max.reauth.ms": str(9 * SESSION_S * 1000)},
            listeners=("SASL_PLAINTEXT",),
            users=USERS,
            logins=UpstreamLogins(settings()),
        ) as proxy,
    ):
        connection = await connected(proxy, "SASL_PLAINTEXT")
        seen = watched(broker)
        for _ in range(2):
            await trio.sleep(SESSION_S)
            assert (await connection.call(SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
            mine = b"\0app\0proxy-secret"
            assert (await connection.call(SaslAuthenticateRequest(mine), 2)).error_code == 0
            # A second renewal within a second is a request like others.
            assert await connection.call(SaslHandshakeRequest("PLAIN"), 1) == ILLEGAL
            assert await connection.call(SaslAuthenticateRequest(TOKEN), 2) == REFUSED
        assert len(seen) == 6, "a handshake and two tokens, twice"
        assert {one.mechanism for one in seen} == {"SCRAM-SHA-256"}
        assert [one.principal for one in proxy.connections] == ["User:app"]


async def token_of_the_proxys_user(broker: SimBroker) -> bytes:
    """The HMAC of a token that the proxy's user upstream has made at the cluster."""
    connection = await open_connection(
        broker.open_transport, *broker.listener.address, security=password("PLAIN")
    )
    made = await connection.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    connection.close()
    assert made.error_code == 0
    return bytes(made.hmac)


@pytest.mark.parametrize("with_fast_paths", [False, True])
@pytest.mark.parametrize("kind", ["one for all", "one for each user"])
def test_a_client_that_nobody_knows_gets_no_token_of_the_proxys_user(
    kind: str, with_fast_paths: bool
) -> None:
    """It would be a log-in as that user, without the proxy, and after its end."""
    parts: Mapping[str, Any] = {"reactor": MemoryReactor(), "pipes": MemoryPipes()} if with_fast_paths else {}

    async def main() -> None:
        broker, logins = upstream_login(kind)
        async with (
            broker,
            SimProxy(broker.open_transport, [("simulated", 9092)], logins=logins, **parts) as proxy,
        ):
            hmac = await token_of_the_proxys_user(broker)
            tokens = broker.node.services.delegation_tokens
            before = tokens.all()
            connection = await connected(proxy, "PLAINTEXT")
            requests: tuple[Request[Any], ...] = (
                CreateDelegationTokenRequest(max_lifetime_ms=-1),
                RenewDelegationTokenRequest(hmac, 1),
                ExpireDelegationTokenRequest(hmac, -1),
                DescribeDelegationTokenRequest(None),
            )
            for request in requests:
                for version in (1, 2):
                    response = await connection.call(request, version)
                    assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert tokens.all() == before

    simulated(main)()


@simulated
async def test_a_user_of_the_proxy_gets_tokens_of_the_proxy() -> None:
    """The cluster knows neither that user nor those tokens: they let nobody in there."""
    async with (
        sasl_broker() as broker,
        SimProxy(
            broker.open_transport,
            [("simulated", 9092)],
            {**MECHANISMS, "delegation.token.secret.key": "of-the-proxy"},
            listeners=("SASL_PLAINTEXT",),
            users=USERS,
            logins=UpstreamLogins(settings()),
        ) as proxy,
    ):
        connection = await connected(proxy, "SASL_PLAINTEXT")
        made = await connection.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert (made.error_code, made.principal_name) == (0, "app")
        assert broker.node.services.delegation_tokens.all() == []
        by_token = password(
            "SCRAM-SHA-256", made.token_id, base64.b64encode(bytes(made.hmac)).decode(), TOKENAUTH
        )
        again = await open_connection(proxy.open_transport, HOST, PORT, security=by_token)
        assert not (await again.call(MetadataRequest([]))).error_code
        refused = await again.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        with pytest.raises(AuthenticationError):
            await open_connection(broker.open_transport, *broker.listener.address, security=by_token)
