"""Settings of clients that are refused, and what is said of them. No message quotes a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.broker.client.security.client_security import ClientSecurity
from oncelog.broker.client.security.keys import read_client_properties
from oncelog.broker.config.definitions import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"


def sasl(mechanism: str = "PLAIN", jaas: str | None = None, **more: str) -> dict[str, str]:
    """Settings of a client that logs in; in the names of more of them, _ stands for a dot."""
    values = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if jaas is not None:
        values["sasl.jaas.config"] = jaas
    return values | {key.replace("_", "."): text for key, text in more.items()}


def oauth(options: str, **more: str) -> dict[str, str]:
    return sasl("OAUTHBEARER", f"{OAUTH} required {options};", **more)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS: expected one of PLAINTEXT, SSL, SASL_PL"),
        ({"ssl.trustore.location": "x"}, "ssl.trustore.location: no such key of Kafka's clients; did you"),
        (
            {"sasl.mechanisms": "PLAIN"},
            "sasl.mechanisms: no such key of Kafka's clients; did you mean sasl.mechanism?",
        ),
        ({"sasl.username": "x"}, "sasl.username: librdkafka's key; Kafka's is sasl.jaas.config"),
        ({"ssl.engine.factory.class": "x"}, "a class of Java cannot be loaded here"),
        ({"sasl.kerberos.service.name": "kafka"}, "Kerberos (GSSAPI) is not served"),
        ({"config.providers": "file"}, "config.providers: write the values into the file"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI: Kerberos, the default, is not served"),
        (sasl("DIGEST-MD5"), "sasl.mechanism=DIGEST-MD5: it is unknown; there are PLAIN, SCRAM-SHA-256"),
        (sasl(), "sasl.jaas.config is missing: PLAIN needs it"),
        (sasl(jaas=f"{SCRAM} required;"), f"sasl.jaas.config: the login module of PLAIN is {PLAIN}"),
        (sasl(jaas=f"{PLAIN} required;"), 'PLAIN needs username="…"'),
        (sasl(jaas=f'{PLAIN} required username="app" password="";'), 'PLAIN needs password="…"'),
        (sasl(jaas=f'{PLAIN} required username="app" password="hidden'), "a quoted value has no end"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/none.jks"}, "cannot read /none.jks"),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"},
            "ssl.endpoint.identification.algorithm=ldaps: expected https, or nothing",
        ),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1 is not served"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "RC4"}, "RC4 is unknown"),
        (oauth(""), "unsecuredLoginStringClaim_sub is missing"),
        (oauth('unsecuredLoginStringClaim_exp="1"'), "the claim exp is set by the client itself"),
        (oauth('unsecuredLoginNumberClaim_n="x"'), "an option is no number"),
        (
            oauth('unsecuredLoginStringClaim_sub="app" unsecuredLoginExtension_auth="x"'),
            "unsecuredLoginExtension_auth is no extension",
        ),
        (oauth("", sasl_login_callback_handler_class="a.Class"), "=a.Class: there are org.apache"),
        (
            oauth("", sasl_login_callback_handler_class=LOGIN_HANDLER),
            "sasl.oauthbearer.token.endpoint.url=: expected a URL",
        ),
        (
            {**oauth("", sasl_login_callback_handler_class=LOGIN_HANDLER), RETRIEVER: "a.Class"},
            f"{RETRIEVER}=a.Class: there are",
        ),
        (
            oauth(
                'clientSecret="hidden"',
                sasl_login_callback_handler_class=LOGIN_HANDLER,
                sasl_oauthbearer_token_endpoint_url="http://127.0.0.1/token",
            ),
            "http://127.0.0.1/token needs sasl.oauthbearer.client.credentials.client.id",
        ),
        (
            oauth(
                'clientId="app" clientSecret="hidden"',
                sasl_login_callback_handler_class=LOGIN_HANDLER,
                sasl_oauthbearer_token_endpoint_url="http://127.0.0.1/token",
                sasl_login_retry_backoff_ms="soon",
            ),
            "sasl.login.retry.backoff.ms=soon: expected a number",
        ),
    ],
)
def test_a_mistake_is_named(values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClientSecurity(values)
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_every_wrong_key_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        ClientSecurity({"sasl.passwort": "hidden", "ssl.nothing": "x", "bootstrap.servers": "x:1"})
    assert caught.value.problems == (
        "sasl.passwort: no such key of Kafka's clients",
        "ssl.nothing: no such key of Kafka's clients",
    )


def test_a_file_as_kafkas_tools_take_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# a client\nbootstrap.servers=localhost:9092\nacks=all\nsecurity.protocol=sasl_plaintext\n"
        "ssl.protocol = TLSv1.3\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM} required \\\n  username="app" \\\n  password="a-secret";\n'
    )
    security = ClientSecurity(read_client_properties(str(path)))
    assert (security.protocol, security.mechanism, security.user) == (
        "SASL_PLAINTEXT",
        "SCRAM-SHA-512",
        "app",
    )
    assert repr(security) == "ClientSecurity(SASL_PLAINTEXT SCRAM-SHA-512)"
    with pytest.raises(ConfigError, match=r"cannot read .*missing: No such file"):
        read_client_properties(str(tmp_path / "missing"))


def test_without_keys_a_client_is_anonymous_and_plain() -> None:
    security = ClientSecurity({})
    assert (security.protocol, security.mechanism, security.user) == ("PLAINTEXT", None, None)
