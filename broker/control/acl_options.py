"""`Acl`: an access control list as the test kit takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.metadata.acl_changes import error_of
from oncelog.broker.metadata.acls import ALLOW, DENY, LITERAL, PREFIXED, AclBinding
from oncelog.broker.requests.authorization import (
    ACL_OPERATIONS,
    CLUSTER_NAME,
    CLUSTER_RESOURCE,
    DELEGATION_TOKEN_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    TRANSACTIONAL_ID_RESOURCE,
    USER_RESOURCE,
    acl_operation,
)

RESOURCES = {
    "topic": TOPIC_RESOURCE,
    "group": GROUP_RESOURCE,
    "transactional_id": TRANSACTIONAL_ID_RESOURCE,
    "token": DELEGATION_TOKEN_RESOURCE,
    "user": USER_RESOURCE,
}


@dataclass(frozen=True)
class Acl:
    """Who may do what: ``Acl("User:app", "Read", topic="orders")``.

    principal: who, such as ``User:app``.
    operation: one of Kafka's, in its spelling for protocols or tools: ``IDEMPOTENT_WRITE`` or ``IdempotentWrite``.
    topic, group, transactional_id, token, user: the name of the resource, ``*`` for all of the kind. An ACL names one
        resource: one of these, or the cluster.
    cluster: the resource is the cluster.
    prefixed: it is every resource whose name begins so.
    deny: the principal must not do it.
    host: the address of the client, a network such as 10.0.0.0/8, or ``*`` for all.
    """

    principal: str
    operation: str
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    token: str | None = None
    user: str | None = None
    cluster: bool = False
    prefixed: bool = False
    deny: bool = False
    host: str = "*"

    def binding(self) -> AclBinding:
        """Return it as the broker keeps it. Raises InvalidArgumentError."""
        operation = acl_operation(self.operation)
        if operation is None:
            there = ", ".join(ACL_OPERATIONS.values())
            raise InvalidArgumentError(f"{self}: unknown operation; there are {there}")
        named = [
            (resource_type, value)
            for name, resource_type in RESOURCES.items()
            if (value := getattr(self, name)) is not None
        ]
        if self.cluster:
            named.append((CLUSTER_RESOURCE, CLUSTER_NAME))
        if len(named) != 1:
            raise InvalidArgumentError(f"{self}: expected one of {', '.join(RESOURCES)}, cluster")
        [(resource_type, name)] = named
        kind, colon, _ = self.principal.partition(":")
        if not kind or not colon:
            raise InvalidArgumentError(f"{self}: expected a principal such as User:app")
        acl = AclBinding(
            resource_type,
            name,
            PREFIXED if self.prefixed else LITERAL,
            self.principal,
            self.host,
            operation,
            DENY if self.deny else ALLOW,
        )
        error = error_of(acl)
        if error is not None:
            raise InvalidArgumentError(f"{self}: {error.message}")
        return acl


def acl_bindings(acls: Iterable[Acl | Mapping[str, object]]) -> tuple[AclBinding, ...]:
    """Return ACLs as the broker keeps them. A mapping has the fields of `Acl`. Raises InvalidArgumentError."""
    return tuple(_acl(given).binding() for given in acls)


def _acl(given: Acl | Mapping[str, object]) -> Acl:
    if isinstance(given, Acl):
        return given
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"ACL {given!r}: expected such as Acl('User:app', 'Read', topic='orders')")
    try:
        return Acl(**given)  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidArgumentError(f"ACL {given!r}: {str(error).removeprefix('Acl.__init__() ')}") from None
