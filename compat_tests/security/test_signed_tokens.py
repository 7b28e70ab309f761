"""OAUTHBEARER with signed tokens, their keys in a file and at a URL: both targets take and refuse the same tokens."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import pathlib
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.brokers import TARGETS, UNDISTURBED, UNDISTURBED_KAFKA, Broker, check_after
from compat_tests.oncelog_server import Oncelog
from compat_tests.security.logged_in_clients import OAUTH_PACKAGE
from compat_tests.security.secured import allow_urls
from oncelog.wire.messages.metadata import MetadataRequest
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.common import facts
from tests.common.certificates import Authority
from tests.common.jars import BROKER_JVM_OPTIONS, RealPartMissing, quick_start, require
from tests.common.process import free_ports
from tests.common.real_kafka import RealKafka
from tests.common.sasl_client import Closed, SaslClient
from tests.common.tokens import Issuer, Served, key_set, serve_keys, unsecured

pytestmark = pytest.mark.slow
AUDIENCE, NAME, SKEW_S = "brokers", "https://issuer.example", 10
IN, REFUSED, ENDED = "in", '{"status":"invalid_token"}', "in, but the session has ended"
ISSUER, STRANGER, OTHER_KEY, NEXT = Issuer(), Issuer(), Issuer("key-2"), Issuer("key-3")
"""Of `STRANGER` the key has the issuer's key id, of `NEXT` it is published later."""
WAIT_S = 20
ILLEGAL_STATE, AUTHENTICATION_FAILED = 34, 58


def claims(**changed: Any) -> dict[str, Any]:
    """The claims of a token that is taken, with some changed, or left out by None."""
    now = int(time.time())
    said = {"sub": "app", "aud": AUDIENCE, "iss": NAME, "iat": now - 100, "exp": now + 60, **changed}
    return {name: value for name, value in said.items() if value is not None}


def in_seconds(seconds: int) -> int:
    return int(time.time()) + seconds


def signed_with_the_public_key() -> str:
    """A token with a MAC whose key is what everybody may read."""
    head = unsecured(claims(), {"alg": "HS256", "kid": ISSUER.key_id}).rpartition(".")[0]
    mac = hmac.digest(json.dumps(ISSUER.public_key).encode(), head.encode(), hashlib.sha256)
    return unsecured(claims(), {"alg": "HS256", "kid": ISSUER.key_id}, mac.hex())


def changed_after_signing(changed: int) -> str:
    """A token with another part, 0 or 1, than the one that was signed."""
    parts = ISSUER.token(claims()).split(".")
    others = unsecured(claims(sub="admin"), {"alg": "RS256", "kid": ISSUER.key_id}).split(".")
    parts[changed] = others[changed]
    return ".".join(parts)


CASES: dict[str, tuple[Callable[[], str], str]] = {
    "right": (lambda: ISSUER.token(claims()), IN),
    "no key id": (lambda: ISSUER.token(claims(), kid=None), IN),
    "no key id, second key": (lambda: OTHER_KEY.token(claims(), kid=None), REFUSED),
    "several audiences": (lambda: ISSUER.token(claims(aud=["others", AUDIENCE])), IN),
    "scopes": (lambda: ISSUER.token(claims(scope=["a", "b"])), IN),
    "expired within the skew": (lambda: ISSUER.token(claims(exp=in_seconds(-3))), ENDED),
    "not yet valid within the skew": (lambda: ISSUER.token(claims(nbf=in_seconds(3))), IN),
    "issued in the future": (lambda: ISSUER.token(claims(iat=in_seconds(30))), IN),
    "expired": (lambda: ISSUER.token(claims(exp=in_seconds(-30))), REFUSED),
    "not yet valid": (lambda: ISSUER.token(claims(nbf=in_seconds(30))), REFUSED),
    "ends before it was issued": (lambda: ISSUER.token(claims(iat=in_seconds(90))), REFUSED),
    "another audience": (lambda: ISSUER.token(claims(aud="others")), REFUSED),
    "an audience that is no text": (lambda: ISSUER.token(claims(aud=5)), REFUSED),
    "audiences that are no texts": (lambda: ISSUER.token(claims(aud=[AUDIENCE, 5])), REFUSED),
    "no audiences": (lambda: ISSUER.token(claims(aud=[])), REFUSED),
    "an end that is no time": (lambda: ISSUER.token(claims(exp="soon")), REFUSED),
    "no audience": (lambda: ISSUER.token(claims(aud=None)), REFUSED),
    "another issuer": (lambda: ISSUER.token(claims(iss="https://other.example")), REFUSED),
    "no issuer": (lambda: ISSUER.token(claims(iss=None)), REFUSED),
    "no subject": (lambda: ISSUER.token(claims(sub=None)), REFUSED),
    "empty subject": (lambda: ISSUER.token(claims(sub=" ")), REFUSED),
    "no end": (lambda: ISSUER.token(claims(exp=None)), REFUSED),
    "no time of issue": (lambda: ISSUER.token(claims(iat=None)), REFUSED),
    "a scope twice": (lambda: ISSUER.token(claims(scope=["a", "a"])), REFUSED),
    "an empty scope": (lambda: ISSUER.token(claims(scope=["a", ""])), REFUSED),
    "wrong signature": (lambda: STRANGER.token(claims()), REFUSED),
    "changed after signing": (lambda: changed_after_signing(1), REFUSED),
    "algorithm none": (lambda: unsecured(claims()), REFUSED),
    "algorithm none with a signature": (lambda: unsecured(claims(), signature="eA"), REFUSED),
    "signed with the public key": (signed_with_the_public_key, REFUSED),
    "another algorithm": (lambda: changed_after_signing(0), REFUSED),
    "unknown key": (lambda: Issuer("nowhere").token(claims()), REFUSED),
    "no token": (lambda: "x.y.z", REFUSED),
    "one part": (lambda: "x", REFUSED),
}


IN_SINCE_4_4 = IN if facts.WAIVES_AUDIENCES else REFUSED
OPEN: dict[str, tuple[Callable[[], str], str]] = {
    "no audience, no issuer": (lambda: ISSUER.token(claims(aud=None, iss=None)), IN),
    "any issuer": (lambda: ISSUER.token(claims(aud=None, iss="https://other.example")), IN),
    "an audience": (lambda: ISSUER.token(claims()), IN_SINCE_4_4),
    "no audiences": (lambda: ISSUER.token(claims(aud=[])), IN_SINCE_4_4),
    "an audience that is no text": (lambda: ISSUER.token(claims(aud=5)), IN_SINCE_4_4),
    "audiences that are no texts": (lambda: ISSUER.token(claims(aud=["x", 5])), IN_SINCE_4_4),
    "an empty audience": (lambda: ISSUER.token(claims(aud="")), IN_SINCE_4_4),
}
"""Where the broker expects no audience and no issuer."""


class Target:
    """A broker with a listener for keys in a file, one for keys at an https URL of an authority of its own, and one
    that expects no audience and no issuer.
    """

    def __init__(self, name: str, file: pathlib.Path, served: Served, authority: pathlib.Path) -> None:
        self.file, self.served = file, served
        urls = {"file": file.as_uri(), "url": served.url, "open": file.as_uri()}
        self.addresses = {
            where: f"127.0.0.1:{port}" for where, port in zip(urls, free_ports(len(urls)), strict=True)
        }
        trusting = f' ssl.truststore.type="PEM" ssl.truststore.location="{authority}"'
        trusting += (
            ' unsecuredLoginStringClaim_sub="broker"'  # Kafka's own log-in wants a name, with any option
        )
        properties = {
            **UNDISTURBED,
            "listeners": ",".join(f"{where.upper()}://{at}" for where, at in self.addresses.items()),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FILE:SASL_PLAINTEXT,URL:SASL_PLAINTEXT,"
                "OPEN:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "connection.failed.authentication.delay.ms": "10",
        }
        for where, url in urls.items():
            prefix = f"listener.name.{where}.oauthbearer.sasl"
            properties |= {
                f"{prefix}.jaas.config": (
                    f"{OAUTH_PACKAGE}.OAuthBearerLoginModule required{trusting if where == 'url' else ''};"
                ),
                f"{prefix}.server.callback.handler.class": f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler",
                f"{prefix}.oauthbearer.jwks.endpoint.url": url,
                f"{prefix}.oauthbearer.clock.skew.seconds": str(SKEW_S),
            }
            if where == "open":
                properties[f"{prefix}.oauthbearer.allow.unverified.audience"] = "true"
                properties[f"{prefix}.oauthbearer.allow.unverified.issuer"] = "true"
            else:
                properties[f"{prefix}.oauthbearer.expected.audience"] = AUDIENCE
                properties[f"{prefix}.oauthbearer.expected.issuer"] = NAME
        self.broker: Broker
        if name == "oncelog":
            allowed = {"oncelog.sasl.oauthbearer.allowed.urls": ",".join(urls.values())}
            self.broker = Oncelog({**properties, **allowed})
        else:
            self.broker = RealKafka(
                {**UNDISTURBED_KAFKA, **properties},
                jvm_options=(*BROKER_JVM_OPTIONS, *quick_start(), allow_urls(*urls.values())),
            )

    def outcome(self, where: str, token: str) -> str:
        """Return the outcome of a log-in, and of the first request after it. All that the client reads of a refusal is
        checked.
        """
        with SaslClient(self.addresses[where]) as client:
            client.handshake("OAUTHBEARER")
            said = client.call(SaslAuthenticateRequest(f"n,,\1auth=Bearer {token}\1\1".encode()), 2)
            assert (said.error_code, said.error_message) == (0, "")
            if said.auth_bytes:
                assert (bytes(said.auth_bytes), said.session_lifetime_ms) == (REFUSED.encode(), 0)
                said = client.call(SaslAuthenticateRequest(b"\1"), 2)
                assert (said.error_code, bytes(said.auth_bytes)) == (AUTHENTICATION_FAILED, b"")
                assert said.session_lifetime_ms == 0
                with pytest.raises(Closed):
                    client.call(MetadataRequest([]), 12)
                return str(said.error_message)
            client.lifetime_ms = said.session_lifetime_ms
            try:
                served = client.call(MetadataRequest([]), 12).error_code == 0
            except Closed:
                assert client.lifetime_ms == 0
                return ENDED
        assert served
        assert 0 < client.lifetime_ms <= 60_000
        return IN


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Target]]:
    running: dict[str, Target] = {}
    folder = tmp_path_factory.mktemp("keys")
    authority = Authority()
    identity = authority.identity("issuer")
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "issuer.pem").write_bytes(identity.key + identity.chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "issuer.pem")
    with contextlib.ExitStack() as stack:

        def of(name: str) -> Target:
            if name not in running:
                keys = key_set(ISSUER, OTHER_KEY)
                file = folder / f"{name}.json"
                file.write_bytes(keys)
                served = stack.enter_context(serve_keys(keys, context))
                try:
                    running[name] = one = Target(name, file, served, folder / "ca.pem")
                    stack.enter_context(one.broker)
                except RealPartMissing as missing:
                    require(str(missing))
                stack.enter_context(contextlib.contextmanager(check_after)(one.broker))
            return running[name]

        yield of


@pytest.fixture
def one(targets: Callable[[str], Target], target: str) -> Target:
    return targets(target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("where", ["file", "url"])
@pytest.mark.parametrize("case", CASES)
def test_a_token(one: Target, where: str, case: str) -> None:
    make, expected = CASES[case]
    assert one.outcome(where, make()) == expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", OPEN)
def test_a_token_where_nothing_is_expected(one: Target, case: str) -> None:
    make, expected = OPEN[case]
    assert one.outcome("open", make()) == expected


@pytest.mark.parametrize("target", TARGETS)
def test_a_client_that_goes_on_after_a_refusal(one: Target) -> None:
    """As aiokafka and kafkajs do. Kafka answers the next request by ILLEGAL_SASL_STATE
    (docs/reference/differences.md)."""
    with SaslClient(one.addresses["file"]) as client:
        client.handshake("OAUTHBEARER")
        assert client.authenticate(f"n,,\1auth=Bearer {ISSUER.token(claims(aud='x'))}\1\1".encode())
        with contextlib.suppress(Closed):
            assert client.call(MetadataRequest([]), 13).error_code == ILLEGAL_STATE
        with pytest.raises(Closed):
            client.call(MetadataRequest([]), 13)


@pytest.mark.parametrize("target", TARGETS)
def test_a_new_key_in_the_file(one: Target) -> None:
    assert one.outcome("file", NEXT.token(claims())) == REFUSED
    one.file.write_bytes(key_set(ISSUER, NEXT))
    assert one.outcome("file", NEXT.token(claims())) == IN
    assert one.outcome("file", OTHER_KEY.token(claims())) == REFUSED
    assert one.outcome("file", ISSUER.token(claims())) == IN


@pytest.mark.parametrize("target", TARGETS)
def test_a_new_key_at_the_url(one: Target) -> None:
    """The first token that names it is refused, and has the keys fetched: in a moment, not after the hour of
    ``sasl.oauthbearer.jwks.endpoint.refresh.ms``.
    """
    while one.served.read.acquire(blocking=False):
        pass
    one.served.content = key_set(ISSUER, NEXT)
    assert one.outcome("url", NEXT.token(claims())) == REFUSED
    assert one.served.read.acquire(timeout=WAIT_S)
    end = time.monotonic() + WAIT_S
    while (said := one.outcome("url", NEXT.token(claims()))) != IN:
        assert said == REFUSED
        assert time.monotonic() < end
    assert one.outcome("url", OTHER_KEY.token(claims())) == REFUSED
    assert one.outcome("url", ISSUER.token(claims())) == IN


@facts.needs(facts.REQUIRES_ISSUER_AND_AUDIENCE, "rule that both must be expected or waived")
@pytest.mark.parametrize("target", ["kafka", "oncelog"])
@pytest.mark.parametrize("missing", ["audience", "issuer"])
def test_a_broker_says_which_tokens_it_expects(target: str, missing: str, tmp_path: pathlib.Path) -> None:
    """An issuer may sign tokens for others, too, whose holders must not get in. A broker that says neither does not
    start.
    """
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(ISSUER))
    prefix = "listener.name.file.oauthbearer.sasl"
    expected = {
        f"{prefix}.oauthbearer.expected.audience": AUDIENCE,
        f"{prefix}.oauthbearer.expected.issuer": NAME,
    }
    del expected[f"{prefix}.oauthbearer.expected.{missing}"]
    properties = {
        **expected,
        "listeners": f"FILE://127.0.0.1:{free_ports(1)[0]}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,FILE:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.jaas.config": f'{OAUTH_PACKAGE}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b";',
        f"{prefix}.server.callback.handler.class": f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}.oauthbearer.jwks.endpoint.url": file.as_uri(),
    }
    broker: Broker
    if target == "oncelog":
        broker = Oncelog({**properties, "oncelog.sasl.oauthbearer.allowed.urls": file.as_uri()})
    else:
        options = (*BROKER_JVM_OPTIONS, *quick_start(), allow_urls(file.as_uri()))
        broker = RealKafka(properties, jvm_options=options)
    with pytest.raises(AssertionError) as refused, broker:
        pass
    for key in (f"sasl.oauthbearer.expected.{missing}", f"sasl.oauthbearer.allow.unverified.{missing}"):
        assert key in str(refused.value)
