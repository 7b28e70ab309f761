"""Clients' settings for a broker: address, TLS and log-in, by the keys of each client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from oncelog.broker.config.listeners import resolve_listeners
from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.security.user_options import MECHANISMS_OF_USERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.control.options import BrokerOptions
    from oncelog.broker.security.tls.authority import Certificate


class Access(NamedTuple):
    """A way to a broker. ``password`` None: no log-in. ``certificate``: what the client shows, if anything."""

    bootstrap_servers: str
    protocol: str
    mechanism: str
    user: str | None
    password: str | None
    authority: bytes | None
    certificate: Certificate | None


def access_of(
    options: BrokerOptions,
    bootstrap_servers: str,
    user: str | None,
    mechanism: str,
    authority: bytes | None,
    certificate: Certificate | None,
) -> Access:
    """Return the way to the first listener of a broker. Raises InvalidArgumentError for one that it does not have."""
    listener = resolve_listeners(options.broker_config(), lambda: options.host_name)[0][0]
    protocol = listener.protocol
    if user is not None and user not in options.users:
        there = ", ".join(options.users) or "none"
        raise InvalidArgumentError(f"user {user!r}: the broker was started with other users= ({there})")
    if protocol.startswith("SASL") and user is None:
        there = ", ".join(options.users) or "none"
        raise InvalidArgumentError(
            f"user= is missing: clients of this broker log in (its users= are {there})"
        )
    if user is not None and not protocol.startswith("SASL"):
        raise InvalidArgumentError(f"user {user!r}: the listener {listener.bind.listener} asks for no log-in")
    if user is not None and mechanism not in MECHANISMS_OF_USERS.split(","):
        raise InvalidArgumentError(f"mechanism {mechanism!r}: users= log in by one of {MECHANISMS_OF_USERS}")
    if certificate is not None and not protocol.endswith("SSL"):
        raise InvalidArgumentError("certificate=: the broker has no TLS; tls=True gives it")
    return Access(
        bootstrap_servers.split(",")[0],
        protocol,
        mechanism,
        user,
        None if user is None else options.users[user],
        authority,
        certificate,
    )


def client_settings(client: str, access: Access) -> dict[str, Any]:
    """Return the settings of ``client``, one of `CLIENTS`. Raises InvalidArgumentError for another one."""
    make = CLIENTS.get(client)
    if make is None:
        hint = f"; {_IN_CODE}" if client.lower() in GO_CLIENTS else ""
        raise InvalidArgumentError(f"client {client!r}: expected one of {', '.join(CLIENTS)}{hint}")
    return make(access)


def _librdkafka(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": access.bootstrap_servers,
        "security.protocol": access.protocol,
    }
    if access.user is not None:
        settings["sasl.mechanism"] = access.mechanism
        settings["sasl.username"] = access.user
        settings["sasl.password"] = access.password
    if access.authority is not None:
        settings["ssl.ca.pem"] = access.authority.decode()
    if access.certificate is not None:
        settings["ssl.key.pem"] = access.certificate.key.decode()
        settings["ssl.certificate.pem"] = access.certificate.chain.decode()
    return settings


def _python(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": access.bootstrap_servers,
        "security_protocol": access.protocol,
    }
    if access.user is not None:
        settings["sasl_mechanism"] = access.mechanism
        settings["sasl_plain_username"] = access.user
        settings["sasl_plain_password"] = access.password
    if access.authority is not None:
        import ssl

        from oncelog.broker.seams.tls import load_certificate

        context = ssl.create_default_context(cadata=access.authority.decode())
        if access.certificate is not None:
            load_certificate(context, access.certificate.key, access.certificate.chain)
        settings["ssl_context"] = context
    return settings


def _java(access: Access) -> dict[str, Any]:
    settings = {"bootstrap.servers": access.bootstrap_servers, "security.protocol": access.protocol}
    if access.user is not None:
        module = "plain.Plain" if access.mechanism == "PLAIN" else "scram.Scram"
        user, password = (
            text.replace("\\", "\\\\").replace('"', '\\"') for text in (access.user, access.password or "")
        )
        settings["sasl.mechanism"] = access.mechanism
        settings["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f'username="{user}" password="{password}";'
        )
    if access.authority is not None:
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.certificates"] = access.authority.decode()
    if access.certificate is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.key"] = access.certificate.key.decode()
        settings["ssl.keystore.certificate.chain"] = access.certificate.chain.decode()
    return settings


def _kafkajs(access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {"brokers": [access.bootstrap_servers]}
    if access.user is not None:
        settings["sasl"] = {
            "mechanism": access.mechanism.lower(),
            "username": access.user,
            "password": access.password,
        }
    if access.authority is not None:
        settings["ssl"] = {"ca": [access.authority.decode()]}
        if access.certificate is not None:
            settings["ssl"]["key"] = access.certificate.key.decode()
            settings["ssl"]["cert"] = access.certificate.chain.decode()
    return settings


CLIENTS: dict[str, Callable[[Access], dict[str, Any]]] = {
    "confluent-kafka": _librdkafka,
    "librdkafka": _librdkafka,
    "kcat": _librdkafka,
    "kafka-python": _python,
    "aiokafka": _python,
    "java": _java,
    "kafkajs": _kafkajs,
}
"""The clients whose settings are known."""
GO_CLIENTS = ("go", "franz-go", "sarama", "kafka-go")
"""Clients that have no settings by name: a program calls functions and sets fields."""
_IN_CODE = (
    "Go's clients are set up in code, with the values of confluent-kafka (docs/security.md has the lines)"
)
