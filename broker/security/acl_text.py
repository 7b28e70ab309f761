"""ACLs as words of a command line: ``User:app Read topic:orders``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.listeners import PLAINTEXT, ListenerConfig
from oncelog.broker.metadata.acl_changes import error_of
from oncelog.broker.metadata.acls import ALLOW, DENY, LITERAL, PREFIXED, WILDCARD, AclBinding
from oncelog.broker.requests.authorization import (
    ACL_OPERATIONS,
    ALL,
    ANONYMOUS,
    CLUSTER_NAME,
    CLUSTER_RESOURCE,
    DELEGATION_TOKEN_RESOURCE,
    GROUP_RESOURCE,
    OPERATION_NAMES,
    SUPPORTED_OPERATIONS,
    TOPIC_RESOURCE,
    TRANSACTIONAL_ID_RESOURCE,
    USER_RESOURCE,
    acl_operation,
)
from oncelog.broker.security.acls import ANY_PRINCIPAL

_RESOURCES = {
    "topic": TOPIC_RESOURCE,
    "group": GROUP_RESOURCE,
    "transactional-id": TRANSACTIONAL_ID_RESOURCE,
    "delegation-token": DELEGATION_TOKEN_RESOURCE,
    "user-principal": USER_RESOURCE,
    "cluster": CLUSTER_RESOURCE,
}
SHAPE = "[deny] PRINCIPAL OPERATION RESOURCE[:NAME] [from HOST]"


def parse_acls(texts: Iterable[str], origin: str) -> list[AclBinding]:
    """Return ACLs, each written as `SHAPE`: operations as kafka-acls names them, a NAME that ends in ``*`` is a prefix,
    ``*`` alone stands for all; the cluster has no name. A principal may have blanks. Raises ConfigError.
    """
    return [_parse(text, origin) for text in texts]


def _parse(text: str, origin: str) -> AclBinding:
    words = text.split()
    permission = ALLOW
    if words and words[0].lower() == "deny":
        permission = DENY
        del words[0]
    host = WILDCARD
    if len(words) > 2 and words[-2].lower() == "from":
        host = words[-1]
        del words[-2:]
    if len(words) < 3 or ":" not in " ".join(words[:-2]):
        raise ConfigError(f"{origin}={text}: expected {SHAPE}")
    operation = acl_operation(words[-2])
    if operation is None:
        there = ", ".join(ACL_OPERATIONS.values())
        raise ConfigError(f"{origin}={text}: {words[-2]} is no operation; there are {there}")
    kind, colon, name = words[-1].partition(":")
    resource = _RESOURCES.get(kind.lower())
    if resource is None or (resource == CLUSTER_RESOURCE) == bool(colon):
        raise ConfigError(
            f"{origin}={text}: {words[-1]} is no resource; there are {', '.join(_RESOURCES)}, all but the last with "
            ":NAME"
        )
    if operation != ALL and not SUPPORTED_OPERATIONS[resource] >> operation & 1:
        there = ", ".join(
            name for one, name in OPERATION_NAMES.items() if SUPPORTED_OPERATIONS[resource] >> one & 1
        )
        raise ConfigError(f"{origin}={text}: a {kind.lower()} has no {words[-2]}; it has ALL, {there}")
    pattern = LITERAL
    if resource == CLUSTER_RESOURCE:
        name = CLUSTER_NAME
    elif name.endswith(WILDCARD) and name != WILDCARD:
        pattern, name = PREFIXED, name.removesuffix(WILDCARD)
    acl = AclBinding(resource, name, pattern, " ".join(words[:-2]), host, operation, permission)
    error = error_of(acl)
    if error is not None:
        raise ConfigError(f"{origin}={text}: {error.message}")
    return acl


def check_acls(origin: str, config: BrokerConfig) -> None:
    """Raise ConfigError if ACLs are not in force."""
    if not config.authorizer_class_name:
        raise ConfigError(f"{origin} has no effect: authorizer.class.name is empty; leave that out")


def acl_warnings(
    acls: Iterable[AclBinding], listeners: Iterable[ListenerConfig], origin: str
) -> Iterator[str]:
    """Yield a warning about ACLs of principals that no client can be."""
    if any(listener.protocol != PLAINTEXT for listener in listeners):
        return
    others = dict.fromkeys(acl.principal for acl in acls if acl.principal not in (ANONYMOUS, ANY_PRINCIPAL))
    if others:
        yield (
            f"{origin} of {', '.join(others)}: no listener asks for a log-in, so all clients are {ANONYMOUS}; "
            "add --user, or a listener with SASL or TLS"
        )
