"""``oncelog --acl``: who may do what from the start, over restarts, beside kafka-acls and super users."""

from __future__ import annotations

import pathlib
import signal
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.common.oncelog_process import Process, Serve, serve

__all__ = ["serve"]  # a fixture

SUPER = ("-c", "super.users=User:admin")
USERS = ("--user", "admin:admin-secret", "--user", "app:app-secret", "--user", "guest:guest-secret")
ACL = "User:app All topic:orders"
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


def login(address: str, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def written(address: str, user: str, topic: str = "orders") -> int:
    """Write a record as this user; return its error's code, 0 for none."""
    codes: list[int] = []
    producer = Producer({**login(address, user), "allow.auto.create.topics": True})
    producer.produce(topic, b"value", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    assert producer.flush(60) == 0
    return codes[0]


def acls_of(principal: Any = None) -> AclBindingFilter:
    """Return a filter for the ACLs of a principal, or of all."""
    name: Any = None
    kind, pattern = ResourceType.ANY, ResourcePatternType.ANY
    return AclBindingFilter(kind, name, pattern, principal, name, AclOperation.ANY, AclPermissionType.ANY)


def stored(address: str) -> set[str]:
    """Return the ACLs that the super user is told of: principal, operation, resource."""
    admin = AdminClient(login(address, "admin"))
    found = admin.describe_acls(acls_of()).result(60)
    return {f"{one.principal} {one.operation.name} {one.name}" for one in found}


def start(serve: Serve, folder: pathlib.Path, *more: str, **environment: str) -> tuple[Process, str]:
    listen = ("--listen", "127.0.0.1:0", "--data-dir", str(folder / "data"))
    process = serve(*listen, *USERS, *SUPER, *more, **environment)
    return process, process.wait_ready()["address"]


@pytest.mark.slow
@pytest.mark.parametrize("controlled", [False, True])
def test_who_may_write(serve: Serve, tmp_path: pathlib.Path, controlled: bool) -> None:
    more = ("--control", "127.0.0.1:0") if controlled else ()
    process, address = start(
        serve,
        tmp_path,
        *("--acl", f"{ACL} from 127.0.0.0/8", "--acl", "deny User:app Write topic:ord* from 10.0.0.0/8"),
        *more,
    )
    assert [written(address, user) for user in ("app", "guest", "admin")] == [0, DENIED, 0]
    assert written(address, "app", "others") == DENIED
    assert stored(address) == {"User:app ALL orders", "User:app WRITE ord"}
    assert process.end(signal.SIGTERM) == 0
    assert "Traceback" not in process.stderr


@pytest.mark.slow
def test_over_restarts(serve: Serve, tmp_path: pathlib.Path) -> None:
    """As of users: what the option says holds at each start, beside what was made before."""
    process, address = start(serve, tmp_path, ONCELOG_ACL=f"{ACL}\nUser:guest Describe topic:*")
    assert stored(address) == {"User:app ALL orders", "User:guest DESCRIBE *"}
    admin = AdminClient(login(address, "admin"))
    mine = AclBinding(
        ResourceType.TOPIC,
        "mine",
        ResourcePatternType.LITERAL,
        "User:guest",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    [deleted] = admin.delete_acls([acls_of("User:app")]).values()
    [created] = admin.create_acls([mine]).values()
    deleted.result(60)
    created.result(60)
    assert stored(address) == {"User:guest DESCRIBE *", "User:guest WRITE mine"}
    assert process.end(signal.SIGKILL) == -signal.SIGKILL
    process, address = start(serve, tmp_path, "--acl", ACL, "--acl", ACL)
    assert stored(address) == {"User:app ALL orders", "User:guest DESCRIBE *", "User:guest WRITE mine"}
    assert [written(address, user) for user in ("app", "guest")] == [0, DENIED]
    assert process.end(signal.SIGTERM) == 0
    # Without the option there is no authorizer, as in Kafka, and a warning.
    process, address = start(serve, tmp_path)
    assert written(address, "guest") == 0
    assert (
        "the ACLs in the data directory are not in force: there is no --acl and no authorizer.class.name acls=3"
        in process.stderr
    )
    assert process.end(signal.SIGTERM) == 0
