"""Users, ACLs and quotas that Kafka's tools make through a proxy are there after its death, for stock clients."""

from __future__ import annotations

import pathlib
from typing import Any

import kafka
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.brokers import make_broker
from compat_tests.differential import make_topic
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from tests.common.jars import RealPartMissing, require, run_tool

TIMEOUT_S = 30.0
SCRAM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def settings(proxy: OncelogProxy, user: str, password: str) -> dict[str, Any]:
    """Of confluent-kafka."""
    return {
        "bootstrap.servers": proxy.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": SCRAM,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def produce(proxy: OncelogProxy, user: str, password: str, topic: str) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer({**settings(proxy, user, password), "delivery.timeout.ms": int(TIMEOUT_S * 1000)})
    producer.produce(topic, b"coffee", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(2 * TIMEOUT_S) == 0
    return errors[0]


def produce_by_kafka_python(proxy: OncelogProxy, user: str, password: str, topic: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=proxy.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=SCRAM,
        sasl_plain_username=user,
        sasl_plain_password=password,
    )
    try:
        producer.send(topic, b"tea").get(TIMEOUT_S)
    finally:
        producer.close()


def test_they_outlive_a_kill(tmp_path: pathlib.Path, upstream: str) -> None:
    options = ["--user", "admin:admin-secret", "--data-dir", str(tmp_path / "kept")]
    options += ["-c", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
    options += ["-c", "super.users=User:admin"]
    try:
        with make_broker(upstream) as cluster, OncelogProxy(cluster.bootstrap, options) as proxy:
            make_topic(cluster.bootstrap, "orders")
            make_topic(cluster.bootstrap, "other")
            by_clients(proxy)
            proxy.kill()
            proxy.start()
            assert produce(proxy, "app", "app-secret", "orders") is None
            by_tools(proxy, tmp_path)
            proxy.kill()
            proxy.start()
            assert produce(proxy, "app", "app-secret", "orders") is None
            produce_by_kafka_python(proxy, "tool", "tool-secret", "orders")
            denied = produce(proxy, "tool", "tool-secret", "other")
            assert denied is not None
            assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            with pytest.raises(KafkaException):
                AdminClient(settings(proxy, "tool", "wrong")).list_topics(timeout=2)
            shown = tool(proxy, tmp_path, "org.apache.kafka.tools.ConfigCommand", "--describe", *user("tool"))
            assert "producer_byte_rate=1000000" in shown
            assert not proxy.tracebacks, proxy.output()
    except RealPartMissing as missing:
        require(str(missing))


def by_clients(proxy: OncelogProxy) -> None:
    """confluent-kafka makes a user and gives it a right."""
    admin = AdminClient(settings(proxy, "admin", "admin-secret"))
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("app", credential, b"app-secret")
    for made in admin.alter_user_scram_credentials([change]).values():
        made.result(TIMEOUT_S)
    acl = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:app",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    for created in admin.create_acls([acl]).values():
        created.result(TIMEOUT_S)


def by_tools(proxy: OncelogProxy, folder: pathlib.Path) -> None:
    """Kafka's tools do, for the clients of a network, and set a quota."""
    config = ("org.apache.kafka.tools.ConfigCommand", "--alter", *user("tool"), "--add-config")
    tool(proxy, folder, *config, f"{SCRAM}=[password=tool-secret]")
    tool(proxy, folder, *config, "producer_byte_rate=1000000")
    who = ("--allow-principal", "User:tool", "--allow-host", "127.0.0.0/8")
    acl = ("--add", *who, "--operation", "Write", "--topic", "orders")
    tool(proxy, folder, "org.apache.kafka.tools.AclCommand", *acl)


def user(name: str) -> tuple[str, ...]:
    return ("--entity-type", "users", "--entity-name", name)


def tool(proxy: OncelogProxy, folder: pathlib.Path, *words: str) -> str:
    """Run a tool of Kafka's as the administrator; return what it printed."""
    path = folder / "admin.properties"
    jaas = f'{MODULE} required username="admin" password="admin-secret";'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={SCRAM}\nsasl.jaas.config={jaas}\n")
    return run_tool(*words, "--bootstrap-server", proxy.bootstrap, "--command-config", str(path)).stdout
