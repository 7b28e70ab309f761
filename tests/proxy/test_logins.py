"""Log-ins through a proxy: those that end at it, those that it makes itself, and those that pass through."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.connection import ClientConnection
from oncelog.broker.client.errors import AuthenticationError, error_codes
from oncelog.broker.client.opening import open_connection
from oncelog.broker.client.routes import LeaderOf, Retry
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.dispatch.interfaces import Interceptor
from oncelog.broker.proxy.upstream import UpstreamError
from oncelog.broker.proxy.upstream_logins import UpstreamLogins
from oncelog.broker.requests.request import RequestContext
from oncelog.broker.seams.transport import Transport
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.client.security.test_login import CONFIG, SCRAMS, SESSION_S, password, principals, sasl_broker
from tests.common.batches import batch, record
from tests.harness.log_lines import lines
from tests.harness.requests import produce_request
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.proxy.memory_pipes import MemoryPipes
from tests.proxy.sim_proxy import HOST, PORT, SimProxy

__all__ = ["lines"]  # a fixture

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BOOTSTRAP = [("simulated", 9092)]
MECHANISMS = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}


def settings(
    name: str = "app", secret: str = "app-secret", mechanism: str = "SCRAM-SHA-256"
) -> dict[str, str]:
    """A client.properties for the cluster."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{MODULE} required username="{name}" password="{secret}";',
    }


WITHOUT_LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}


def proxy_before(
    broker: SimBroker, logins: UpstreamLogins | None = None, *, users: dict[str, str] | None = None
) -> SimProxy:
    listener = "SASL_PLAINTEXT" if users else "PLAINTEXT"
    return SimProxy(
        broker.open_transport, BOOTSTRAP, MECHANISMS, listeners=(listener,), users=users, logins=logins
    )


async def connected(proxy: SimProxy, security: ClientSecurity | None = None) -> ClientConnection:
    return await open_connection(proxy.open_transport, HOST, PORT, security=security)


async def is_served(connection: ClientConnection) -> bool:
    return (await connection.call(MetadataRequest([]))).error_code == 0


@simulated
async def test_clients_without_a_password_reach_a_cluster_that_wants_one() -> None:
    async with sasl_broker() as broker, proxy_before(broker, UpstreamLogins(settings())) as proxy:
        with ClusterClient([(HOST, PORT)], proxy.open_transport) as client:
            await client.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
            response = await client.call(MetadataRequest([]), LeaderOf("t", 0), retry=Retry(timeout_s=9))
            assert [(row.host, row.port) for row in response.brokers] == [(HOST, PORT + 1)]
        assert set(principals(broker)) <= {"User:app"}


@simulated
async def test_a_session_at_the_cluster_is_renewed_while_the_client_knows_of_none() -> None:
    async with sasl_broker() as broker, proxy_before(broker, UpstreamLogins(settings())) as proxy:
        connection = await connected(proxy)
        assert await is_served(connection)
        [server] = broker.server_connections()
        handshakes: list[object] = []
        broker.node.host.login_observers.append(lambda _, seen: handshakes.append(seen))
        for _ in range(3):
            await trio.sleep(2 * SESSION_S)
            in_flight = [await connection.send(MetadataRequest([])) for _ in range(5)]
            for one in in_flight:
                assert (await one.wait_response()).error_code == 0
        assert len(handshakes) == 9
        assert broker.server_connections() == [server]


@simulated
async def test_a_renewal_that_is_refused_closes_the_clients_connection() -> None:
    async with sasl_broker() as broker, proxy_before(broker, UpstreamLogins(settings())) as proxy:
        connection = await connected(proxy)
        assert await is_served(connection)
        image = broker.node.metadata.image.scram_credentials
        image.clear()
        await trio.sleep(2 * SESSION_S)
        with pytest.raises(KafkaError, match="closed the connection"):
            await is_served(connection)


@simulated
async def test_a_wrong_password_for_the_cluster_is_told_at_the_start() -> None:
    async with sasl_broker() as broker:
        said = (
            "^the upstream cannot be used: simulated:9092: Authentication failed during authentication due to invalid "
            "credentials with SASL mechanism SCRAM-SHA-256$"
        )
        with pytest.RaisesGroup(pytest.RaisesExc(UpstreamError, match=said), flatten_subgroups=True):
            async with proxy_before(broker, UpstreamLogins(settings(secret="wrong"))):
                pass


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_clients_log_in_at_the_proxy_before_an_open_cluster(mechanism: str) -> None:
    async def main() -> None:
        async with SimBroker() as broker, proxy_before(broker, users={"app": "app-secret"}) as proxy:
            connection = await connected(proxy, password(mechanism))
            assert await is_served(connection)
            assert [one.principal for one in proxy.connections] == ["User:app"]
            with pytest.raises(AuthenticationError):
                await connected(proxy, password(mechanism, secret="wrong"))
            with pytest.raises(KafkaError):
                await is_served(await connected(proxy))
            await trio.testing.wait_all_tasks_blocked()
            assert len(broker.server_connections()) == 1

    simulated(main)()


@simulated
async def test_requests_after_a_login_pass_as_bytes() -> None:
    pipes = MemoryPipes()
    async with (
        SimBroker() as broker,
        SimProxy(
            broker.open_transport,
            BOOTSTRAP,
            MECHANISMS,
            listeners=("SASL_PLAINTEXT",),
            users={"app": "app-secret"},
            pipes=pipes,
        ) as proxy,
    ):
        connection = await connected(proxy, password("PLAIN"))
        created = await connection.call(CreateTopicsRequest([CreatableTopic("t", 1, 1)]))
        request = produce_request("t", batch([record(None, bytes(700_000))]))
        request.topic_data[0].topic_id = created.topics[0].topic_id
        response = await connection.call(request)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert pipes.taken > 0


@simulated
async def test_each_user_has_a_login_of_its_own_at_the_cluster() -> None:
    broker = SimBroker(
        config=CONFIG, protocol="SASL_PLAINTEXT", users={"a": "a-1", "b": "b-1", "rest": "r-1"}
    )
    by_user = {
        "alice": {"username": "a", "password": "a-1"},
        "bob": {"sasl.mechanism": "SCRAM-SHA-512", "username": "b", "password": "b-1"},
        "carol": {"username": "b", "password": "wrong"},
    }
    users = dict.fromkeys(("alice", "bob", "carol", "dora"), "x")
    async with broker, proxy_before(broker, UpstreamLogins(WITHOUT_LOGIN, by_user), users=users) as proxy:
        for name, principal in (("alice", "User:a"), ("bob", "User:b")):
            connection = await connected(proxy, password("PLAIN", name, "x"))
            assert await is_served(connection)
            assert principals(broker) == [principal]
            connection.close()
            await trio.testing.wait_all_tasks_blocked()
        for name in ("carol", "dora"):
            connection = await connected(proxy, password("PLAIN", name, "x"))
            with pytest.raises(KafkaError, match="closed the connection"):
                await is_served(connection)
    by_user["*"] = {"username": "rest", "password": "r-1"}
    async with broker, proxy_before(broker, UpstreamLogins(WITHOUT_LOGIN, by_user), users=users) as proxy:
        connection = await connected(proxy, password("PLAIN", "dora", "x"))
        assert await is_served(connection)
        assert principals(broker) == ["User:rest"]


@simulated
async def test_interceptors_see_what_is_asked_before_a_login_and_nothing_of_it_goes_upstream() -> None:
    class Early(Interceptor):
        apis = frozenset({"ApiVersions"})

        def __init__(self) -> None:
            self.seen: list[str] = []
            self.acts: list[Any] = []

        async def on_request(self, context: RequestContext) -> Any:
            self.seen.append("request")
            return await self.acts.pop(0)(context) if self.acts else None

        async def on_response(self, context: RequestContext, response: Any) -> Any:
            self.seen.append("response")
            return response

        def on_done(self, context: RequestContext, response: Any, failure: BaseException | None) -> None:
            self.seen.append("done")

    async def refuse(context: RequestContext) -> Any:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    async with sasl_broker() as broker, proxy_before(broker, users={"app": "x"}) as proxy:
        early = Early()
        proxy.proxy.dispatcher.interception.install(early)

        async def asked() -> ApiVersionsResponse:  # a connection may ask once before its log-in
            connection = ClientConnection(await proxy.open_transport(HOST, PORT))
            return await connection.call(ApiVersionsRequest("a", "1"), 3)

        told = await asked()
        assert told.api_keys
        assert early.seen == ["request", "response", "done"]
        early.acts = [proxy.proxy.dispatcher.handle_behind_interceptors, refuse]
        assert await asked() == told
        assert (await asked()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert early.seen == ["request", "response", "done"] * 3
        assert broker.server_connections() == []


@simulated
async def test_the_node_that_a_client_means_is_checked_before_a_login_and_after_it() -> None:
    """The proxy checks it before its clients send a password, upstream after that (KIP-1242)."""
    async with SimBroker() as broker, proxy_before(broker, users={"app": "app-secret"}) as proxy:
        assert await is_served(await connected(proxy, password("PLAIN")))  # the proxy learns of its nodes

        async def asked(port: int, cluster_id: str | None, node_id: int, *, is_logged_in: bool) -> int:
            connection = ClientConnection(await proxy.open_transport(HOST, port))
            if is_logged_in:
                connection = await open_connection(
                    proxy.open_transport, HOST, port, security=password("PLAIN")
                )
            request = ApiVersionsRequest("a", "1", cluster_id, node_id)
            return (await connection.call(request, 5)).error_code

        own = broker.node.metadata.cluster_id
        for is_logged_in in (False, True):
            for cluster_id, node_id, error in (
                (own, 1, ErrorCode.NONE),
                (None, -1, ErrorCode.NONE),
                (own, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
                ("other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
                (own, -1, ErrorCode.INVALID_REQUEST),
                (None, 1, ErrorCode.INVALID_REQUEST),
            ):
                found = await asked(PORT + 1, cluster_id, node_id, is_logged_in=is_logged_in)
                assert found == error, (cluster_id, node_id, is_logged_in)
        assert await asked(PORT, own, 7, is_logged_in=False) == ErrorCode.NONE  # any node may answer there


@simulated
async def test_an_address_that_leads_to_another_node_tells_its_clients_to_bootstrap_again() -> None:
    async with SimBroker() as first, SimBroker(config={"node.id": "2"}) as second:
        behind = [first]

        async def connect(host: str, port: int) -> Transport:
            return await behind[-1].open_transport(host, port)

        async with SimProxy(connect, BOOTSTRAP) as proxy:
            assert (await proxy.connect().call(MetadataRequest([]), 12, MetadataResponse)).brokers
            own = first.node.metadata.cluster_id
            errors = []
            for node in (first, second):
                behind.append(node)
                request = ApiVersionsRequest("a", "1", own, 1)
                response = await proxy.connect(PORT + 1).call(request, 5, ApiVersionsResponse)
                errors.append(response.error_code)
            assert errors == [ErrorCode.NONE, ErrorCode.REBOOTSTRAP_REQUIRED]


@simulated
async def test_a_cluster_that_asks_for_a_login_which_nobody_gives_is_told(lines: list[str]) -> None:
    async with sasl_broker() as broker:
        for logins, level in (
            (UpstreamLogins({}), "WARNING"),
            (UpstreamLogins({}, pass_through=True), "INFO"),
        ):
            async with proxy_before(broker, logins):
                [told] = [line for line in lines if "without a log-in" in line or "asks for a log-in" in line]
                assert level in told
                assert ("--upstream-config" in told) == (level == "WARNING")
            lines.clear()


@pytest.mark.parametrize(
    ("pass_through", "why"),
    [
        (True, "perhaps the client has not logged in"),
        (False, "--upstream-config says as whom, --pass-logins lets clients log in there"),
    ],
)
def test_the_log_says_why_a_client_without_a_log_in_loses_its_connection(
    pass_through: bool, why: str, lines: list[str]
) -> None:
    @simulated
    async def main() -> None:
        async with (
            sasl_broker() as broker,
            proxy_before(broker, UpstreamLogins({}, pass_through=pass_through)) as proxy,
        ):
            lines.clear()
            with pytest.raises(KafkaError, match="closed the connection"):
                await is_served(await connected(proxy))

    main()
    [told] = [line for line in lines if "closed the connection before it had responded" in line]
    assert why in told


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_a_login_passes_through(mechanism: str) -> None:
    async def main() -> None:
        logins = UpstreamLogins({}, pass_through=True)
        async with sasl_broker() as broker, proxy_before(broker, logins) as proxy:
            connection = await connected(proxy, password(mechanism))
            [server] = broker.server_connections()
            for _ in range(3):
                assert await is_served(connection)
                assert principals(broker) == ["User:app"]
                await trio.sleep(2 * SESSION_S)  # the client renews it
            assert broker.server_connections() == [server]
            with pytest.raises(AuthenticationError, match="Authentication failed"):
                await connected(proxy, password(mechanism, secret="wrong"))

    simulated(main)()


@simulated
async def test_a_login_without_headers_does_not_pass() -> None:
    async with sasl_broker() as broker, proxy_before(broker, UpstreamLogins({}, pass_through=True)) as proxy:
        connection = await connected(proxy)
        with pytest.raises(KafkaError, match="closed the connection"):
            await connection.call(SaslHandshakeRequest("PLAIN"), 0)


@simulated
async def test_users_are_the_proxys_own_where_logins_end_there() -> None:
    async with SimBroker() as broker, proxy_before(broker, users={"app": "app-secret"}) as proxy:
        connection = await connected(proxy, password("PLAIN"))
        response = await connection.call(DescribeUserScramCredentialsRequest(None))
        assert [row.user for row in response.results] == ["app"]
        assert error_codes(response) == ()
    async with SimBroker() as broker, proxy_before(broker) as proxy:
        response = await (await connected(proxy)).call(DescribeUserScramCredentialsRequest(None))
        assert response.results == []
