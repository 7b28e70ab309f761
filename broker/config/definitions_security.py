"""The broker's dynamic keys for SASL and TLS (Kafka: ``BrokerSecurityConfigs``, ``SaslConfigs``, ``SslConfigs``).

They concern listeners with other protocols than PLAINTEXT, and each may have its own: ``listener.name.NAME.KEY``.
Those for the broker as a client, and for Kerberos, do nothing here. They are checked, stored and shown, because tools
and tests set them.
"""

from __future__ import annotations

from oncelog.broker.config.definitions import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    KeyCollector,
    key,
    no_empty_items,
)

PER_LISTENER_KEYS = frozenset(
    (
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
    )
)
"""Keys that requests change for one listener only (``SslConfigs.RECONFIGURABLE_CONFIGS``)."""


class SaslKeys(metaclass=KeyCollector, of_proxies=True):
    """Keys for the authentication of clients at SASL listeners."""

    __slots__ = ()

    sasl_enabled_mechanisms: tuple[str, ...] = key(
        LIST, ("GSSAPI",), "The mechanisms that clients may use.", update=PER_BROKER, check=no_empty_items
    )
    sasl_mechanism_inter_broker_protocol: str = key(
        STRING,
        "GSSAPI",
        "The mechanism that brokers use among themselves.",
        update=PER_BROKER,
        in_effect=False,
    )
    sasl_jaas_config: str | None = key(
        PASSWORD, None, "The login of the broker, as in a JAAS file.", update=PER_BROKER, in_effect=False
    )
    sasl_kerberos_service_name: str | None = key(
        STRING, None, "The Kerberos principal's name.", update=PER_BROKER, in_effect=False
    )
    sasl_kerberos_kinit_cmd: str = key(
        STRING, "/usr/bin/kinit", "The path of kinit.", update=PER_BROKER, in_effect=False
    )
    sasl_kerberos_ticket_renew_window_factor: float = key(
        DOUBLE,
        0.8,
        "The share of a ticket's lifetime after which it is renewed.",
        update=PER_BROKER,
        in_effect=False,
    )
    sasl_kerberos_ticket_renew_jitter: float = key(
        DOUBLE, 0.05, "The random share of the time until a renewal.", update=PER_BROKER, in_effect=False
    )
    sasl_kerberos_min_time_before_relogin: int = key(
        LONG, 60_000, "The least milliseconds between two renewals.", update=PER_BROKER, in_effect=False
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = key(
        LIST,
        ("DEFAULT",),
        "Rules that map a principal to a user's name.",
        update=PER_BROKER,
        check=no_empty_items,
        in_effect=False,
    )
    sasl_login_refresh_window_factor: float = key(
        DOUBLE,
        0.8,
        "The share of a login's lifetime after which it is refreshed.",
        update=PER_BROKER,
        in_effect=False,
    )
    sasl_login_refresh_window_jitter: float = key(
        DOUBLE,
        0.05,
        "The random share of a login's lifetime that is added to that.",
        update=PER_BROKER,
        in_effect=False,
    )
    sasl_login_refresh_min_period_seconds: int = key(
        SHORT, 60, "The least seconds between two refreshes.", update=PER_BROKER, in_effect=False
    )
    sasl_login_refresh_buffer_seconds: int = key(
        SHORT,
        300,
        "Seconds before its end by which a login is refreshed.",
        update=PER_BROKER,
        in_effect=False,
    )


class LoginKeys(metaclass=KeyCollector, of_proxies=True):
    """Keys for log-ins at any listener with SASL or TLS."""

    __slots__ = ()

    connection_failed_authentication_delay_ms: int = key(
        INT,
        100,
        "Milliseconds by which the broker delays closing a connection after a failed log-in.",
        at_least=0,
        importance=LOW,
    )
    connections_max_reauth_ms: int = key(
        LONG, 0, "Milliseconds after which a SASL client must log in again; 0 is never."
    )
    sasl_server_max_receive_size: int = key(
        INT, 512 << 10, "The most bytes of a client's message during the log-in."
    )


class OAuthKeys(metaclass=KeyCollector, of_proxies=True):
    """Keys for the tokens of OAUTHBEARER."""

    __slots__ = ()

    sasl_server_callback_handler_class: str | None = key(
        CLASS, None, "The class that handles the callbacks of SASL clients."
    )
    sasl_oauthbearer_clock_skew_seconds: int = key(
        INT, 30, "Seconds by which clocks may differ when a token is checked.", importance=LOW
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = key(
        LIST, (), "The audiences of which a token must have at least one.", importance=HIGH
    )
    sasl_oauthbearer_expected_issuer: str | None = key(
        STRING, None, "The issuer that a token must name.", importance=HIGH
    )
    sasl_oauthbearer_allow_unverified_audience: bool = key(
        BOOLEAN, False, "Whether a token's audience is not checked where none is expected."
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = key(
        BOOLEAN, False, "Whether a token's issuer is not checked where none is expected."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(
        LONG,
        3_600_000,
        "Milliseconds after which the broker fetches the tokens' signing keys again.",
        importance=LOW,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = key(
        LONG, 100, "Milliseconds until fetching the keys is tried again, at first.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = key(
        LONG, 10_000, "The most milliseconds until fetching the keys is tried again.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = key(STRING, None, "The URL of the tokens' signing keys.")
    sasl_oauthbearer_scope_claim_name: str = key(
        STRING, "scope", "The claim that holds a token's scope.", importance=LOW
    )
    sasl_oauthbearer_sub_claim_name: str = key(
        STRING, "sub", "The claim that holds a token's subject.", importance=LOW
    )


class DelegationTokenKeys(metaclass=KeyCollector, of_proxies=True):
    """Keys for delegation tokens (KIP-48)."""

    __slots__ = ()

    delegation_token_expiry_check_interval_ms: int = key(
        LONG,
        3_600_000,
        "Milliseconds between two searches for expired tokens.",
        at_least=1,
        importance=LOW,
    )
    delegation_token_expiry_time_ms: int = key(
        LONG, 86_400_000, "Milliseconds after which a token must be renewed.", at_least=1
    )
    delegation_token_max_lifetime_ms: int = key(
        LONG, 604_800_000, "Milliseconds for which a token can be renewed.", at_least=1
    )
    delegation_token_secret_key: str | None = key(
        PASSWORD, None, "The secret with which the broker signs and checks tokens."
    )


class TlsKeys(metaclass=KeyCollector, of_proxies=True):
    """Keys for TLS at SSL listeners. Key stores and their passwords can be changed for one listener only."""

    __slots__ = ()

    ssl_client_auth: str = key(
        STRING,
        "none",
        "Whether clients must show a certificate.",
        choices=("required", "requested", "none"),
        update=PER_BROKER,
    )
    ssl_protocol: str = key(
        STRING, "TLSv1.3", "The protocol of new connections.", update=PER_BROKER, in_effect=False
    )
    ssl_provider: str | None = key(STRING, None, "The security provider.", update=PER_BROKER, in_effect=False)
    ssl_enabled_protocols: tuple[str, ...] = key(
        LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The protocols that are accepted.",
        update=PER_BROKER,
        check=no_empty_items,
    )
    ssl_cipher_suites: tuple[str, ...] = key(
        LIST, (), "The suites that are accepted; empty: all.", update=PER_BROKER, check=no_empty_items
    )
    ssl_keymanager_algorithm: str = key(
        STRING,
        "SunX509",
        "The algorithm that chooses the broker's certificate.",
        update=PER_BROKER,
        in_effect=False,
    )
    ssl_trustmanager_algorithm: str = key(
        STRING,
        "PKIX",
        "The algorithm that checks the peers' certificates.",
        update=PER_BROKER,
        in_effect=False,
    )
    ssl_endpoint_identification_algorithm: str = key(
        STRING,
        "https",
        "The algorithm that compares a server's name with its certificate.",
        importance=LOW,
        update=PER_BROKER,
        in_effect=False,
    )
    ssl_secure_random_implementation: str | None = key(
        STRING, None, "The generator of random numbers.", importance=LOW, update=PER_BROKER, in_effect=False
    )
    ssl_keystore_type: str = key(
        STRING, "JKS", "The format of the key store: PEM, PKCS12 or JKS.", update=PER_BROKER
    )
    ssl_keystore_location: str | None = key(
        STRING, None, "The file with the broker's key and certificates.", update=PER_BROKER
    )
    ssl_keystore_password: str | None = key(PASSWORD, None, "The password of that file.", update=PER_BROKER)
    ssl_key_password: str | None = key(PASSWORD, None, "The password of the private key.", update=PER_BROKER)
    ssl_keystore_key: str | None = key(PASSWORD, None, "The broker's private key, as PEM.", update=PER_BROKER)
    ssl_keystore_certificate_chain: str | None = key(
        PASSWORD, None, "The broker's certificates, as PEM.", update=PER_BROKER
    )
    ssl_truststore_type: str = key(
        STRING, "JKS", "The format of the trust store: PEM, PKCS12 or JKS.", update=PER_BROKER
    )
    ssl_truststore_location: str | None = key(
        STRING, None, "The file with the trusted certificates.", update=PER_BROKER
    )
    ssl_truststore_password: str | None = key(PASSWORD, None, "The password of that file.", update=PER_BROKER)
    ssl_truststore_certificates: str | None = key(
        PASSWORD, None, "The trusted certificates, as PEM.", update=PER_BROKER
    )
    ssl_principal_mapping_rules: str = key(
        STRING, "DEFAULT", "Rules that map a certificate's subject to a user's name.", importance=LOW
    )
    ssl_allow_dn_changes: bool = key(
        BOOLEAN,
        False,
        "Whether a new certificate may have another subject.",
        importance=LOW,
        of_proxies=False,
    )
    ssl_allow_san_changes: bool = key(
        BOOLEAN,
        False,
        "Whether a new certificate may lack a host of the one before.",
        importance=LOW,
        of_proxies=False,
    )
