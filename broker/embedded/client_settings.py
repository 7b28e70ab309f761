"""Clients' settings for a broker: address, TLS and log-in, by the keys of each client."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.config.listeners import resolve_listeners
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.credentials.jaas import OAUTH_PACKAGE, OAUTHBEARER
from oncelog.broker.embedded.token_providers import (
    aiokafka_provider,
    confluent_callback,
    kafka_python_provider,
    token_file,
)
from oncelog.broker.security.user_options import MECHANISMS_OF_USERS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from oncelog.broker.control.options import BrokerOptions
    from oncelog.broker.embedded.tokens import Token
    from oncelog.broker.security.tls.authority import Certificate


class ClientEndpoint(NamedTuple):
    """A listener of a broker, with all that a client needs for it. ``password`` None: no log-in by one. ``new_token``:
    returns the token for a log-in by OAUTHBEARER, ``token_file`` is where to write it. ``certificate``: the client's
    own, if it has one.
    """

    bootstrap_servers: str
    protocol: str
    mechanism: str
    user: str | None
    password: str | None
    authority: bytes | None
    certificate: Certificate | None
    new_token: Callable[[], Token] | None = None
    token_file: str | os.PathLike[str] | None = None


def client_endpoint(
    options: BrokerOptions,
    bootstrap_servers: str,
    user: str | None,
    mechanism: str,
    authority: bytes | None,
    certificate: Certificate | None,
    new_token: Callable[[], Token] | None = None,
    token_file: str | os.PathLike[str] | None = None,
    *,
    has_tokens: bool = False,
) -> ClientEndpoint:
    """Return the endpoint of a broker's first listener. ``has_tokens``: whether clients may log in by the kit's tokens.

    Raises InvalidArgumentError for a user, a token or a certificate that the listener does not take.
    """
    listener = resolve_listeners(options.broker_config(), lambda: options.host_name)[0][0]
    protocol = listener.protocol
    if user is not None and new_token is not None:
        raise InvalidArgumentError("user= and token= exclude each other: a client logs in by one of them")
    if user is not None and user not in options.users:
        there = ", ".join(options.users) or "none"
        raise InvalidArgumentError(f"user {user!r}: the broker was started with other users= ({there})")
    if protocol.startswith("SASL") and user is None and new_token is None:
        there = ", ".join(options.users) or "none"
        raise InvalidArgumentError(
            "token= is missing: clients of this broker log in, by a token such as token='shop'"
            if has_tokens and not options.users
            else f"user= is missing: clients of this broker log in (its users= are {there})"
            + ("; or token=" if has_tokens else "")
        )
    if not protocol.startswith("SASL"):
        for given in (
            f"user {user!r}" if user is not None else "",
            "token=" if new_token is not None else "",
        ):
            if given:
                raise InvalidArgumentError(
                    f"{given}: the listener {listener.bind.listener} asks for no log-in"
                )
    if user is not None and mechanism not in MECHANISMS_OF_USERS.split(","):
        hint = "; token= logs in by OAUTHBEARER" if mechanism == OAUTHBEARER else ""
        raise InvalidArgumentError(
            f"mechanism {mechanism!r}: users= log in by one of {MECHANISMS_OF_USERS}{hint}"
        )
    if certificate is not None and not protocol.endswith("SSL"):
        raise InvalidArgumentError("certificate=: the broker has no TLS; tls=True gives it")
    return ClientEndpoint(
        bootstrap_servers.split(",")[0],
        protocol,
        mechanism,
        user,
        None if user is None else options.users[user],
        authority,
        certificate,
        new_token,
        token_file,
    )


def client_settings(client: str, endpoint: ClientEndpoint) -> dict[str, Any]:
    """Return the settings of ``client``, one of `CLIENTS`. Raises InvalidArgumentError for another one."""
    make = CLIENTS.get(client)
    if make is None:
        hint = f"; {_IN_CODE}" if client.lower() in GO_CLIENTS else ""
        raise InvalidArgumentError(f"client {client!r}: expected one of {', '.join(CLIENTS)}{hint}")
    if endpoint.token_file is not None and (client != "java" or endpoint.new_token is None):
        raise InvalidArgumentError("token_file= is for client 'java' with a token=")
    return make(endpoint)


def _confluent(endpoint: ClientEndpoint) -> dict[str, Any]:
    settings = _of_librdkafka(endpoint)
    if endpoint.new_token is not None:
        settings["sasl.mechanism"] = OAUTHBEARER
        settings["oauth_cb"] = confluent_callback(endpoint.new_token)
    return settings


def _librdkafka(endpoint: ClientEndpoint) -> dict[str, Any]:
    if endpoint.new_token is not None:
        raise InvalidArgumentError(
            "token=: kcat can show no signed token, and to librdkafka a function of the program gives it "
            "(oauthbearer_token_refresh_cb): with str(kafka.token(...))"
        )
    return _of_librdkafka(endpoint)


def _of_librdkafka(endpoint: ClientEndpoint) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": endpoint.bootstrap_servers,
        "security.protocol": endpoint.protocol,
    }
    if endpoint.user is not None:
        settings["sasl.mechanism"] = endpoint.mechanism
        settings["sasl.username"] = endpoint.user
        settings["sasl.password"] = endpoint.password
    if endpoint.authority is not None:
        settings["ssl.ca.pem"] = endpoint.authority.decode()
    if endpoint.certificate is not None:
        settings["ssl.key.pem"] = endpoint.certificate.key.decode()
        settings["ssl.certificate.pem"] = endpoint.certificate.chain.decode()
    return settings


def _python(endpoint: ClientEndpoint, provider: Callable[[Callable[[], Token]], Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": endpoint.bootstrap_servers,
        "security_protocol": endpoint.protocol,
    }
    if endpoint.user is not None:
        settings["sasl_mechanism"] = endpoint.mechanism
        settings["sasl_plain_username"] = endpoint.user
        settings["sasl_plain_password"] = endpoint.password
    if endpoint.new_token is not None:
        settings["sasl_mechanism"] = OAUTHBEARER
        settings["sasl_oauth_token_provider"] = provider(endpoint.new_token)
    if endpoint.authority is not None:
        import ssl

        from oncelog.broker.seams.tls import load_certificate

        context = ssl.create_default_context(cadata=endpoint.authority.decode())
        if endpoint.certificate is not None:
            load_certificate(context, endpoint.certificate.key, endpoint.certificate.chain)
        settings["ssl_context"] = context
    return settings


def _java(endpoint: ClientEndpoint) -> dict[str, Any]:
    settings = {"bootstrap.servers": endpoint.bootstrap_servers, "security.protocol": endpoint.protocol}
    if endpoint.user is not None:
        module = "plain.Plain" if endpoint.mechanism == "PLAIN" else "scram.Scram"
        user, password = (
            text.replace("\\", "\\\\").replace('"', '\\"')
            for text in (endpoint.user, endpoint.password or "")
        )
        settings["sasl.mechanism"] = endpoint.mechanism
        settings["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f'username="{user}" password="{password}";'
        )
    if endpoint.new_token is not None:
        if endpoint.token_file is None:
            raise InvalidArgumentError(
                "token_file= is missing: Java reads its token from a file, which client_config writes"
            )
        settings["sasl.mechanism"] = OAUTHBEARER
        settings["sasl.jaas.config"] = f"{OAUTH_PACKAGE}.OAuthBearerLoginModule required;"
        settings["sasl.login.callback.handler.class"] = f"{OAUTH_PACKAGE}.OAuthBearerLoginCallbackHandler"
        settings["sasl.oauthbearer.token.endpoint.url"] = token_file(
            endpoint.token_file, endpoint.new_token()
        )
    if endpoint.authority is not None:
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.certificates"] = endpoint.authority.decode()
    if endpoint.certificate is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.key"] = endpoint.certificate.key.decode()
        settings["ssl.keystore.certificate.chain"] = endpoint.certificate.chain.decode()
    return settings


def _kafkajs(endpoint: ClientEndpoint) -> dict[str, Any]:
    settings: dict[str, Any] = {"brokers": [endpoint.bootstrap_servers]}
    if endpoint.user is not None:
        settings["sasl"] = {
            "mechanism": endpoint.mechanism.lower(),
            "username": endpoint.user,
            "password": endpoint.password,
        }
    if endpoint.new_token is not None:
        # kafkajs wants a function there; settings reach it as JSON, and the program makes one of the token.
        settings["sasl"] = {"mechanism": "oauthbearer", "oauthBearerProvider": endpoint.new_token().text}
    if endpoint.authority is not None:
        settings["ssl"] = {"ca": [endpoint.authority.decode()]}
        if endpoint.certificate is not None:
            settings["ssl"]["key"] = endpoint.certificate.key.decode()
            settings["ssl"]["cert"] = endpoint.certificate.chain.decode()
    return settings


CLIENTS: dict[str, Callable[[ClientEndpoint], dict[str, Any]]] = {
    "confluent-kafka": _confluent,
    "librdkafka": _librdkafka,
    "kcat": _librdkafka,
    "kafka-python": partial(_python, provider=kafka_python_provider),
    "aiokafka": partial(_python, provider=aiokafka_provider),
    "java": _java,
    "kafkajs": _kafkajs,
}
"""The clients whose settings are known."""
GO_CLIENTS = ("go", "franz-go", "sarama", "kafka-go")
"""Clients that have no settings by name: a program calls functions and sets fields."""
_IN_CODE = "Go's clients are set up in code, with the values of confluent-kafka (docs/how-to/security.md has the lines)"
