"""oncelog is killed (SIGKILL) while ACLs and SCRAM users are changed: what was acknowledged is in force after the
restart, and of each other request everything or nothing.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from compat_tests.clients.stock_clients import DEADLINE_S
from compat_tests.differential import Session
from compat_tests.oncelog_server import Oncelog
from compat_tests.security.authorizing import ANONYMOUS, AUTHORIZER
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.common.batches import batch
from tests.common.process import free_ports
from tests.common.sasl_client import LoginFailed, SaslClient

pytestmark = pytest.mark.slow

ROUNDS, PER_ROUND_MAX, IN_FLIGHT = 6, 30, 8
TOPIC, PASSWORD = "t", "the-password"
TOPIC_DENIED = 29
MECHANISMS = {
    "": ("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256),
    "-twin": ("SCRAM-SHA-512", ScramMechanism.SCRAM_SHA_512),
}
"""Of the users in one request, by the end of their names: Kafka changes a user once in a request."""
OPERATIONS = (AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS, AclOperation.DELETE)
"""Of the ACLs in one request."""
USERS_SHOWN = 5
"""Users of each kind that log in after a restart."""


def acls_of(user: str) -> list[AclBinding]:
    allowed = (ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, f"User:{user}", "*")
    return [AclBinding(*allowed, operation, AclPermissionType.ALLOW) for operation in OPERATIONS]


def filter_of(user: str | None) -> AclBindingFilter:
    """The ACLs of one user, or of all."""
    anything: Any = None
    return AclBindingFilter(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.LITERAL,
        anything if user is None else f"User:{user}",
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


class Changes:
    """A client of librdkafka that changes users and ACLs in a thread, some requests at a time, until `stop`.

    Each user and its twin get their passwords by one request, the user its ACLs by another, and every third one loses
    them by a third.
    """

    def __init__(self, bootstrap: str, first: int) -> None:
        self.users: set[str] = set()
        """Whose password was acknowledged."""
        self.allowed: set[str] = set()
        """Whose ACLs were acknowledged, and nobody has begun to delete them."""
        self.denied: set[str] = set()
        """The deletion of whose ACLs was acknowledged."""
        self.count = first
        self._acknowledged = 0
        self._changed = threading.Condition()
        self._places = threading.Semaphore(IN_FLIGHT)
        self._is_over = False
        # What was sent and not answered fails with the connection, and is not sent again.
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "retries": 0})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            self._places.acquire()
            user = f"u{self.count}"
            self.count += 1
            salted: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(
                    user + end, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
                )
                for end, (_, mechanism) in MECHANISMS.items()
            ]
            passed = self._admin.alter_user_scram_credentials(salted, request_timeout=DEADLINE_S)
            created = self._admin.create_acls(acls_of(user), request_timeout=DEADLINE_S)
            self._on_done(passed.values(), partial(self.users.add, user))
            self._on_done(created.values(), partial(self._on_allowed, user))

    def _on_allowed(self, user: str) -> None:
        if self._is_over or int(user[1:]) % 3:
            self.allowed.add(user)
            self._places.release()
            return
        deleted = self._admin.delete_acls([filter_of(user)], request_timeout=DEADLINE_S)
        self._on_done(deleted.values(), partial(self._on_deleted, user))

    def _on_deleted(self, user: str) -> None:
        self.denied.add(user)
        self._places.release()

    def _on_done(self, futures: Any, acknowledged: Callable[[], None]) -> None:
        """Call back when the last of a request's futures is there; not if one failed: then the broker is dead."""
        missing = list(futures)

        def on_done(future: Future[Any]) -> None:
            with self._changed:
                if future.exception() is not None:
                    self._is_over = True
                    self._places.release()
                else:
                    missing.remove(future)
                    if not missing:
                        acknowledged()
                        self._acknowledged += 1
                self._changed.notify_all()

        for future in list(missing):
            future.add_done_callback(on_done)

    def wait_for(self, count: int) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: self._acknowledged >= count or self._is_over, DEADLINE_S)
            assert done, (self._acknowledged, count)
            assert not self._is_over, "a request failed while the broker was alive"

    def join(self) -> None:
        """End after the broker's death: nothing is sent to the next one."""
        self._is_over = True
        self._places.release()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        del self._admin


def log_in(address: str, user: str, mechanism: str) -> SaslClient | None:
    """Return None for a user who is not let in."""
    client = SaslClient(address)
    try:
        client.log_in(mechanism, user, PASSWORD)
    except LoginFailed:
        client.socket.close()
        return None
    return client


def may_write(address: str, user: str) -> bool:
    client = log_in(address, user, "SCRAM-SHA-256")
    assert client is not None, user
    with client:
        rows = [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch(1))])]
        request = ProduceRequest(None, 1, 30_000, rows)
        response: ProduceResponse = client.call(request, 9)
        code = response.responses[0].partition_responses[0].error_code
        assert code in (0, TOPIC_DENIED)
        return code == 0


def test_acls_and_users_are_changed_wholly_or_not_at_all() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # shown if it fails; the moments of the deaths are the machine's
    chance = random.Random(seed)
    [port] = free_ports(1)
    address = f"127.0.0.1:{port}"
    properties = {
        "listeners": f"SASL_PLAINTEXT://{address}",
        "sasl.enabled.mechanisms": ",".join(name for name, _ in MECHANISMS.values()),
        "authorizer.class.name": AUTHORIZER,
        "super.users": ANONYMOUS,
        "connection.failed.authentication.delay.ms": "0",
    }
    users: set[str] = set()
    allowed: set[str] = set()
    denied: set[str] = set()
    count = 0
    amid = 0
    with Oncelog(properties) as broker:
        session = Session(broker.bootstrap)
        session.topic(TOPIC)
        session.end()
        for _ in range(ROUNDS):
            changes = Changes(broker.bootstrap, count)
            changes.wait_for(chance.randint(1, PER_ROUND_MAX))
            broker.kill()
            changes.join()
            users |= changes.users
            allowed |= changes.allowed
            denied |= changes.denied
            count = changes.count
            broker.start()
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            found: dict[str, int] = {}
            for one in admin.describe_acls(filter_of(None)).result(DEADLINE_S):
                name = one.principal.removeprefix("User:")
                found[name] = found.get(name, 0) + 1
            assert set(found.values()) <= {len(OPERATIONS)}, "a request is half done"
            assert allowed <= found.keys(), "an acknowledged ACL is lost"
            assert not denied & found.keys(), "a deleted ACL is back"
            latest = [f"u{number}" for number in range(max(0, count - IN_FLIGHT - USERS_SHOWN), count)]
            for user in latest:
                let_in = set()
                for end, (mechanism, _) in MECHANISMS.items():
                    client = log_in(address, user + end, mechanism)
                    let_in.add(client is not None)
                    if client is not None:
                        client.socket.close()
                assert len(let_in) == 1, "a request is half done"
                assert let_in == {True} or user not in users, "an acknowledged user is lost"
                amid += user not in users
                if let_in == {True}:
                    assert may_write(address, user) == (user in found), (
                        "the ACLs that are listed are in force"
                    )
        assert broker.tracebacks == 0, broker.output()
    assert allowed, "nothing was acknowledged"
    assert denied, "no deletion was acknowledged"
    assert amid, "no request was under way when the broker died"
