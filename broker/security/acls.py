"""`StandardAuthorizer`: decides by access control lists (ACLs) as Kafka's ``StandardAuthorizer`` does.

A deny outweighs every allow. An ACL applies to a resource by its name, by a prefix of it, or to all (``*``); to one
principal or all (``User:*``); from one host, a network (``10.0.0.0/8``) or all (``*``). Where no ACL at all applies to
a resource, ``allow.everyone.if.no.acl.found`` decides. Source: ``StandardAuthorizer``, ``StandardAuthorizerData``,
``Authorizer.authorizeByResourceType`` (KIP-679), KIP-290, KIP-801.

The ACLs are indexed by resource, then by principal and host, so that a decision takes the same time however many there
are: a look-up for each length of prefix that some ACL has. Decisions are remembered until an ACL changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.config.checks import super_users
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.metadata.acl_networks import Networks
from oncelog.broker.metadata.acls import ALLOW, DENY, LITERAL, PREFIXED, WILDCARD
from oncelog.broker.requests.authorization import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from oncelog.broker.config.broker_config import BrokerConfig
    from oncelog.broker.metadata.acls import AclBinding, AclsImage
    from oncelog.broker.requests.authorization import Resource
    from oncelog.wire.schema import Uuid

log = get_logger(__name__)

ANY_PRINCIPAL = "User:*"

DECISIONS_MAX = 8192
"""How many decisions are remembered, at some 300 bytes each. One more, and all are forgotten."""

NAME_CHARS_MAX = 256
"""Characters of the longest resource name that is remembered with a decision; topic names are shorter."""

_EVERY_BIT = (1 << 128) - 1
_IMPLIED_BY_ALLOW = {
    **dict.fromkeys((READ, WRITE, DELETE, ALTER), DESCRIBE),
    ALTER_CONFIGS: DESCRIBE_CONFIGS,
}
_ANY_NAME = "hardcode"
"""The resource name in Kafka's check of a right to every resource of a type."""

Who = tuple[str, str]
"""A principal and a host, or their wildcards."""


class _Rules:
    """The operations that the ACLs with one resource pattern, principal and host allow and deny, as bits."""

    __slots__ = ("acls", "allow", "deny")

    def __init__(self) -> None:
        self.acls: set[tuple[int, int]] = set()
        """Operation and permission of each."""
        self.allow = 0
        self.deny = 0

    def change(self) -> None:
        """Compute the bits from the ACLs. Every permission other than ALLOW denies, as in Kafka."""
        self.allow = self.deny = 0
        for operation, permission in self.acls:
            bits = _EVERY_BIT if operation == ALL else 1 << max(operation, 0)
            if permission == ALLOW:
                self.allow |= bits | 1 << _IMPLIED_BY_ALLOW.get(operation, operation if operation > 0 else 0)
            else:
                self.deny |= bits

    def says(self, operation: int, permission: int) -> bool:
        """Whether an ACL names exactly this operation, or ALL."""
        return (operation, permission) in self.acls or (ALL, permission) in self.acls


class _OfType:
    """The ACLs for one type of resource."""

    __slots__ = ("_prefix_counts", "by_who", "literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, dict[Who, _Rules]] = {}
        self.prefixed: dict[str, dict[Who, _Rules]] = {}
        self.by_who: dict[Who, dict[tuple[int, str], _Rules]] = {}
        """The same rules by principal and host, then by pattern type and resource name."""
        self.prefix_lengths: tuple[int, ...] = ()
        self._prefix_counts: dict[int, int] = {}

    def add(self, acl: AclBinding) -> None:
        pattern, who = (acl.pattern_type, acl.resource_name), (acl.principal, acl.host)
        of_who = self.by_who.setdefault(who, {})
        rules = of_who.get(pattern)
        if rules is None:
            rules = of_who[pattern] = _Rules()
            patterns = self._patterns(acl.pattern_type)
            if acl.pattern_type == PREFIXED and acl.resource_name not in patterns:
                self._count_prefix(len(acl.resource_name), 1)
            patterns.setdefault(acl.resource_name, {})[who] = rules
        rules.acls.add((acl.operation, acl.permission_type))
        rules.change()

    def remove(self, acl: AclBinding) -> None:
        pattern, who = (acl.pattern_type, acl.resource_name), (acl.principal, acl.host)
        of_who = self.by_who[who]
        rules = of_who[pattern]
        rules.acls.remove((acl.operation, acl.permission_type))
        rules.change()
        if rules.acls:
            return
        del of_who[pattern]
        if not of_who:
            del self.by_who[who]
        patterns = self._patterns(acl.pattern_type)
        del patterns[acl.resource_name][who]
        if not patterns[acl.resource_name]:
            del patterns[acl.resource_name]
            if acl.pattern_type == PREFIXED:
                self._count_prefix(len(acl.resource_name), -1)

    def matching(self, name: str) -> Iterator[dict[Who, _Rules]]:
        """Yield the rules of every pattern that the resource name matches."""
        found = self.literal.get(name)
        if found is not None:
            yield found
        # To Kafka, too, the wildcard is no pattern for other names that begin with it.
        if not name.startswith(WILDCARD):
            found = self.literal.get(WILDCARD)
            if found is not None:
                yield found
        prefixed = self.prefixed
        for length in self.prefix_lengths:
            if length > len(name):
                break
            found = prefixed.get(name[:length])
            if found is not None:
                yield found

    def _patterns(self, pattern_type: int) -> dict[str, dict[Who, _Rules]]:
        return self.prefixed if pattern_type == PREFIXED else self.literal

    def _count_prefix(self, length: int, change: int) -> None:
        count = self._prefix_counts.get(length, 0) + change
        if count:
            self._prefix_counts[length] = count
        else:
            del self._prefix_counts[length]
        self.prefix_lengths = tuple(sorted(self._prefix_counts))


class StandardAuthorizer:
    """Kafka's authorizer. ``super_users`` may do everything."""

    def __init__(
        self,
        super_users: Iterable[str] = (),
        *,
        allow_everyone_if_no_acl: bool = False,
        decisions_max: int = DECISIONS_MAX,
    ) -> None:
        self.super_users = frozenset(super_users)
        self._if_no_acl = allow_everyone_if_no_acl
        self._by_id: dict[Uuid, AclBinding] = {}
        self._of_type: dict[int, _OfType] = {}
        self._networks = Networks()
        self._decisions_max = decisions_max
        self._decisions: dict[tuple[str, str, int, int, str | None], bool] = {}
        """By principal, host, operation, resource type, and resource name, or None for any resource of the type."""

    def add(self, acl_id: Uuid, acl: AclBinding) -> None:
        """Take the ACL into account from now on. There must be none in force with its id or content."""
        assert acl_id not in self._by_id, acl
        self._by_id[acl_id] = acl
        self._of_type.setdefault(acl.resource_type, _OfType()).add(acl)
        self._networks.add(acl.host)
        self._decisions.clear()

    def remove(self, acl_id: Uuid) -> None:
        """Leave out an ACL that is in force."""
        acl = self._by_id.pop(acl_id)
        self._of_type[acl.resource_type].remove(acl)
        self._networks.remove(acl.host)
        self._decisions.clear()

    def authorize(self, principal: str, host: str, operation: int, resource: Resource) -> bool:
        """Whether the principal may, from the host, do the operation on the resource."""
        asked = (principal, host, operation, *resource)
        decision = self._decisions.get(asked)
        if decision is None:
            decision = self._remember(asked, self._decide(principal, host, operation, *resource))
        return decision

    def authorize_by_resource_type(
        self, principal: str, host: str, operation: int, resource_type: int
    ) -> bool:
        """Whether the principal may, from the host, do the operation on some resource of the type."""
        asked = (principal, host, operation, resource_type, None)
        decision = self._decisions.get(asked)
        if decision is None:
            decision = self.authorize(principal, host, operation, (resource_type, _ANY_NAME))
            decision = decision or self._allows_some(principal, host, operation, resource_type)
            self._remember(asked, decision)
        return decision

    def _remember(self, asked: tuple[str, str, int, int, str | None], decision: bool) -> bool:
        name = asked[-1]
        if name is None or len(name) <= NAME_CHARS_MAX:
            if len(self._decisions) >= self._decisions_max:
                self._decisions.clear()
            self._decisions[asked] = decision
        return decision

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if principal in self.super_users:
            return True
        of_type = self._of_type.get(resource_type)
        if of_type is None:
            return self._if_no_acl
        bit = 1 << operation
        is_allowed = has_acl = False
        everyone = self._everyone_like(principal, host)
        for by_who in of_type.matching(name):
            has_acl = True
            for who in everyone:
                rules = by_who.get(who)
                if rules is not None:
                    if rules.deny & bit:
                        return False
                    if rules.allow & bit:
                        is_allowed = True
        return is_allowed or (not has_acl and self._if_no_acl)

    def _allows_some(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether some allow is left over by the denies. Only ACLs that name the operation, or ALL, count here."""
        of_type = self._of_type.get(resource_type)
        if of_type is None:
            return False
        allowed: list[tuple[int, str]] = []
        denied: set[tuple[int, str]] = set()
        for who in self._everyone_like(principal, host):
            for pattern, rules in of_type.by_who.get(who, {}).items():
                if rules.says(operation, DENY):
                    denied.add(pattern)
                if rules.says(operation, ALLOW):
                    allowed.append(pattern)
        if (LITERAL, WILDCARD) in denied:
            return False
        for pattern in allowed:
            pattern_type, name = pattern
            if pattern == (LITERAL, WILDCARD):
                return True
            if pattern_type == LITERAL and pattern in denied:
                continue
            if not any((PREFIXED, name[: length + 1]) in denied for length in range(len(name))):
                return True
        return False

    def _everyone_like(self, principal: str, host: str) -> list[Who]:
        """Return the principals and hosts of the ACLs that apply to this principal from this host."""
        hosts = (host, WILDCARD, *self._networks.containing(host))
        return [(who, where) for who in (principal, ANY_PRINCIPAL) for where in hosts]


def authorizer_in_force(config: BrokerConfig, acls: AclsImage) -> StandardAuthorizer | None:
    """Return the authorizer that ``authorizer.class.name`` asks for, with the ACLs that are stored; None without one,
    and then a warning if there are ACLs.
    """
    if not config.authorizer_class_name:
        if acls.by_id:
            log.warning(
                "the ACLs in the data directory are not in force: there is no --acl and no authorizer.class.name",
                acls=len(acls.by_id),
            )
        return None
    authorizer = configured_authorizer(config)
    for acl_id, acl in acls.by_id.items():
        authorizer.add(acl_id, acl)
    return authorizer


def configured_authorizer(config: BrokerConfig) -> StandardAuthorizer:
    """Return the authorizer that ``authorizer.class.name`` asks for, without ACLs."""
    if_no_acl = config.texts.get("allow.everyone.if.no.acl.found", "").strip().lower() == "true"
    return StandardAuthorizer(
        super_users(config.texts.get("super.users", "")), allow_everyone_if_no_acl=if_no_acl
    )
