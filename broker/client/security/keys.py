"""Kafka's keys for the security of clients, as a client.properties file has them (``--command-config`` of Kafka's
tools). Source: ``CommonClientConfigs``, ``SslConfigs``, ``SaslConfigs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.properties import parse_properties
from oncelog.broker.seams.processes import read_bytes

PREFIXES = ("security.", "ssl.", "sasl.")

USED = frozenset(
    (
        "security.protocol",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.window.factor",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.mechanism",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
    )
)
IGNORED = frozenset(
    (
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "sasl.login.connect.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.jitter",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
    )
)
"""Keys that tune Java's implementation, or a broker. They have no effect here."""
_JAAS = "librdkafka's key; Kafka's is sasl.jaas.config"
_KEY_STORE = (
    "librdkafka's key; Kafka's are ssl.keystore.type=PEM and ssl.keystore.location, of one file with both"
)
_OWN_CLASS = "a class of Java cannot be loaded here"
REFUSED = {
    "security.providers": _OWN_CLASS,
    "ssl.engine.factory.class": _OWN_CLASS,
    "sasl.client.callback.handler.class": _OWN_CLASS,
    "sasl.login.class": _OWN_CLASS,
    "sasl.oauthbearer.jwt.validator.class": _OWN_CLASS,
    "config.providers": "write the values into the file",
    "sasl.username": _JAAS,
    "sasl.password": _JAAS,
    "ssl.ca.location": "librdkafka's key; Kafka's are ssl.truststore.type=PEM and ssl.truststore.location",
    "ssl.certificate.location": _KEY_STORE,
    "ssl.key.location": _KEY_STORE,
}
"""Keys whose effect is missing here, with the reason."""
_REFUSED_PREFIXES = {
    "sasl.kerberos.": "Kerberos (GSSAPI) is not served",
    "sasl.oauthbearer.assertion.": "assertions are not served; there are client id and secret",
}


def read_client_properties(path: str) -> dict[str, str]:
    """Return the settings in a client.properties file, the last of each key. Raises ConfigError."""
    try:
        text = read_bytes(path).decode("latin-1")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    return {key: value for key, value, _ in parse_properties(text, path)}


def check_keys(keys: Iterable[str]) -> None:
    """Refuse keys about security that are unknown, and those that cannot be kept. Raises ConfigError.

    Others are not looked at: such a file may be a whole client's.
    """
    problems = []
    for key in keys:
        if key in USED or key in IGNORED:
            continue
        refused = REFUSED.get(key) or next(
            (why for prefix, why in _REFUSED_PREFIXES.items() if key.startswith(prefix)), None
        )
        if refused is not None:
            problems.append(f"{key}: {refused}")
        elif key.startswith(PREFIXES):
            meant = get_close_matches(key, USED, 1, 0.8)
            hint = f"; did you mean {meant[0]}?" if meant else ""
            problems.append(f"{key}: no such key of Kafka's clients{hint}")
    if problems:
        raise ConfigError(*problems)


def number(values: Mapping[str, str], key: str, default: float) -> float:
    """Return a number that is not negative. Raises ConfigError for other text."""
    text = values.get(key)
    try:
        found = default if text is None else float(text)
        if not 0 <= found < float("inf"):
            raise ValueError
    except ValueError:
        raise ConfigError(f"{key}={text}: expected a number that is not negative") from None
    return found
