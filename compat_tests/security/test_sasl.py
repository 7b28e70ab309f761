"""Log-ins by SASL: both targets let the same clients in, and tell the others the same."""

from __future__ import annotations

import base64
import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator

import pytest

from compat_tests.security.sasl import (
    CLIENTS,
    IN,
    MECHANISMS,
    PASSWORD,
    REFUSED,
    SESSION_MS,
    USER,
    SaslTarget,
    until_closed,
    while_sessions_pass,
)
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from oncelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.common.jars import run_tool
from tests.common.sasl_client import Closed, LoginFailed, SaslClient, ScramClient
from tests.common.tokens import unsecured

pytestmark = pytest.mark.slow
ILLEGAL_STATE, FAILED, UNSUPPORTED_MECHANISM = 34, 58, 33


@pytest.fixture(scope="module")
def targets() -> Iterator[Callable[[str], SaslTarget]]:
    running: dict[str, SaslTarget] = {}
    with contextlib.ExitStack() as stack:

        def of(name: str) -> SaslTarget:
            if name not in running:
                running[name] = stack.enter_context(SaslTarget(name).running())
            return running[name]

        yield of


@pytest.fixture
def sasl(targets: Callable[[str], SaslTarget], target: str) -> SaslTarget:
    return targets(target)


def token(lifetime_s: float, user: str = USER) -> str:
    now = time.time()
    return unsecured({"sub": user, "iat": now - 100, "exp": now + lifetime_s})


# -- stock clients


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("user", "password", "outcome"),
    [(USER, PASSWORD, IN), (USER, "wrong", REFUSED), ("nobody", PASSWORD, REFUSED)],
    ids=("right", "wrong", "unknown"),
)
def test_passwords(
    sasl: SaslTarget, client: str, mechanism: str, user: str, password: str, outcome: str
) -> None:
    assert CLIENTS[client](sasl.bootstrap, mechanism, user, password) == outcome


@pytest.mark.parametrize(
    ("client", "lifetime_s", "outcome"),
    [
        *((client, 60, IN) for client in CLIENTS),
        # aiokafka takes the error for success.
        *((client, -1, REFUSED) for client in CLIENTS if client != "aiokafka"),
    ],
)
def test_oauth_tokens(sasl: SaslTarget, client: str, lifetime_s: float, outcome: str) -> None:
    assert CLIENTS[client](sasl.bootstrap, "OAUTHBEARER", USER, token(lifetime_s)) == outcome


JAVA = {
    "right": ("PLAIN", "plain.PlainLoginModule", PASSWORD, ""),
    "wrong": ("PLAIN", "plain.PlainLoginModule", "no", "Authentication failed: Invalid username or password"),
    "scram": ("SCRAM-SHA-512", "scram.ScramLoginModule", PASSWORD, ""),
    "scram-wrong": (
        "SCRAM-SHA-512",
        "scram.ScramLoginModule",
        "no",
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
    ),
}


def java_settings(folder: pathlib.Path, mechanism: str, module: str, user: str, password: str) -> str:
    quoted = password.replace('"', '\\\\"')
    path = folder / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
        f'username="{user}" password="{quoted}";\n'
    )
    return str(path)


@pytest.mark.parametrize("case", JAVA)
def test_java(sasl: SaslTarget, tmp_path: pathlib.Path, case: str) -> None:
    mechanism, module, password, said = JAVA[case]
    settings = java_settings(tmp_path, mechanism, module, USER, password)
    run = run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", sasl.bootstrap, "--command-config", settings, "--list"),
        check=False,
    )
    assert (run.returncode != 0) == bool(said), run.stdout + run.stderr
    assert said in run.stdout + run.stderr


# -- by hand: what the broker says


def outcome(client: SaslClient, *arguments: str) -> tuple[int, str | None] | str:
    try:
        client.log_in(*arguments)
    except LoginFailed as failed:
        return failed.code, failed.message
    except Closed:
        return "closed"
    return "in"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("PLAIN", USER, PASSWORD), "in"),
        (("PLAIN", USER, "x"), (FAILED, "Authentication failed: Invalid username or password")),
        (("PLAIN", "nobody", "x"), (FAILED, "Authentication failed: Invalid username or password")),
        (("PLAIN", USER, ""), (FAILED, "Authentication failed: password not specified")),
        (("PLAIN", "", "x"), (FAILED, "Authentication failed: username not specified")),
        (
            ("PLAIN", "a\0b", "x"),
            (FAILED, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        ),
        *(
            (
                ("SCRAM-SHA-256", user, "x"),
                (
                    FAILED,
                    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                    "SCRAM-SHA-256",
                ),
            )
            for user in (USER, "nobody")
        ),
        (("OAUTHBEARER", USER, "x.y.z"), (FAILED, '{"status":"invalid_token"}')),
        (("OAUTHBEARER", USER, unsecured({"sub": "a", "exp": 5})), (FAILED, '{"status":"invalid_token"}')),
    ],
)
def test_what_a_failed_login_is_told(sasl: SaslTarget, arguments: tuple[str, ...], expected: object) -> None:
    with SaslClient(sasl.bootstrap) as client:
        assert outcome(client, *arguments) == expected
        if expected != "in":
            with pytest.raises(Closed):
                client.call(ApiVersionsRequest("x", "1"), 3)


def test_a_recorded_log_in_lets_nobody_in(sasl: SaslTarget) -> None:
    """Nobody gets in by the messages of another's SCRAM, nor without a proof of his own."""
    scram = ScramClient("SCRAM-SHA-256", USER, PASSWORD)
    with SaslClient(sasl.bootstrap) as client:
        client.handshake("SCRAM-SHA-256")
        first = scram.first()
        final = scram.final(client.authenticate(first))
        assert scram.is_server(client.authenticate(final))
    for said in ("the same", "another proof", "no proof"):
        with SaslClient(sasl.bootstrap) as thief:
            thief.handshake("SCRAM-SHA-256")
            answer = thief.authenticate(first)
            message = final
            if said == "another proof":
                message = ScramClient("SCRAM-SHA-256", USER, "x").final(answer)
            elif said == "no proof":
                message = final.rpartition(b",p=")[0] + b",p="
            with pytest.raises(LoginFailed):
                thief.authenticate(message)
            with pytest.raises(Closed):
                thief.call(MetadataRequest([]), 12)


def test_an_unknown_mechanism(sasl: SaslTarget) -> None:
    with SaslClient(sasl.bootstrap) as client:
        response = client.handshake("GSSAPI")
        assert response.error_code == UNSUPPORTED_MECHANISM
        assert sorted(response.mechanisms) == ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        with pytest.raises(Closed):
            client.handshake("PLAIN")


def test_another_request_before_the_login(sasl: SaslTarget) -> None:
    with SaslClient(sasl.bootstrap) as client:
        assert client.call(ApiVersionsRequest("x", "1"), 3).error_code == 0
        with pytest.raises(Closed):
            client.call(MetadataRequest([]), 12)


def test_bare_tokens(sasl: SaslTarget) -> None:
    with SaslClient(sasl.bootstrap) as client:
        client.handshake("PLAIN", 0)
        assert client.bare(f"\0{USER}\0{PASSWORD}".encode()) == b""
        assert client.call(ApiVersionsRequest("x", "1"), 3).error_code == 0
    with SaslClient(sasl.bootstrap) as client:
        client.handshake("SCRAM-SHA-256", 0)
        scram = ScramClient("SCRAM-SHA-256", USER, PASSWORD)
        assert scram.is_server(client.bare(scram.final(client.bare(scram.first()))))
        assert client.call(ApiVersionsRequest("x", "1"), 3).error_code == 0
    with SaslClient(sasl.bootstrap) as client:
        client.handshake("PLAIN", 0)
        with pytest.raises(Closed):
            client.bare(f"\0{USER}\0x".encode())


def test_a_token_after_the_login(sasl: SaslTarget) -> None:
    with SaslClient(sasl.bootstrap) as client:
        client.log_in("PLAIN", USER, PASSWORD)
        response = client.call(SaslAuthenticateRequest(b"x"), 2)
        assert response.error_code == ILLEGAL_STATE


# -- sessions


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_session_without_an_end_is_not_renewed(sasl: SaslTarget, mechanism: str) -> None:
    with SaslClient(sasl.bootstrap) as client:
        client.log_in(mechanism, USER, PASSWORD)
        assert client.lifetime_ms == 0
        for version in (1, 0):
            response = client.handshake(mechanism, version)
            assert (response.error_code, response.mechanisms) == (ILLEGAL_STATE, [])
        assert client.call(SaslAuthenticateRequest(b"x"), 2).error_code == ILLEGAL_STATE
        assert client.call(MetadataRequest([]), 12).error_code == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_session_ends(sasl: SaslTarget, mechanism: str) -> None:
    with SaslClient(sasl.short_sessions) as client:
        client.log_in(mechanism, USER, PASSWORD)
        assert client.lifetime_ms == SESSION_MS
        assert sum(1 for _ in until_closed(client)) >= 1


def test_a_session_is_renewed(sasl: SaslTarget) -> None:
    with SaslClient(sasl.short_sessions) as client:
        client.log_in("PLAIN", USER, PASSWORD)
        for _ in while_sessions_pass(sasl.short_sessions, 2):
            if client.handshake("PLAIN").error_code != ILLEGAL_STATE:  # else it is too soon
                client.authenticate(f"\0{USER}\0{PASSWORD}".encode())
        assert client.call(MetadataRequest([]), 12).error_code == 0


@pytest.mark.parametrize("how", ["too soon", "another mechanism", "another user", "a wrong password"])
def test_a_renewal_that_is_refused(sasl: SaslTarget, how: str) -> None:
    with SaslClient(sasl.short_sessions) as client:
        client.log_in("OAUTHBEARER", USER, token(60))
        if how == "too soon":
            client.log_in("OAUTHBEARER", USER, token(60))  # the first one may be at once
            assert client.handshake("OAUTHBEARER").error_code == ILLEGAL_STATE
        elif how == "another mechanism":
            assert client.handshake("PLAIN").error_code == 0
            with pytest.raises(Closed):
                client.authenticate(f"\0{USER}\0{PASSWORD}".encode())
        elif how == "another user":
            with pytest.raises(LoginFailed) as failed:
                client.log_in("OAUTHBEARER", USER, token(60, "other"))
            assert failed.value.message == (
                "Cannot change principals during re-authentication from User.app: User.other"
            )
        else:
            with pytest.raises(LoginFailed) as failed:
                client.log_in("OAUTHBEARER", USER, token(-1))
            assert failed.value.message == '{"status":"invalid_token"}'


def test_a_session_ends_with_the_oauth_token(sasl: SaslTarget) -> None:
    with SaslClient(sasl.bootstrap) as client:
        client.log_in("OAUTHBEARER", USER, token(2))
        assert 0 < client.lifetime_ms <= 2001
        assert sum(1 for _ in until_closed(client)) >= 1


# -- delegation tokens


def test_delegation_tokens(sasl: SaslTarget) -> None:
    with SaslClient(sasl.bootstrap) as client:
        client.log_in("PLAIN", USER, PASSWORD)
        created = client.call(CreateDelegationTokenRequest(None, None, [], 60_000), 3)
        assert (created.error_code, created.principal_name, created.token_requester_principal_name) == (
            0,
            USER,
            USER,
        )
        assert created.max_timestamp_ms - created.issue_timestamp_ms == 60_000
        assert created.expiry_timestamp_ms == created.max_timestamp_ms
        assert (len(created.hmac), len(created.token_id)) == (64, 22)
        password = base64.b64encode(created.hmac).decode()
        deadline = time.monotonic() + 20
        while True:  # Kafka's broker learns of the token a moment after its controller
            with SaslClient(sasl.bootstrap) as by_token:
                said = outcome(by_token, "SCRAM-SHA-256", created.token_id, password, ",tokenauth=true")
                if said == "in":
                    assert 30_000 < by_token.lifetime_ms <= 60_000
                    refused = by_token.call(CreateDelegationTokenRequest(None, None, [], -1), 3)
                    assert (refused.error_code, refused.principal_name) == (64, USER)
                    break
            assert time.monotonic() < deadline, said
        [described] = client.call(DescribeDelegationTokenRequest(None), 3).tokens
        assert (described.token_id, described.hmac) == (created.token_id, created.hmac)
        renewed = client.call(RenewDelegationTokenRequest(created.hmac, 1000), 2)
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms < created.expiry_timestamp_ms
        assert client.call(RenewDelegationTokenRequest(b"x", 1000), 2).error_code == 62
        assert client.call(ExpireDelegationTokenRequest(created.hmac, -1), 2).error_code == 0
        deadline = time.monotonic() + 20
        while client.call(DescribeDelegationTokenRequest(None), 3).tokens:
            assert time.monotonic() < deadline
