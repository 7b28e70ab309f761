"""Both targets with a listener for each way in, certificates of one authority, users, and ACLs by prefix."""

import pathlib
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.brokers import UNDISTURBED, UNDISTURBED_KAFKA, Broker
from compat_tests.oncelog_server import Oncelog
from compat_tests.security.authorizing import AUTHORIZER
from compat_tests.security.logged_in_clients import OAUTH_PACKAGE
from tests.common.certificates import Authority
from tests.common.jars import BROKER_JVM_OPTIONS, quick_start
from tests.common.process import free_ports
from tests.common.real_kafka import RealKafka
from tests.common.tokens import Issuer, key_set, unsecured

LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "ASKING": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
"""Name and protocol. SSL requires a certificate; ASKING asks for one."""
USERS = {"app": "app-secret", "guest": "guest-secret"}
CERTIFIED = "CN=app,O=Tests"
AUDIENCE = "brokers"
TIMEOUT_S = 30


def write_certificates(folder: pathlib.Path) -> None:
    """Write ca.pem, and for the server and clients their keys and certificates; keys.json of an issuer, and tokens:
    one of the issuer's, one of a stranger with the same key id, one that nobody signed.
    """
    authority, strangers = Authority(), Authority("strangers")
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "strange-ca.pem").write_bytes(strangers.pem)
    identities = {
        "server": authority.identity("server"),
        "app": authority.identity("app"),
        "expired": authority.identity("app", days=-1),
        "stranger": strangers.identity("app"),
    }
    issuer = Issuer()
    (folder / "keys.json").write_bytes(key_set(issuer))
    now = int(time.time())
    claims = {"sub": "app", "aud": AUDIENCE, "iat": now, "exp": now + 3600}
    tokens = {
        "signed": issuer.token(claims),
        "strange": Issuer().token(claims),
        "unsecured": unsecured(claims),
    }
    for name, token in tokens.items():
        (folder / f"{name}.jwt").write_text(token)
    for name, identity in identities.items():
        (folder / f"{name}.pem").write_bytes(identity.key + identity.chain)


def allow_urls(*urls: str) -> str:
    """The JVM option that lets Kafka's classes read keys or tokens there."""
    return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(urls)}"


class Secured:
    """A broker, and where its listeners are."""

    def __init__(self, target: str, certificates: pathlib.Path) -> None:
        self.target = target
        more = [name for name in LISTENERS if name != "PLAINTEXT"]
        ports = free_ports(len(more))
        self._addresses = {name: f"127.0.0.1:{port}" for name, port in zip(more, ports, strict=True)}
        passwords = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {passwords};"
        oauth, keys = (
            f"{OAUTH_PACKAGE}.OAuthBearerLoginModule required",
            (certificates / "keys.json").as_uri(),
        )
        signed = "listener.name.sasl_ssl.oauthbearer.sasl"
        protocols = {**LISTENERS, **({"CONTROLLER": "PLAINTEXT"} if target == "kafka" else {})}
        properties = {
            **UNDISTURBED,
            "listeners": ",".join(f"{name}://{address}" for name, address in self._addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{what}" for name, what in protocols.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.asking.ssl.client.auth": "requested",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f'{oauth} unsecuredLoginStringClaim_sub="x";',
            f"{signed}.jaas.config": f"{oauth};",
            f"{signed}.server.callback.handler.class": f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler",
            f"{signed}.oauthbearer.jwks.endpoint.url": keys,
            f"{signed}.oauthbearer.expected.audience": AUDIENCE,
            f"{signed}.oauthbearer.allow.unverified.issuer": "true",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
        }
        if target == "kafka":
            scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            for listener in ("sasl_plaintext", "sasl_ssl"):
                for mechanism in ("scram-sha-256", "scram-sha-512"):
                    properties[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = scram
        self.broker: Broker = (
            Oncelog({**properties, "oncelog.sasl.oauthbearer.allowed.urls": keys})
            if target == "oncelog"
            else RealKafka(
                {**UNDISTURBED_KAFKA, **properties},
                jvm_options=(*BROKER_JVM_OPTIONS, *quick_start(), allow_urls(keys)),
            )
        )

    def address(self, listener: str) -> str:
        """Return the address of a listener of the running broker."""
        return self.broker.bootstrap if listener == "PLAINTEXT" else self._addresses[listener]

    def prepare(self, topics: list[str], prefix: str) -> None:
        """Make users by SCRAM, topics, and ACLs that let User:app and the certificate's name use the prefix."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        _done(admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]))
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            for user, password in USERS.items():
                upsertion = UserScramCredentialUpsertion(user, info, password.encode())
                _done(admin.alter_user_scram_credentials([upsertion]))
        resources = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        rules = [
            AclBinding(
                resource,
                prefix,
                ResourcePatternType.PREFIXED,
                f"User:{name}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for resource in resources
            for name in ("app", CERTIFIED)
        ]
        _done(admin.create_acls(rules))


def _done(futures: Mapping[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)
