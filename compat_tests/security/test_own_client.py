"""oncelog's own client gets in by the settings of Kafka's clients, or is turned away in one line, on both targets."""

from __future__ import annotations

import base64
import contextlib
import pathlib
from collections.abc import Awaitable, Callable, Iterator

import pytest
import trio

from compat_tests.brokers import check_after
from compat_tests.security.logged_in_clients import OAUTHBEARER, Way, java_settings
from compat_tests.security.sasl import PASSWORD, USER, SaslTarget, while_sessions_pass
from compat_tests.security.secured import USERS, Secured, write_certificates
from compat_tests.targets import OURS_ON_TARGETS
from oncelog.broker.client.cluster_client import ClusterClient
from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.routes import AnyBroker
from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.client.security.keys import read_client_properties
from oncelog.broker.seams.transport import connect
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common.batches import WAIT_MS, now_ms
from tests.common.frames import address
from tests.common.jars import RealPartMissing, require

TIMEOUT_S = 60
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture(scope="module", params=OURS_ON_TARGETS)
def secured(request: pytest.FixtureRequest, certificates: pathlib.Path) -> Iterator[Secured]:
    found = Secured(request.param, certificates)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(found.broker)
        except RealPartMissing as missing:
            require(str(missing))
        if found.target == "oncelog":
            stack.enter_context(contextlib.contextmanager(check_after)(found.broker))
        found.prepare(["own-topic"], "own-")
        yield found


@pytest.fixture(scope="module", params=OURS_ON_TARGETS)
def short_sessions(request: pytest.FixtureRequest) -> Iterator[SaslTarget]:
    with SaslTarget(request.param).running() as target:
        yield target


def ask(bootstrap: str, security: ClientSecurity) -> list[str]:
    """The topics that a client with these settings is told of. Raises KafkaError."""
    found: list[str] = []

    async def main() -> None:
        servers = [address(bootstrap)]
        with ClusterClient(servers, connect, security=security) as client, trio.fail_after(TIMEOUT_S):
            response = await client.call(MetadataRequest(None))
            found.extend(topic.name or "" for topic in response.topics)

    trio.run(main)
    return found


def way(
    secured: Secured,
    certificates: pathlib.Path,
    listener: str,
    *,
    mechanism: str = "",
    user: str = "app",
    password: str = "",
    certificate: str = "",
    token: str = "",
    authority: str = "ca",
    protocol: str = "",
) -> Way:
    return Way(
        secured.address(listener),
        protocol or {"ASKING": "SSL"}.get(listener, listener),
        str(certificates / f"{authority}.pem"),
        str(certificates / f"{certificate}.pem") if certificate else "",
        mechanism,
        user,
        password or USERS.get(user, "x"),
        token_file=str(certificates / f"{token}.jwt") if token else "",
    )


def through_file(way: Way, tmp_path: pathlib.Path) -> ClientSecurity:
    """The security of a client.properties that Kafka's tools would take."""
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in java_settings(way).items()))
    return ClientSecurity(read_client_properties(str(path)))


@pytest.mark.parametrize(
    ("listener", "mechanism", "token", "certificate"),
    [
        *(("SASL_SSL", mechanism, "", "") for mechanism in ("PLAIN", *SCRAMS)),
        *(("SASL_PLAINTEXT", mechanism, "", "") for mechanism in ("PLAIN", *SCRAMS)),
        ("SASL_SSL", OAUTHBEARER, "signed", ""),
        ("SASL_PLAINTEXT", OAUTHBEARER, "unsecured", ""),
        ("SASL_PLAINTEXT", OAUTHBEARER, "", ""),
        ("SSL", "", "", "app"),
    ],
)
def test_it_is_let_in(
    secured: Secured,
    certificates: pathlib.Path,
    tmp_path: pathlib.Path,
    listener: str,
    mechanism: str,
    token: str,
    certificate: str,
) -> None:
    """It sees the topic that User:app may see: so it is known as that user, or by its certificate."""
    given = way(secured, certificates, listener, mechanism=mechanism, token=token, certificate=certificate)
    assert ask(given.servers, through_file(given, tmp_path)) == ["own-topic"]


def test_who_shows_no_certificate_where_one_is_asked_for_is_anonymous(
    secured: Secured, certificates: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    given = way(secured, certificates, "ASKING")
    assert "own-topic" in ask(given.servers, through_file(given, tmp_path))


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
@pytest.mark.parametrize(("user", "password"), [("app", "wrong"), ("nobody", "x")])
def test_a_password_that_is_refused(
    secured: Secured,
    certificates: pathlib.Path,
    tmp_path: pathlib.Path,
    mechanism: str,
    user: str,
    password: str,
) -> None:
    given = way(secured, certificates, "SASL_SSL", mechanism=mechanism, user=user, password=password)
    with pytest.raises(AuthenticationError, match=f"{given.servers}: Authentication failed") as caught:
        ask(given.servers, through_file(given, tmp_path))
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("listener", "options", "said"),
    [
        ("SASL_SSL", {"mechanism": OAUTHBEARER, "token": "strange"}, '"status":"invalid_token"'),
        (
            "SSL",
            {"certificate": "stranger"},
            r"TLS handshake: the broker says: .*(certificate|ca).* \(it refuses",
        ),
        ("ASKING", {"certificate": "expired"}, r"TLS handshake: the broker says: .*certificate"),
        ("SSL", {}, r"TLS handshake: the broker says: .*certificate.* or wants one\)"),
        ("ASKING", {"authority": "strange-ca"}, r"is refused: self-signed certificate.*ssl.truststore"),
        ("PLAINTEXT", {"protocol": "SSL"}, r"TLS handshake: .*does not speak TLS\)"),
        ("ASKING", {"protocol": "PLAINTEXT"}, r"perhaps it wants TLS: security.protocol"),
    ],
)
def test_it_is_turned_away(
    secured: Secured,
    certificates: pathlib.Path,
    tmp_path: pathlib.Path,
    listener: str,
    options: dict[str, str],
    said: str,
) -> None:
    given = way(secured, certificates, listener, **options)
    with pytest.raises(KafkaError, match=said) as caught:
        ask(given.servers, through_file(given, tmp_path))
    assert "\n" not in str(caught.value)


def jaas(mechanism: str, user: str, password: str, more: str = "") -> ClientSecurity:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    return ClientSecurity(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module}LoginModule required "
            f'username="{user}" password="{password}"{more};',
        }
    )


def run(servers: str, security: ClientSecurity, scenario: Callable[[ClusterClient], Awaitable[None]]) -> None:
    async def main() -> None:
        with (
            ClusterClient([address(servers)], connect, security=security) as client,
            trio.fail_after(TIMEOUT_S),
        ):
            await scenario(client)

    trio.run(main)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_a_session_is_renewed(short_sessions: SaslTarget, mechanism: str) -> None:
    """The connection lasts for some sessions, with requests in each, and after one that passed without any."""

    async def scenario(client: ClusterClient) -> None:
        connection = await client.connection(AnyBroker())
        for _ in while_sessions_pass(short_sessions.short_sessions, 2):
            assert (await connection.call(MetadataRequest([]))).error_code == 0
        for _ in while_sessions_pass(short_sessions.short_sessions, 1):
            pass
        assert (await connection.call(MetadataRequest([]))).error_code == 0
        assert connection.is_open

    run(short_sessions.short_sessions, jaas(mechanism, USER, PASSWORD), scenario)


def test_a_delegation_token(short_sessions: SaslTarget) -> None:
    made = []

    async def make(client: ClusterClient) -> None:
        made.append(await client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1)))
        assert made[0].error_code == 0

    run(short_sessions.bootstrap, jaas("PLAIN", USER, PASSWORD), make)
    hmac = base64.b64encode(bytes(made[0].hmac)).decode()
    deadline = now_ms() + WAIT_MS
    while True:  # Kafka's broker learns of the token after the response
        try:
            token = jaas("SCRAM-SHA-512", made[0].token_id, hmac, ' tokenauth="true"')
            ask(short_sessions.bootstrap, token)
        except AuthenticationError:
            assert now_ms() < deadline
        else:
            break
    with pytest.raises(AuthenticationError):
        ask(short_sessions.bootstrap, jaas("SCRAM-SHA-512", made[0].token_id, hmac))
