"""As whom a share group's dead-letter queue is written, where there is an authorizer, on both targets.

The broker logs in to itself as User:broker, which is no super user. A member is User:app.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from compat_tests.brokers import Broker, check_after, make_broker
from compat_tests.differential import Session
from compat_tests.security.authorizing import (
    ALL,
    ALLOW,
    AUTHORIZER,
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    LITERAL,
    TOPIC,
    acl_filter,
    creation,
    until_described,
)
from compat_tests.share.dead_letter_queues import ENABLED, queue_of, wait_until_done
from compat_tests.share.readers import Reader, share_topic
from tests.common import facts
from tests.common.frames import Connection
from tests.common.jars import RealPartMissing, require
from tests.common.process import free_ports

pytestmark = [
    pytest.mark.slow,
    facts.needs(facts.HAS_DEAD_LETTER_QUEUES, "dead-letter queues"),
]

READ, WRITE, CREATE, DESCRIBE, CLUSTER_ACTION = 3, 4, 5, 8, 9
DENY = 2
REJECT = [3]
BROKER, APP = "User:broker", "User:app"
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "LOGIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="broker" password="b" user_broker="b" user_app="a";'
    ),
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


class Running(NamedTuple):
    """A broker of a target, and the address of its listener with log-ins."""

    target: str
    broker: Broker
    login: str


@pytest.fixture(scope="module", params=["oncelog", "kafka"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    try:
        broker = make_broker(request.param, {**PROPERTIES, "listeners": f"LOGIN://{address}"})
        with broker:
            for one in check_after(broker):
                admin = Session(one.bootstrap)
                # Kafka's persister calls the share coordinator as the broker does.
                allow(admin, (BROKER, CLUSTER, CLUSTER_NAME, CLUSTER_ACTION))
                admin.end()
                yield Running(request.param, one, address)
    except RealPartMissing as missing:
        require(str(missing))


class Member(Session):
    """All its connections log in."""

    def connect(self, client_id: str | None) -> Connection:
        connection = super().connect(client_id)
        connection.log_in("app", "a")
        return connection


Rule = tuple[str, int, str, int]
"""Principal, resource type, resource and operation."""


def allow(admin: Session, *rules: Rule, permission: int = ALLOW) -> None:
    """Add ACLs; return when they are in force."""
    for principal, kind, resource, operation in rules:
        row = creation(kind, resource, LITERAL, principal, "*", operation, permission)
        response = admin.call_unobserved("CreateAcls", 3, {"creations": [row]})
        assert response["results"][0]["error_code"] == 0, response
        until_described(admin, acl_filter(kind, resource, LITERAL, principal, "*", operation, permission), 1)


def rejected(
    running: Running, name: str, *rules: Rule, has_queue: bool = True, denied: tuple[Rule, ...] = ()
) -> int:
    """Have User:app reject two records; return how many are in the queue."""
    queue = f"dlq.{name}"
    admin = Session(running.broker.bootstrap)
    member = Member(running.login, user=("app", "a"))
    try:
        if has_queue:
            admin.topic(queue, 1, ENABLED)
        topic_id = share_topic(admin, name, 2, errors_deadletterqueue_topic_name=queue)
        allow(
            admin, (APP, TOPIC, name, READ), (APP, GROUP, name, READ), (BROKER, TOPIC, name, DESCRIBE), *rules
        )
        allow(admin, *denied, permission=DENY)
        reader = Reader(member, topic_id, "one", name)
        assert reader.begin() == [(0, 1, 1)]
        response = reader.say((0, 1, REJECT))
        assert response["responses"][0]["partitions"][0]["error_code"] == 0
        wait_until_done(admin, name)
        return len(queue_of(admin, queue, 0))
    finally:
        member.end()
        admin.end()


def test_the_brokers_principal_needs_write_on_kafka(running: Running, name: str) -> None:
    """oncelog asks itself for no right."""
    assert rejected(running, name) == (0 if running.target == "kafka" else 2)
    other = f"{name}-other"
    assert rejected(running, other, (BROKER, TOPIC, f"dlq.{other}", WRITE)) == 2


def test_the_members_rights_on_the_queue_are_not_asked_for(running: Running, name: str) -> None:
    queue = f"dlq.{name}"
    rules = (BROKER, TOPIC, queue, WRITE)
    assert rejected(running, name, rules, denied=((APP, TOPIC, queue, ALL),)) == 2


def test_the_brokers_principal_needs_create_on_kafka(running: Running, name: str) -> None:
    write = (BROKER, TOPIC, f"dlq.{name}", WRITE)
    assert rejected(running, name, write, has_queue=False) == (0 if running.target == "kafka" else 2)
    other = f"{name}-other"
    rules = tuple((BROKER, TOPIC, f"dlq.{other}", operation) for operation in (WRITE, CREATE))
    assert rejected(running, other, *rules, has_queue=False) == 2
