"""Authorization: operations and resources, the interface of an authorizer, and `Authorization`, which handlers ask.

Without an authorizer everybody may do everything that a resource supports. Source: Kafka's ``AuthHelper``,
``AclEntry``, ``AclOperation``, ``ResourceType``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from oncelog.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    Resource = tuple[int, str]

NOT_ASKED = -(2**31)
"""The value of a bit field of operations (KIP-430) if the client did not ask for it."""

ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = 13, 14, 15

TOPIC_RESOURCE, GROUP_RESOURCE, CLUSTER_RESOURCE, TRANSACTIONAL_ID_RESOURCE = 2, 3, 4, 5
DELEGATION_TOKEN_RESOURCE, USER_RESOURCE = 6, 7

OPERATION_NAMES = {
    READ: "READ",
    WRITE: "WRITE",
    CREATE: "CREATE",
    DELETE: "DELETE",
    ALTER: "ALTER",
    DESCRIBE: "DESCRIBE",
    CLUSTER_ACTION: "CLUSTER_ACTION",
    DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    ALTER_CONFIGS: "ALTER_CONFIGS",
    IDEMPOTENT_WRITE: "IDEMPOTENT_WRITE",
    CREATE_TOKENS: "CREATE_TOKENS",
    DESCRIBE_TOKENS: "DESCRIBE_TOKENS",
    TWO_PHASE_COMMIT: "TWO_PHASE_COMMIT",
}
RESOURCE_NAMES = {
    TOPIC_RESOURCE: "topic",
    GROUP_RESOURCE: "group",
    CLUSTER_RESOURCE: "cluster",
    TRANSACTIONAL_ID_RESOURCE: "transactional id",
    DELEGATION_TOKEN_RESOURCE: "token",
    USER_RESOURCE: "user",
}

ACL_OPERATIONS = {ALL: "ALL", **OPERATION_NAMES}
"""The operations that an ACL may name."""
_OPERATION_BY_NAME = {name.replace("_", ""): operation for operation, name in ACL_OPERATIONS.items()}

TOPIC_DENIED = "Topic authorization failed."
"""Kafka's message of TOPIC_AUTHORIZATION_FAILED."""

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that does not log in (Kafka: ``KafkaPrincipal.ANONYMOUS``)."""

CLUSTER_NAME = "kafka-cluster"
THE_CLUSTER = (CLUSTER_RESOURCE, CLUSTER_NAME)
"""The cluster as a resource: its type and its only name."""


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


CLUSTER_OPERATIONS = _bits(
    CREATE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALTER, DESCRIBE
)
TOPIC_OPERATIONS = _bits(READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS)
GROUP_OPERATIONS = _bits(READ, DESCRIBE, DELETE, DESCRIBE_CONFIGS, ALTER_CONFIGS)

SUPPORTED_OPERATIONS = {
    TOPIC_RESOURCE: TOPIC_OPERATIONS,
    GROUP_RESOURCE: GROUP_OPERATIONS,
    CLUSTER_RESOURCE: CLUSTER_OPERATIONS,
    TRANSACTIONAL_ID_RESOURCE: _bits(DESCRIBE, WRITE, TWO_PHASE_COMMIT),
    DELEGATION_TOKEN_RESOURCE: _bits(DESCRIBE),
    USER_RESOURCE: _bits(CREATE_TOKENS, DESCRIBE_TOKENS),
}
"""By type of resource: its operations (Kafka: ``AclEntry.supportedOperations``). Bit fields of authorized operations
exist for topics, groups and the cluster."""

AUTHORIZATION_ERROR = {
    TOPIC_RESOURCE: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP_RESOURCE: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER_RESOURCE: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_RESOURCE: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN_RESOURCE: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""By type of resource: the error of a denied request or row (Kafka: ``AclEntry.authorizationError``)."""


def acl_operation(text: str) -> int | None:
    """Return the operation that an ACL names, as protocols or tools spell it: ``IDEMPOTENT_WRITE``,
    ``IdempotentWrite``; None if there is none of this name.
    """
    return _OPERATION_BY_NAME.get(text.replace("_", "").upper())


def denied(operation: int, resource_type: int, name: str) -> KafkaError:
    """Return the error of a client without the right to the operation on the resource."""
    text = f"The request needs {OPERATION_NAMES[operation]} on the {RESOURCE_NAMES[resource_type]} {name}."
    return KafkaError(AUTHORIZATION_ERROR[resource_type], text)


class Authorizer(Protocol):
    """The policy (Kafka: ``Authorizer``). After a change of its decisions `Host.on_access_change` is called, which
    empties what the fast paths remember.
    """

    def authorize(self, principal: str, host: str, operation: int, resource: Resource) -> bool:
        """Whether the principal (``User:alice``) may, from the host (``127.0.0.1``), do the operation on the resource
        (its type, its name).
        """

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether it may do the operation on some resource of the type."""


class Requester(Protocol):
    """The principal and the host of a check (Kafka: ``AuthorizableRequestContext``). A request has them, and so have
    objects that outlive it.
    """

    @property
    def principal(self) -> str:
        """The principal, such as ``User:alice``."""

    @property
    def host(self) -> str:
        """The address of the client, as Java writes it."""


OnDenied = Callable[[Requester, int, int, str], None]
"""Gets the requester, the operation, and the type and name of the resource."""


def _tell_nobody(requester: Requester, operation: int, resource_type: int, name: str) -> None:
    pass


class Authorization:
    """The one place where handlers ask what a request may do. ``authorizer`` is None where everybody may do everything.

    Hot paths look at ``authorizer`` themselves first. ``on_denied`` is told of each denial, unless the check is
    ``quiet``: one that only selects what the client sees, or for which another right will do (Kafka:
    ``Action.logIfDenied``).
    """

    __slots__ = ("authorizer", "on_denied")

    def __init__(self, authorizer: Authorizer | None = None, on_denied: OnDenied = _tell_nobody) -> None:
        self.authorizer = authorizer
        self.on_denied = on_denied

    def allows(
        self, requester: Requester, operation: int, resource_type: int, name: str, *, quiet: bool = False
    ) -> bool:
        """Whether ``requester`` may do the operation on the resource."""
        authorizer = self.authorizer
        if authorizer is None or authorizer.authorize(
            requester.principal, requester.host, operation, (resource_type, name)
        ):
            return True
        if not quiet:
            self.on_denied(requester, operation, resource_type, name)
        return False

    def require(self, requester: Requester, operation: int, resource_type: int, name: str) -> None:
        """Raises KafkaError, the one for resources of the type, unless ``requester`` may do the operation."""
        if not self.allows(requester, operation, resource_type, name):
            raise denied(operation, resource_type, name)

    def require_cluster(self, requester: Requester, operation: int) -> None:
        """Raises KafkaError (CLUSTER_AUTHORIZATION_FAILED) unless ``requester`` may do the operation on the cluster."""
        self.require(requester, operation, *THE_CLUSTER)

    def allows_for_any(self, requester: Requester, operation: int, resource_type: int) -> bool:
        """Whether ``requester`` may do the operation on some resource of the type."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.authorize_by_resource_type(
            requester.principal, requester.host, operation, resource_type
        )

    def predicate(
        self, requester: Requester, operation: int, resource_type: int, *, quiet: bool = False
    ) -> Callable[[str], bool]:
        """Return a function that tells whether ``requester`` may do the operation on the resource with a name."""
        authorizer = self.authorizer
        if authorizer is None:
            return _everything
        authorize, principal, host = authorizer.authorize, requester.principal, requester.host

        def allows(name: str) -> bool:
            if authorize(principal, host, operation, (resource_type, name)):
                return True
            if not quiet:
                self.on_denied(requester, operation, resource_type, name)
            return False

        return allows

    def allowed(
        self, requester: Requester, operation: int, resource_type: int, names: Iterable[str]
    ) -> frozenset[str]:
        """Return those of ``names`` on which ``requester`` may do the operation."""
        return frozenset(filter(self.predicate(requester, operation, resource_type), names))

    def operations(self, requester: Requester, resource_type: int, name: str) -> int:
        """Return the bit field of operations that ``requester`` may do on the resource (KIP-430)."""
        supported = SUPPORTED_OPERATIONS[resource_type]
        if self.authorizer is None:
            return supported
        return sum(
            1 << operation
            for operation in range(supported.bit_length())
            if supported >> operation & 1
            and self.allows(requester, operation, resource_type, name, quiet=True)
        )

    def cluster_operations(self, requester: Requester) -> int:
        """Return the bit field for the cluster; 0 if ``requester`` may not describe it."""
        if not self.allows(requester, DESCRIBE, *THE_CLUSTER):
            return 0
        return self.operations(requester, *THE_CLUSTER)

    def identity(self, requester: Requester) -> str | tuple[str, str]:
        """Return the key under which decisions may be remembered: what they depend on besides operation and
        resource.
        """
        return requester.principal if self.authorizer is None else (requester.principal, requester.host)


def _everything(name: str) -> bool:
    return True
