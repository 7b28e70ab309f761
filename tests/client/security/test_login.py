"""Log-ins of the client at a simulated broker, in virtual time."""

from __future__ import annotations

import base64

import pytest
import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.connection import ClientConnection
from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.opening import open_connection
from oncelog.broker.client.routes import Retry
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.security.sasl.authenticator import LoginExchange
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.harness.scripted_broker import ScriptedBroker
from tests.harness.sim_broker import SimBroker
from tests.harness.sim_network import MemoryNetwork
from tests.harness.simulation import simulated

MODULES = "org.apache.kafka.common.security"
SCRAMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
SESSION_S = 60
CONFIG = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "connections.max.reauth.ms": str(SESSION_S * 1000),
    "delegation.token.secret.key": "the-key",
}


def password(mechanism: str, name: str = "app", secret: str = "app-secret", more: str = "") -> ClientSecurity:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    jaas = f'{MODULES}.{module}LoginModule required username="{name}" password="{secret}"{more};'
    return ClientSecurity(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    )


def sasl_broker(**config: str) -> SimBroker:
    changed = {key.replace("_", "."): text for key, text in config.items()}
    return SimBroker(config={**CONFIG, **changed}, protocol="SASL_PLAINTEXT", users={"app": "app-secret"})


async def connected(broker: SimBroker, client: ClientSecurity | None) -> ClientConnection:
    return await open_connection(broker.open_transport, *broker.listener.address, security=client)


def principals(broker: SimBroker) -> list[str]:
    return [connection.principal for connection in broker.server_connections()]


@simulated
async def test_passwords() -> None:
    async with sasl_broker() as broker:
        for client in map(password, ("PLAIN", *SCRAMS)):
            connection = await connected(broker, client)
            assert (await connection.call(MetadataRequest([]))).error_code == 0
            assert principals(broker) == ["User:app"]
            connection.close()
            await trio.testing.wait_all_tasks_blocked()


@simulated
async def test_a_delegation_token() -> None:
    async with sasl_broker() as broker:
        connection = await connected(broker, password("PLAIN"))
        made = await connection.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        connection.close()
        await trio.testing.wait_all_tasks_blocked()
        hmac = base64.b64encode(bytes(made.hmac)).decode()
        await connected(broker, password("SCRAM-SHA-512", made.token_id, hmac, ' tokenauth="true"'))
        [server] = broker.server_connections()
        assert (server.principal, server.is_token_authenticated) == ("User:app", True)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_a_wrong_password(mechanism: str) -> None:
    async def main() -> None:
        async with sasl_broker() as broker:
            for client in (password(mechanism, secret="wrong"), password(mechanism, "nobody")):
                with pytest.raises(AuthenticationError) as caught:
                    await connected(broker, client)
                assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
                text = str(caught.value)
                assert "simulated:9092: Authentication failed" in text
                assert "\n" not in text
                assert "wrong" not in text

    simulated(main)()


@simulated
async def test_a_mechanism_that_is_not_offered() -> None:
    async with sasl_broker(sasl_enabled_mechanisms="SCRAM-SHA-256") as broker:
        with pytest.raises(AuthenticationError) as caught:
            await connected(broker, password("PLAIN"))
        assert caught.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert "the broker does not offer PLAIN (sasl.mechanism), but SCRAM-SHA-256" in str(caught.value)


@simulated
async def test_a_listener_without_logins() -> None:
    async with SimBroker() as broker:
        with pytest.raises(AuthenticationError, match=r"\(this port asks for no log-in: security.protocol\)"):
            await connected(broker, password("PLAIN"))


@simulated
async def test_a_cluster_client_logs_in_on_each_connection_and_does_not_retry_a_refusal() -> None:
    async with sasl_broker() as broker:
        address = [broker.listener.address]
        with ClusterClient(address, broker.open_transport, security=password("SCRAM-SHA-256")) as client:
            await client.call(MetadataRequest([]))
            assert principals(broker) == ["User:app"]
        wrong = password("PLAIN", secret="wrong")
        began = trio.current_time()
        with (
            ClusterClient(address, broker.open_transport, security=wrong) as client,
            pytest.raises(AuthenticationError),
        ):
            await client.call(MetadataRequest([]), retry=Retry(timeout_s=60))
        assert trio.current_time() - began < 1


@simulated
async def test_a_session_is_renewed_by_the_request_that_is_due() -> None:
    async with sasl_broker() as broker:
        connection = await connected(broker, password("SCRAM-SHA-256"))
        [server] = broker.server_connections()
        handshakes: list[int] = []

        def observe(_: object, seen: object) -> None:
            assert isinstance(seen, LoginExchange)
            handshakes.append(seen.api_key)

        broker.node.host.login_observers.append(observe)
        await trio.sleep(0.8 * SESSION_S)
        await connection.call(MetadataRequest([]))
        assert handshakes == []
        for _ in range(3):  # also after its end
            await trio.sleep(2 * SESSION_S)
            async with trio.open_nursery() as nursery:  # they do not disturb each other
                for _ in range(5):
                    nursery.start_soon(connection.call, MetadataRequest([]))
        assert handshakes == [17, 36, 36] * 3
        assert broker.server_connections() == [server]


@simulated
async def test_a_password_that_was_changed_ends_the_connection_with_its_renewal() -> None:
    async with sasl_broker() as broker:
        connection = await connected(broker, password("PLAIN"))
        broker.node.host.users._passwords["app"] = "another"
        await trio.sleep(2 * SESSION_S)
        for _ in range(2):
            with pytest.raises(AuthenticationError, match="simulated:9092: Authentication failed"):
                await connection.call(MetadataRequest([]))
        assert not connection.is_open


@simulated
async def test_a_renewal_that_is_cancelled_closes_the_connection() -> None:
    network = MemoryNetwork()
    broker = ScriptedBroker(network.listen("b", 1))
    broker.on(SaslHandshakeRequest, lambda request, version: SaslHandshakeResponse(0, ["PLAIN"]))
    answers = iter([SaslAuthenticateResponse(session_lifetime_ms=1000), None])
    broker.on(SaslAuthenticateRequest, lambda request, version: next(answers))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.serve)
        connection = await open_connection(network.connect, "b", 1, security=password("PLAIN"))
        await trio.sleep(1)
        with pytest.raises(KafkaError) as caught:
            await connection.call(SaslHandshakeRequest("x"), 1, timeout_s=1)
        assert caught.value.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
        assert not connection.is_open
        nursery.cancel_scope.cancel()


@simulated
async def test_the_time_to_connect_includes_the_login() -> None:
    network = MemoryNetwork()
    broker = ScriptedBroker(network.listen("b", 1))
    broker.on(SaslHandshakeRequest, lambda request, version: None)
    broker.on(SaslAuthenticateRequest, lambda request, version: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.serve)
        with pytest.raises(KafkaError) as caught:
            await open_connection(network.connect, "b", 1, timeout_s=3, security=password("PLAIN"))
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        nursery.cancel_scope.cancel()


@simulated
async def test_the_transport_can_be_given_away() -> None:
    async with sasl_broker() as broker:
        connection = await connected(broker, password("PLAIN"))
        transport = connection.detach()
        assert not connection.is_open
        again = ClientConnection(transport)
        await again.negotiate()
        assert (await again.call(MetadataRequest([]))).error_code == 0
