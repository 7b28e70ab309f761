"""Stock clients before a real Kafka through the proxy: those without TLS and passwords reach a secured cluster, those
that log in at the proxy an open one, and log-ins pass through.
"""

from __future__ import annotations

import contextlib
import pathlib
import ssl
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from compat_tests.proxy.running_proxy import RunningProxy
from compat_tests.security.logged_in_clients import (
    CLIENTS,
    OAUTH_PACKAGE,
    OAUTHBEARER,
    Case,
    Said,
    Way,
    java_settings,
)
from compat_tests.security.secured import AUDIENCE, LISTENERS, USERS, Secured
from compat_tests.security.test_clients import AT_ONCE, TIMEOUT_S, certificates, runners, wanted
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from oncelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from oncelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.schema import Message, Request
from tests.common.jars import RealPartMissing, require
from tests.common.sasl_client import SaslClient

__all__ = ["certificates", "runners", "wanted"]

PREFIX = "proxied-"
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OPEN, ENDING, PASSING = "before a secured Kafka", "log-ins end here", "log-ins pass"

Key = tuple[str, str, str]
"""The proxy's part in log-ins, client and case."""


def by_password(listener: str, mechanism: str, password: str = USERS["app"]) -> dict[str, str]:
    return {"listener": listener, "mechanism": mechanism, "user": "app", "password": password}


LET_IN: dict[str, dict[str, dict[str, str]]] = {
    OPEN: {"nothing shown": {"listener": "PLAINTEXT"}},
    ENDING: {
        **{mechanism: by_password("SASL_SSL", mechanism) for mechanism in ("PLAIN", *SCRAMS)},
        "SCRAM without TLS": by_password("SASL_PLAINTEXT", SCRAMS[0]),
        OAUTHBEARER: {"listener": "SASL_SSL", "mechanism": OAUTHBEARER, "user": "app", "token": "signed"},
        "certificate": {"listener": "SSL", "certificate": "app"},
    },
    PASSING: {
        **{mechanism: by_password("SASL_SSL", mechanism) for mechanism in ("PLAIN", *SCRAMS)},
        "SCRAM without TLS": by_password("SASL_PLAINTEXT", SCRAMS[0]),
        OAUTHBEARER: {"listener": "SASL_SSL", "mechanism": OAUTHBEARER, "user": "app", "token": "signed"},
    },
}
TURNED_AWAY: dict[str, dict[str, dict[str, str]]] = {
    ENDING: {
        "wrong password": by_password("SASL_SSL", "PLAIN", "wrong"),
        "expired certificate": {"listener": "SSL", "certificate": "expired"},
    },
    PASSING: {
        "wrong password": by_password("SASL_SSL", "PLAIN", "wrong"),
        "wrong password by SCRAM": by_password("SASL_SSL", SCRAMS[1], "wrong"),
    },
}
ALL = [
    (mode, client, case)
    for mode, cases in LET_IN.items()
    for case in [*cases, *TURNED_AWAY.get(mode, {})]
    for client in CLIENTS
]


def case_of(mode: str, case: str) -> dict[str, str]:
    return {**LET_IN[mode], **TURNED_AWAY.get(mode, {})}[case]


def parts_of(case: str) -> dict[str, Hashable]:
    """The values of a case that meet each client, and each part of a proxy in log-ins."""
    [way, *_] = [cases[case] for cases in LET_IN.values() if case in cases]
    return {"listener": way["listener"], "shown": way.get("mechanism") or way.get("certificate")}


def topic_of(mode: str, client: str, case: str) -> str:
    return f"{PREFIX}{ALL.index((mode, client, case))}"


def tls_options(certificates: pathlib.Path) -> dict[str, str]:
    """Of listeners with TLS."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
    }


def login_options(certificates: pathlib.Path) -> dict[str, str]:
    """Of listeners where certificates and signed tokens are shown."""
    keys = (certificates / "keys.json").as_uri()
    signed = "listener.name.sasl_ssl.oauthbearer.sasl"
    return {
        "listener.name.ssl.ssl.client.auth": "required",
        f"{signed}.jaas.config": f"{OAUTH_PACKAGE}.OAuthBearerLoginModule required;",
        f"{signed}.server.callback.handler.class": f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{signed}.oauthbearer.jwks.endpoint.url": keys,
        f"{signed}.oauthbearer.expected.audience": AUDIENCE,
        f"{signed}.oauthbearer.allow.unverified.issuer": "true",
        "oncelog.sasl.oauthbearer.allowed.urls": keys,
    }


def set_by(options: dict[str, str]) -> list[str]:
    return [word for key, text in options.items() for word in ("-c", f"{key}={text}")]


def new_proxy(mode: str, kafka: Secured, certificates: pathlib.Path, folder: pathlib.Path) -> RunningProxy:
    config = folder / f"{ALL[0][1]}-{list(LET_IN).index(mode)}.properties"
    settings = set_by(tls_options(certificates))
    if mode == OPEN:
        way = Way("", "SASL_SSL", str(certificates / "ca.pem"), "", SCRAMS[1], "app", USERS["app"])
        config.write_text("".join(f"{key}={text}\n" for key, text in java_settings(way).items()))
        listeners = {"PLAINTEXT": ""}
        return RunningProxy(kafka.address("SASL_SSL"), listeners, ["--upstream-config", str(config)])
    if mode == ENDING:
        wanted = {name: what for name, what in LISTENERS.items() if name not in ("PLAINTEXT", "ASKING")}
        mechanisms = ",".join(("PLAIN", *SCRAMS, OAUTHBEARER))
        users = [word for name, text in USERS.items() for word in ("--user", f"{name}:{text}")]
        more = ["-c", f"listener.name.sasl_ssl.sasl.enabled.mechanisms={mechanisms}"]
        settings += set_by(login_options(certificates))
        return RunningProxy(kafka.address("PLAINTEXT"), wanted, [*settings, *users, *more])
    config.write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={certificates / 'ca.pem'}\n"
    )
    listeners = {name: name for name in ("SASL_SSL", "SASL_PLAINTEXT")}
    arguments = ["--upstream-config", str(config), "--pass-logins", *settings]
    return RunningProxy(kafka.address("SASL_SSL"), listeners, arguments)


@pytest.fixture(scope="module")
def kafka(certificates: pathlib.Path, upstream: str) -> Iterator[Secured]:
    """Before which the proxies stand."""
    found = Secured(upstream, certificates)
    try:
        with found.broker:
            found.prepare([topic_of(*key) for key in ALL], PREFIX)
            yield found
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture(scope="module")
def outcomes(
    wanted: list[Key],
    kafka: Secured,
    runners: dict[str, Callable[[Case], Said] | str],
    certificates: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[Key, Future[Said] | str]]:
    """All runs that are wanted, side by side."""
    folder = tmp_path_factory.mktemp("upstream")
    with contextlib.ExitStack() as stack:
        proxies = {
            mode: stack.enter_context(new_proxy(mode, kafka, certificates, folder))
            for mode in dict.fromkeys(mode for mode, _, _ in wanted)
        }
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        found: dict[Key, Future[Said] | str] = {}
        for mode, client, case in wanted:
            run = runners[client]
            if isinstance(run, str):
                found[mode, client, case] = run
                continue
            given = case_of(mode, case)
            certificate, token = given.get("certificate"), given.get("token")
            way = Way(
                proxies[mode].addresses[given["listener"]],
                given["listener"],
                str(certificates / "ca.pem"),
                str(certificates / f"{certificate}.pem") if certificate else "",
                given.get("mechanism", ""),
                given.get("user", ""),
                given.get("password", ""),
                token_file=str(certificates / f"{token}.jwt") if token and client != "kcat" else "",
            )
            timeout_s = 8 if client == "kafka-python" and case in TURNED_AWAY.get(mode, {}) else TIMEOUT_S
            asked = Case(way, topic_of(mode, client, case), f"{client} by {case}", timeout_s)
            found[mode, client, case] = pool.submit(run, asked)
        yield found
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def said(outcomes: dict[Key, Future[Said] | str], target: str, client: str, case: str) -> Said:
    outcome = outcomes[target, client, case]
    if isinstance(outcome, str):
        require(outcome)
    return outcome.result()


def of(cases: dict[str, dict[str, dict[str, str]]]) -> list[tuple[str, str]]:
    return [(mode, case) for mode, some in cases.items() for case in some]


@pytest.mark.pairwise(case=parts_of)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("target", "case"), of(LET_IN))
def test_a_client_is_let_in(client: str, case: str, said: Said) -> None:
    """It commits a transaction and reads its record in a group."""
    if client == "kcat" and "SCRAM" in case:  # see test_clients
        assert "SCRAM" in said.text
    elif client == "kcat" and case == OAUTHBEARER:
        assert '{"status":"invalid_token"}' in said.text
    else:
        assert said == Said(f"{client} by {case}"), said.text


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("target", "case"), of(TURNED_AWAY))
def test_a_client_is_turned_away(client: str, case: str, said: Said) -> None:
    """The wording is tested beside Kafka in `compat_tests/security/test_clients.py`."""
    assert not said.value
    assert said.error
    assert "timed out" not in said.error.lower() or client == "kafka-python", said


# -- what a client tries after that, or where nobody asks for a log-in

ILLEGAL_SASL_STATE = 34


def connected(address: str, listener: str, certificates: pathlib.Path) -> SaslClient:
    """A client that has shown who it is, where the listener asks."""
    tls = None
    if listener.endswith("SSL"):
        tls = ssl.create_default_context(cafile=certificates / "ca.pem")
        tls.check_hostname = False
        tls.load_cert_chain(certificates / "app.pem")
    client = SaslClient(address, tls)
    if listener.startswith("SASL"):
        client.log_in("PLAIN", "app", USERS["app"])
    return client


def answers(address: str, listener: str, certificates: pathlib.Path) -> list[object]:
    """What a client is told that tries the password of another user, whether it has shown who it is or not."""
    with connected(address, listener, certificates) as client:
        found: list[object] = []
        if not listener.startswith("SASL"):
            found += [client.handshake("PLAIN", version) for version in (0, 1)]
        token = f"\0guest\0{USERS['guest']}".encode()
        return found + [client.call(SaslAuthenticateRequest(token), version) for version in (0, 1, 2)]


def options_of(
    listener: str, kafka: Secured, certificates: pathlib.Path, folder: pathlib.Path
) -> tuple[str, list[str], list[str]]:
    """The arguments of a proxy with this listener, and a log-in of its own at the cluster."""
    way = Way("", "SASL_SSL", str(certificates / "ca.pem"), "", SCRAMS[1], "app", USERS["app"])
    config = folder / "client.properties"
    config.write_text("".join(f"{key}={text}\n" for key, text in java_settings(way).items()))
    options = ["--upstream-config", str(config), *set_by(tls_options(certificates))]
    if listener.startswith("SASL"):
        options += ["--user", f"app:{USERS['app']}"]
    else:
        options += ["-c", "ssl.client.auth=required"]
    return kafka.address("SASL_SSL"), [listener], options


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_no_client_tries_passwords_in_the_session_of_the_proxy(
    kafka: Secured, certificates: pathlib.Path, tmp_path: pathlib.Path, listener: str
) -> None:
    """It is told what Kafka tells on such a listener, and nothing goes to the cluster."""
    told = answers(kafka.address(listener), listener, certificates)
    with RunningProxy(*options_of(listener, kafka, certificates, tmp_path)) as proxy:
        assert answers(proxy.addresses[listener], listener, certificates) == told
    assert {getattr(response, "error_code", 0) for response in told} == {ILLEGAL_SASL_STATE}


NOT_ALLOWED = 64
TOKEN_REQUESTS: list[tuple[Request[Message], int]] = [
    (CreateDelegationTokenRequest(max_lifetime_ms=-1), 3),
    (RenewDelegationTokenRequest(b"x", -1), 2),
    (ExpireDelegationTokenRequest(b"x", -1), 2),
    (DescribeDelegationTokenRequest(None), 3),
]
"""With the newest version of each."""


def test_no_client_gets_a_token_in_the_session_of_the_proxy(
    kafka: Secured, certificates: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Who has not logged in is told what Kafka tells him."""
    found = []
    with RunningProxy(*options_of("PLAINTEXT", kafka, certificates, tmp_path)) as proxy:
        for address in (kafka.address("PLAINTEXT"), proxy.addresses["PLAINTEXT"]):
            with connected(address, "PLAINTEXT", certificates) as client:
                found.append(
                    [
                        client.call(request, version)
                        for request, newest in TOKEN_REQUESTS
                        for version in range(1, newest + 1)
                    ]
                )
    told, by_proxy = found
    assert by_proxy == told
    assert {getattr(response, "error_code", 0) for response in told} == {NOT_ALLOWED}
