"""OAUTHBEARER: messages, tokens with and without a signature, and their keys."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import KafkaException, Producer

import oncelog
from oncelog.broker.security.sasl.mechanism import SaslAuthenticationError, SaslError
from oncelog.broker.security.sasl.oauthbearer import (
    SIGNED,
    OAuthBearerServer,
    OAuthToken,
    TokenRefused,
    parse_initial_response,
)
from oncelog.broker.security.sasl.signed_tokens import SignedTokens, TokenRules, parse_keys
from oncelog.broker.security.sasl.unsecured_tokens import UnsecuredTokens
from tests.common.certificates import Authority
from tests.common.tokens import Issuer, key_set, serve_keys, unsecured

NOW_S = 1_700_000_000
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def now_ms() -> int:
    return NOW_S * 1000


# -- messages


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"n,,\x01auth=Bearer abc.def-_~+/==\x01\x01", ("", "abc.def-_~+/==")),
        (b"n,a=alice,\x01auth=bearer   abc\x01\x01", ("alice", "abc")),
        (b"n,,\x01traceId=1 2\x01auth=Bearer abc\x01logicalCluster=x=y\x01\x01", ("", "abc")),
    ],
)
def test_a_first_message(message: bytes, expected: tuple[str, str]) -> None:
    assert parse_initial_response(message) == expected


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "Invalid OAUTHBEARER client first message"),
        (b"n,,\x01auth=Bearer abc\x01", "Invalid OAUTHBEARER client first message"),
        (b"y,,\x01auth=Bearer abc\x01\x01", "Invalid OAUTHBEARER client first message"),
        (b"n,a=a,b,\x01auth=Bearer abc\x01\x01", "Invalid OAUTHBEARER client first message"),
        (b"n,,\x01ke1y=x\x01auth=Bearer abc\x01\x01", "Invalid OAUTHBEARER client first message"),
        (b"n,,\x01key=x\x01\x01", "'auth' not specified"),
        (b"n,,\x01\x01", "'auth' not specified"),
        (b"n,,\x01auth=Bearer\x01\x01", "invalid 'auth' format"),
        (b"n,,\x01auth=Bearer a$b\x01\x01", "invalid 'auth' format"),
        (b"n,,\x01auth=Basic abc\x01\x01", "Invalid scheme"),
        (b"n,,\x01auth=Bearer \xff\x01\x01", "Invalid OAUTHBEARER client first message"),
    ],
)
def test_a_first_message_that_is_wrong(message: bytes, said: str) -> None:
    with pytest.raises(SaslError) as raised:
        parse_initial_response(message)
    assert said in str(raised.value)


def first(token: str, name: str = "") -> bytes:
    return f"n,{'a=' + name if name else ''},\x01auth=Bearer {token}\x01\x01".encode()


def validate(token: str) -> OAuthToken:
    if token != "good":
        raise TokenRefused("it is bad", "insufficient_scope", "[a, b]")
    return OAuthToken("alice", 5)


def test_a_token_that_is_refused_fails_the_login_after_the_client_has_read_why() -> None:
    server = OAuthBearerServer(validate)
    why = '{"status":"insufficient_scope", "scope":"[a, b]"}'
    assert server.evaluate(first("bad")) == why.encode()
    assert not server.is_complete
    assert server.refusal == "it is bad"
    with pytest.raises(SaslAuthenticationError) as raised:
        server.evaluate(b"\x01")
    assert (raised.value.told, str(raised.value)) == (why, "it is bad")


def test_the_client_may_show_another_token_instead() -> None:
    server = OAuthBearerServer(validate)
    server.evaluate(first("bad"))
    assert server.evaluate(first("good", "alice")) == b""
    assert server.refusal is None
    assert (server.is_complete, server.authorization_id, server.expires_at_ms) == (True, "alice", 5)


def test_the_answer_to_an_error_is_no_first_message() -> None:
    with pytest.raises(SaslError, match="client first message"):
        OAuthBearerServer(validate).evaluate(b"\x01")


def test_nobody_is_somebody_else() -> None:
    with pytest.raises(SaslAuthenticationError, match=r"authorization id \(bob\) that is different"):
        OAuthBearerServer(validate).evaluate(first("good", "bob"))


# -- unsecured tokens

GOOD = {"sub": "alice", "exp": NOW_S + 10, "iat": NOW_S}


@pytest.mark.parametrize(
    ("claims", "options", "expected"),
    [
        (GOOD, {}, ("alice", (NOW_S + 10) * 1000)),
        ({**GOOD, "exp": NOW_S + 0.5, "iat": NOW_S - 1}, {}, ("alice", NOW_S * 1000 + 500)),
        (
            {**GOOD, "who": "bob"},
            {"unsecuredValidatorPrincipalClaimName": "who"},
            ("bob", (NOW_S + 10) * 1000),
        ),
        (
            {**GOOD, "scope": ["a", "b", "c"]},
            {"unsecuredValidatorRequiredScope": "b a"},
            ("alice", (NOW_S + 10) * 1000),
        ),
        (
            {**GOOD, "exp": NOW_S - 1, "iat": NOW_S - 9},
            {"unsecuredValidatorAllowableClockSkewMs": "1001"},
            ("alice", (NOW_S - 1) * 1000),
        ),
    ],
)
def test_an_unsecured_token(claims: object, options: dict[str, str], expected: tuple[str, int]) -> None:
    assert UnsecuredTokens(options, now_ms)(unsecured(claims)) == expected


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "the token is malformed: expected header.claims. with nothing after the last dot"),
        ("a.b.", "the token is malformed: its header part is no JSON in Base64"),
        ("..", "the token is malformed: expected header.claims."),
        (unsecured(GOOD)[:-1], "the token is malformed: expected header.claims."),
        (
            unsecured(GOOD, {"alg": "HS256"}),
            'the token\'s algorithm is "HS256": this listener takes unsigned',
        ),
        (unsecured(GOOD, {}), "the token's algorithm is null: this listener takes unsigned tokens only"),
        (unsecured(GOOD, []), "the token's algorithm is null"),
        (unsecured(GOOD, signature="c2ln"), "the token has a signature, and its algorithm is none"),
        (unsecured([]), "the token has no exp"),
        (unsecured({**GOOD, "sub": ""}), 'the token has no principal: sub is ""'),
        (unsecured({**GOOD, "sub": " "}), 'the token has no principal: sub is " "'),
        (unsecured({**GOOD, "sub": 5}), "the token has no principal: sub is 5"),
        (unsecured({**GOOD, "exp": None}), "the token has no exp"),
        (unsecured({**GOOD, "exp": "soon"}), 'the token\'s exp is no number: "soon"'),
        (unsecured({**GOOD, "exp": True}), "the token's exp is no number: true"),
        (unsecured({**GOOD, "exp": 10**400}), "the token's exp is out of range"),
        (unsecured({**GOOD, "exp": float("nan")}), "the token's exp is out of range"),
        (unsecured({**GOOD, "exp": NOW_S}), "the token has expired: exp is 2023-11-14T22:13:20Z"),
        (
            unsecured({**GOOD, "iat": NOW_S + 1}),
            "the token is not yet valid: iat is 2023-11-14T22:13:21Z",
        ),
        (
            unsecured({**GOOD, "iat": NOW_S, "exp": NOW_S - 1}),
            "the token has expired: exp is 2023-11-14T22:13:19Z",
        ),
        (unsecured({**GOOD, "scope": 5}), "the token's scope is no text and no list: 5"),
        (
            "eyJhbGciOiJub25lIn0." + "W1tb" * 30_000 + ".",
            "the token is malformed: its claims part is no JSON",
        ),
    ],
)
def test_an_unsecured_token_that_is_refused(token: str, why: str) -> None:
    with pytest.raises(TokenRefused) as raised:
        UnsecuredTokens({}, now_ms)(token)
    assert raised.value.json == '{"status":"invalid_token"}'
    assert str(raised.value).startswith(why)


def test_an_unsecured_token_that_expires_before_it_was_issued() -> None:
    options = {"unsecuredValidatorAllowableClockSkewMs": "20000"}
    with pytest.raises(TokenRefused, match="the token expires before it was issued"):
        UnsecuredTokens(options, now_ms)(unsecured({**GOOD, "iat": NOW_S + 10, "exp": NOW_S + 10}))


def test_a_token_that_lacks_a_scope() -> None:
    with pytest.raises(TokenRefused) as raised:
        UnsecuredTokens({"unsecuredValidatorRequiredScope": "a b"}, now_ms)(unsecured({**GOOD, "scope": "a"}))
    assert raised.value.json == '{"status":"insufficient_scope", "scope":"[a, b]"}'
    assert str(raised.value) == "the token lacks the scope b"
    assert raised.value.claimed_name == "alice"


# -- signed tokens


class Keys:
    def __init__(self, *issuers: Issuer) -> None:
        self._keys = parse_keys(key_set(*issuers))
        self.missing: list[str] = []

    def keys(self) -> list[dict[str, Any]]:
        return self._keys

    def missed(self, key_id: str) -> None:
        self.missing.append(key_id)


ISSUER, OTHER = Issuer("one"), Issuer("two")


@pytest.mark.parametrize(
    ("claims", "rules"),
    [
        (GOOD, TokenRules()),
        ({**GOOD, "exp": NOW_S - 29}, TokenRules(skew_s=30)),
        ({**GOOD, "aud": ["x", "kafka"]}, TokenRules(audiences=["kafka", "y"])),
        ({**GOOD, "iss": "me"}, TokenRules(issuer="me")),
        ({**GOOD, "scope": ["a", "b"], "nbf": NOW_S - 5}, TokenRules()),
        ({**GOOD, "sub": 5, "who": " alice "}, TokenRules(subject_claim="who")),
    ],
)
def test_a_signed_token(claims: dict[str, Any], rules: TokenRules) -> None:
    claims = {**claims, "iat": min(claims["iat"], claims["exp"])}
    assert SignedTokens(Keys(OTHER, ISSUER), rules, now_ms)(ISSUER.token(claims)).principal == "alice"


@pytest.mark.parametrize(
    ("claims", "rules", "why"),
    [
        (
            {**GOOD, "exp": NOW_S - 30, "iat": NOW_S - 99},
            TokenRules(skew_s=30),
            "the token has expired: exp is 2023-11-14T22:12:50Z (clocks may differ by 30 s)",
        ),
        (
            {**GOOD, "nbf": NOW_S + 31, "exp": NOW_S + 99},
            TokenRules(skew_s=30),
            "the token is not yet valid: nbf is 2023-11-14T22:13:51Z (clocks may differ by 30 s)",
        ),
        (
            {**GOOD, "exp": NOW_S, "iat": NOW_S + 1},
            TokenRules(),
            "the token ends before it begins: exp is 2023",
        ),
        ({"sub": "alice", "exp": NOW_S + 9}, TokenRules(), "the token has no iat"),
        ({"sub": "alice", "iat": NOW_S}, TokenRules(), "the token has no exp"),
        (
            {**GOOD, "aud": "other"},
            TokenRules(audiences=["kafka"]),
            'the token is for another audience: aud is "other"; expected kafka (sasl.oauthbearer.expected.audience)',
        ),
        (
            {**GOOD, "aud": ["x", 5]},
            TokenRules(audiences=["x"]),
            'the token is for another audience: aud is ["x", 5]; expected x',
        ),
        (
            GOOD,
            TokenRules(audiences=["kafka", "y"]),
            "the token is for another audience: aud is null; expected kafka, y",
        ),
        (
            {**GOOD, "iss": "you"},
            TokenRules(issuer="me"),
            'the token is of another issuer: iss is "you"; expected me (sasl.oauthbearer.expected.issuer)',
        ),
        (GOOD, TokenRules(issuer="me"), "the token is of another issuer: iss is null; expected me"),
        (GOOD, TokenRules(subject_claim="who"), "the token has no subject: who is null"),
        ({**GOOD, "sub": " "}, TokenRules(), 'the token has no subject: sub is " "'),
        ({**GOOD, "exp": "soon"}, TokenRules(), 'the token\'s exp is no time: "soon"'),
        ({**GOOD, "exp": -1e15, "iat": -2e15}, TokenRules(), "the token has expired: exp is -1e+15"),
        (
            {**GOOD, "scope": ["a", "a"]},
            TokenRules(),
            'the token\'s scopes must differ, and none may be empty: scope is ["a", "a"]',
        ),
        ({**GOOD, "scope": ""}, TokenRules(), "the token's scopes must differ"),
    ],
)
def test_a_signed_token_that_is_refused(claims: dict[str, Any], rules: TokenRules, why: str) -> None:
    with pytest.raises(TokenRefused) as raised:
        SignedTokens(Keys(ISSUER), rules, now_ms)(ISSUER.token(claims))
    assert raised.value.json == '{"status":"invalid_token"}'
    assert str(raised.value).startswith(why)


@pytest.mark.parametrize("audience", ["other", ["x", 5], [], None])
def test_a_broker_that_expects_no_audience_takes_any(audience: object) -> None:
    token = ISSUER.token({**GOOD, "aud": audience})
    assert SignedTokens(Keys(ISSUER), TokenRules(), now_ms)(token).principal == GOOD["sub"]


def test_a_token_needs_the_signature_of_a_known_key() -> None:
    keys = Keys(OTHER)
    check = SignedTokens(keys, TokenRules(), now_ms)
    public = jwt.algorithms.ECAlgorithm.from_jwk(OTHER.public_key).public_numbers().x  # type: ignore[union-attr]
    token = OTHER.token(GOOD)
    head, claims, signature = token.split(".")
    as_bob = unsecured({**GOOD, "sub": "bob"}).split(".")[1]
    for bad, why in (
        (ISSUER.token(GOOD), 'the token\'s key id is unknown: kid is "one"; there are two'),
        (ISSUER.token(GOOD, kid="two"), "the token's signature is not that of key two"),
        (ISSUER.token(GOOD, kid=None), "the token's signature is not that of key two"),
        (unsecured(GOOD), "the token is malformed: expected header.claims.signature"),
        (
            unsecured(GOOD, {"alg": "none", "kid": "two"}, "AAAA"),
            'the token\'s algorithm is "none": this listener takes signed tokens',
        ),
        (unsecured(GOOD, {"alg": "NONE", "kid": "two"}, "AAAA"), 'the token\'s algorithm is "NONE": this'),
        (
            jwt.encode(GOOD, str(public).encode(), "HS256", headers={"kid": "two"}),
            'the token\'s algorithm is "HS256": no key with the key id "two" is for it',
        ),
        (
            jwt.encode(GOOD, str(public).encode(), "HS256"),
            'the token\'s algorithm is "HS256": none of the keys is for it',
        ),
        (f"{head}.{as_bob}.{signature}", "the token's signature is not that of key two"),
        (f"{head}.{claims}.{signature[:-4]}AAAA", "the token's signature is not that of key two"),
        (f"{head}.{claims}.", "the token is malformed: expected header.claims.signature"),
        (f"{claims}.{claims}.{signature}", "the token's algorithm is null"),
        ("a.b.c", "the token is malformed: its header part is no JSON in Base64"),
        ("...", "the token is malformed: expected header.claims.signature"),
    ):
        with pytest.raises(TokenRefused) as raised:
            check(bad)
        assert str(raised.value).startswith(why)
    assert check(token).principal == "alice"
    assert keys.missing == ["one", "two"]


def test_a_reason_shows_little_of_a_token() -> None:
    long = "x" * 5000
    check = SignedTokens(Keys(ISSUER), TokenRules(audiences=["kafka"]), now_ms)
    for token in (
        ISSUER.token({**GOOD, "aud": long}),
        ISSUER.token({**GOOD, "exp": long}),
        ISSUER.token(GOOD, kid=long),
    ):
        with pytest.raises(TokenRefused) as raised:
            check(token)
        assert "xxx" in str(raised.value)
        assert len(str(raised.value)) < 300


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"keys": 5}', b'{"keys": [{"kty": "EC"}]}'])
def test_a_document_that_is_no_key_set(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"it is no JSON Web Key Set|key None: "):
        parse_keys(content)


# -- a broker

LISTENER = "listener.name.sasl_plaintext.oauthbearer."
CONFIG = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}
HANDLER = f"{LISTENER}sasl.server.callback.handler.class"


UNVERIFIED = {
    "sasl.oauthbearer.allow.unverified.audience": "true",
    "sasl.oauthbearer.allow.unverified.issuer": "true",
}


def signed(url: str, **more: str) -> dict[str, str]:
    return {
        **CONFIG,
        HANDLER: SIGNED,
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "oncelog.sasl.oauthbearer.allowed.urls": url,
        **UNVERIFIED,
        **more,
    }


def client(kafka: oncelog.Broker, token: Callable[[], tuple[str, float]], said: list[str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: token(),
        "error_cb": lambda error: said.append(str(error)),
    }


def logs_in(kafka: oncelog.Broker, token: str) -> bool:
    said: list[str] = []
    producer = Producer(client(kafka, lambda: (token, 4e9), said))
    while not said:
        producer.poll(0.05)
        try:
            producer.list_topics(timeout=0.2)
        except Exception:
            continue
        return True
    assert "SASL authentication error" in said[0]
    assert "invalid_token" in said[0]
    return False


def claims_now(kafka: oncelog.Broker, seconds: float = 600) -> dict[str, Any]:
    now = kafka.clock.now().timestamp()
    return {"sub": "alice", "iat": now, "exp": now + seconds}


@pytest.mark.slow
def test_unsecured_tokens_are_the_default() -> None:
    with oncelog.Broker(config=CONFIG) as kafka:
        assert logs_in(kafka, unsecured(claims_now(kafka)))
        assert not logs_in(kafka, unsecured(claims_now(kafka, -1)))


@pytest.mark.slow
def test_keys_in_a_file_are_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(ISSUER))
    with oncelog.Broker(config=signed(path.as_uri())) as kafka:
        assert logs_in(kafka, ISSUER.token(claims_now(kafka)))
        assert not logs_in(kafka, OTHER.token(claims_now(kafka)))
        path.write_bytes(key_set(OTHER))
        assert logs_in(kafka, OTHER.token(claims_now(kafka)))
        kafka.clock.advance(hours=1)
        assert logs_in(kafka, OTHER.token(claims_now(kafka)))


@pytest.mark.slow
def test_an_unknown_key_is_fetched() -> None:
    with serve_keys(key_set(ISSUER)) as served, oncelog.Broker(config=signed(served.url)) as kafka:
        assert served.read.acquire(timeout=60)
        assert logs_in(kafka, ISSUER.token(claims_now(kafka)))
        served.content = key_set(ISSUER, OTHER)
        if not logs_in(kafka, OTHER.token(claims_now(kafka))):  # or with its second attempt
            assert served.read.acquire(timeout=60)
            # The broker may still be reading the answer, and asks again only a minute later.
            while not logs_in(kafka, OTHER.token(claims_now(kafka))):
                pass


@pytest.mark.slow
def test_keys_by_https_from_a_server_of_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = Authority()
    identity = authority.identity("issuer")
    server = tmp_path / "server.pem"
    server.write_bytes(identity.key + identity.chain)
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "other.pem").write_bytes(Authority("other").pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server)

    def trusting(name: str) -> str:
        return f'{MODULE} required ssl.truststore.type="PEM" ssl.truststore.location="{tmp_path / name}";'

    with serve_keys(key_set(ISSUER), context) as served:
        config = signed(served.url)
        for jaas in (f"{MODULE} required;", trusting("other.pem")):
            with pytest.raises(oncelog.OncelogError, match="CERTIFICATE_VERIFY_FAILED"):
                oncelog.Broker(config={**config, f"{LISTENER}sasl.jaas.config": jaas}).start()
        with pytest.raises(oncelog.OncelogError, match=r"cannot read .*none.pem: No such file"):
            oncelog.Broker(config={**config, f"{LISTENER}sasl.jaas.config": trusting("none.pem")}).start()
        config[f"{LISTENER}sasl.jaas.config"] = trusting("ca.pem")
        with oncelog.Broker(config=config) as kafka:
            assert logs_in(kafka, ISSUER.token(claims_now(kafka)))


def test_keys_are_fetched_from_time_to_time() -> None:
    with serve_keys(key_set(ISSUER)) as served:
        config = signed(served.url, **{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "10"})
        with oncelog.Broker(config=config):
            for _ in range(3):
                assert served.read.acquire(timeout=60)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({HANDLER: "com.example.Mine"}, f"{HANDLER}=com.example.Mine: there are {SIGNED} and"),
        ({HANDLER: SIGNED}, "needs the URL of the tokens' signing keys"),
        (
            {HANDLER: SIGNED, "sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1:1/"},
            "it is not allowed: oncelog.sasl.oauthbearer.allowed.urls lists the URLs",
        ),
        (
            signed("http://127.0.0.1:1/") | {"sasl.oauthbearer.allow.unverified.issuer": "false"},
            "expected.issuer: signed tokens need it; with sasl.oauthbearer.allow.unverified.issuer=true",
        ),
        (signed("ftp://127.0.0.1:1/"), "expected a URL that begins with https://"),
        (signed("file:///nowhere"), "No such file or directory"),
        (signed("http://127.0.0.1:1/"), "Connection refused"),
        (
            {f"{LISTENER}sasl.jaas.config": "org.Other required;"},
            "the login module of OAUTHBEARER is org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        ),
        (
            {
                f"{LISTENER}sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
                'required unsecuredValidatorAllowableClockSkewMs="-1";'
            },
            "Allowable clock skew millis must not be negative: -1",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_named(config: dict[str, str], said: str) -> None:
    with pytest.raises(oncelog.OncelogError) as raised:
        oncelog.Broker(config={**CONFIG, **config}).start()
    assert said in str(raised.value)


@pytest.mark.slow
def test_a_session_ends_with_its_token() -> None:
    with oncelog.Broker(config=CONFIG) as kafka:
        said: list[str] = []
        producer = Producer(client(kafka, lambda: (unsecured(claims_now(kafka)), 4e9), said))
        producer.list_topics(timeout=60)
        kafka.clock.advance(seconds=601)
        while not said:
            producer.poll(0.05)
            with suppress(KafkaException):
                producer.list_topics(timeout=0.2)
