"""The broker's keys for SASL and TLS that Kafka lets change while it runs (Kafka: ``BrokerSecurityConfigs``,
``SaslConfigs``, ``SslConfigs``).

They rule listeners of other protocols than PLAINTEXT. Where there are none, as here, setting them does nothing in Kafka
either; they are checked, kept and shown, because administrators and tests set them for that.
"""

from __future__ import annotations

from oncelog.broker.config.definitions import (
    DOUBLE,
    LIST,
    LONG,
    LOW,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    KeyCollector,
    key,
    no_blank_words,
)


class SaslKeys(metaclass=KeyCollector, in_effect=False):
    """How clients of SASL listeners say who they are."""

    __slots__ = ()

    sasl_enabled_mechanisms: tuple[str, ...] = key(
        LIST, ("GSSAPI",), "The mechanisms that clients may use.", update=PER_BROKER, check=no_blank_words
    )
    sasl_mechanism_inter_broker_protocol: str = key(
        STRING, "GSSAPI", "The mechanism that brokers use among themselves.", update=PER_BROKER
    )
    sasl_jaas_config: str | None = key(
        PASSWORD, None, "The login of the broker, as in a JAAS file.", update=PER_BROKER
    )
    sasl_kerberos_service_name: str | None = key(
        STRING, None, "The Kerberos principal's name.", update=PER_BROKER
    )
    sasl_kerberos_kinit_cmd: str = key(STRING, "/usr/bin/kinit", "The path of kinit.", update=PER_BROKER)
    sasl_kerberos_ticket_renew_window_factor: float = key(
        DOUBLE, 0.8, "The part of a ticket's life after which it is renewed.", update=PER_BROKER
    )
    sasl_kerberos_ticket_renew_jitter: float = key(
        DOUBLE, 0.05, "The part of the time until a renewal that is left to chance.", update=PER_BROKER
    )
    sasl_kerberos_min_time_before_relogin: int = key(
        LONG, 60_000, "Milliseconds from one renewal to the next at least.", update=PER_BROKER
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = key(
        LIST,
        ("DEFAULT",),
        "Rules that make a user's name of a principal.",
        update=PER_BROKER,
        check=no_blank_words,
    )
    sasl_login_refresh_window_factor: float = key(
        DOUBLE, 0.8, "The part of a login's life after which it is refreshed.", update=PER_BROKER
    )
    sasl_login_refresh_window_jitter: float = key(
        DOUBLE, 0.05, "The part of a login's life that is left to chance.", update=PER_BROKER
    )
    sasl_login_refresh_min_period_seconds: int = key(
        SHORT, 60, "Seconds from one refresh to the next at least.", update=PER_BROKER
    )
    sasl_login_refresh_buffer_seconds: int = key(
        SHORT, 300, "Seconds before a login ends by which it is refreshed.", update=PER_BROKER
    )


class TlsKeys(metaclass=KeyCollector, in_effect=False):
    """How connections to SSL listeners are protected. Stores and their passwords can change for one listener only."""

    __slots__ = ()

    ssl_client_auth: str = key(
        STRING,
        "none",
        "Whether clients must show a certificate.",
        choices=("required", "requested", "none"),
        update=PER_BROKER,
    )
    ssl_protocol: str = key(STRING, "TLSv1.3", "The protocol of new connections.", update=PER_BROKER)
    ssl_provider: str | None = key(STRING, None, "The security provider.", update=PER_BROKER)
    ssl_enabled_protocols: tuple[str, ...] = key(
        LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The protocols that are accepted.",
        update=PER_BROKER,
        check=no_blank_words,
    )
    ssl_cipher_suites: tuple[str, ...] = key(
        LIST, (), "The suites that are accepted; empty: all.", update=PER_BROKER, check=no_blank_words
    )
    ssl_keymanager_algorithm: str = key(
        STRING, "SunX509", "How the broker's certificate is chosen.", update=PER_BROKER
    )
    ssl_trustmanager_algorithm: str = key(
        STRING, "PKIX", "How the others' certificates are checked.", update=PER_BROKER
    )
    ssl_endpoint_identification_algorithm: str = key(
        STRING,
        "https",
        "How a server's name is checked against its certificate.",
        importance=LOW,
        update=PER_BROKER,
    )
    ssl_secure_random_implementation: str | None = key(
        STRING, None, "Where random numbers come from.", importance=LOW, update=PER_BROKER
    )
