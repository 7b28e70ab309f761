"""Changes of the access control lists: checks the rows of CreateAcls and DeleteAcls, and makes records of them.

Source: Kafka's ``AclControlManager``, ``AclApis``, ``AclBindingFilter``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.metadata.acl_networks import is_network, parse_network
from oncelog.broker.metadata.acls import ALLOW, DENY, LITERAL, PREFIXED, WILDCARD
from oncelog.broker.metadata.features import are_networks_enabled
from oncelog.broker.requests.authorization import (
    CLUSTER_NAME,
    CLUSTER_RESOURCE,
    TWO_PHASE_COMMIT,
    USER_RESOURCE,
)
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.stored.metadata import RemoveAccessControlEntryRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from oncelog.broker.metadata.acls import AclBinding, AclsImage
    from oncelog.broker.metadata.cluster_metadata import ClusterMetadata
    from oncelog.wire.schema import Uuid

ANY = 1
"""In a filter: every resource type, pattern type, operation or permission."""
MATCH = 2
"""A pattern type for filters: all patterns that a resource of the name matches."""

CHANGES_MAX = 10_000
"""How many ACLs one request may create or delete (``QuorumController.MAX_RECORDS_PER_USER_OP``)."""


class AclFilter(NamedTuple):
    """A filter for ACLs; None and `ANY` match all."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: AclBinding) -> bool:
        """Whether the ACL is meant."""
        return (
            self.resource_type in (ANY, acl.resource_type)
            and self.permission_type in (ANY, acl.permission_type)
            and self.operation in (ANY, acl.operation)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        name = self.resource_name
        if self.pattern_type != MATCH and self.pattern_type not in (ANY, acl.pattern_type):
            return False
        if name is None:
            return True
        if self.pattern_type != MATCH:
            return name == acl.resource_name
        if acl.pattern_type == PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


def create(store: ClusterMetadata, wanted: list[AclBinding]) -> list[KafkaError | None]:
    """Create the ACLs that are valid and do not exist yet, in one batch. Returns an error, or None, for each.

    Raises KafkaError: POLICY_VIOLATION if they are too many, and as `MetadataStore.commit`.
    """
    image = store.image.acls
    networks = are_networks_enabled(store.image)
    results = [error_of(acl, may_have_network=networks) for acl in wanted]
    new = dict.fromkeys(
        acl for acl, error in zip(wanted, results, strict=True) if error is None and acl not in image.ids
    )
    if len(new) > CHANGES_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"A request may create {CHANGES_MAX} ACLs, not {len(new)}."
        )
    store.commit([acl.record(_new_id(store, image)) for acl in new])
    return results


def _new_id(store: ClusterMetadata, image: AclsImage) -> Uuid:
    while (acl_id := store.new_uuid()) in image.by_id:
        pass
    return acl_id


def store_acls(store: ClusterMetadata, wanted: Sequence[AclBinding]) -> None:
    """Create those that do not exist yet. Raises KafkaError, also for the first one that cannot be created."""
    for start in range(0, len(wanted), CHANGES_MAX):
        for error in create(store, list(wanted[start : start + CHANGES_MAX])):
            if error is not None:
                raise error


def error_of(acl: AclBinding, *, may_have_network: bool = True) -> KafkaError | None:
    """Return why no such ACL can be created: INVALID_REQUEST, or UNSUPPORTED_VERSION for a network as the host unless
    it ``may_have_network``.
    """
    text = _invalid(acl)
    if text is None and is_network(acl.host) and not may_have_network:
        return KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    text = text or _invalid_host(acl.host)
    return None if text is None else KafkaError(ErrorCode.INVALID_REQUEST, text)


def _invalid_host(host: str) -> str | None:
    if not host:
        return "Host pattern cannot be null or empty"
    if is_network(host):
        try:
            parse_network(host)
        except ValueError as error:
            return f"Invalid CIDR notation '{host}': {error}"
    return None


def _invalid(acl: AclBinding) -> str | None:
    text = None
    if acl.resource_type == CLUSTER_RESOURCE and acl.resource_name != CLUSTER_NAME:
        text = f"The only resource of the type CLUSTER is {CLUSTER_NAME}."
    elif not acl.resource_name:
        text = "The resource's name is empty."
    elif not ANY < acl.resource_type <= USER_RESOURCE:
        text = f"No ACL can have the resource type {acl.resource_type}."
    elif acl.pattern_type not in (LITERAL, PREFIXED):
        text = f"No ACL can have the pattern type {acl.pattern_type}."
    elif not ANY < acl.operation <= TWO_PHASE_COMMIT:
        text = f"No ACL can have the operation {acl.operation}."
    elif acl.permission_type not in (DENY, ALLOW):
        text = f"No ACL can have the permission {acl.permission_type}."
    elif ":" not in acl.principal:
        text = f"The principal {acl.principal} has no type: expected TYPE:NAME, such as User:{acl.principal}."
    return text


class Deletion:
    """Deletes the ACLs that filters match. `find` may be stepped in slices; `commit` is atomic."""

    def __init__(self, store: ClusterMetadata, filters: list[AclFilter]) -> None:
        self._store = store
        self._filters = filters
        self.results: list[KafkaError | list[AclBinding]] = []
        """For each filter an error or what it matches."""
        self._found: dict[Uuid, None] = {}

    def find(self) -> Iterator[None]:
        """Find what the filters match: a step for every few ACLs.

        Raises KafkaError (INVALID_REQUEST) if they are too many: nothing will be deleted then.
        """
        image = self._store.image.acls
        by_id = list(image.by_id.items())
        for wanted in self._filters:
            if _is_unknown(wanted):
                self.results.append(
                    KafkaError(ErrorCode.INVALID_REQUEST, "The filter has a kind that does not exist.")
                )
                continue
            matched: list[AclBinding] = []
            for at, (acl_id, acl) in enumerate(by_id):
                if wanted.matches(acl):
                    matched.append(acl)
                    self._found[acl_id] = None
                    if len(self._found) > CHANGES_MAX:
                        raise KafkaError(
                            ErrorCode.INVALID_REQUEST, f"A request may delete {CHANGES_MAX} ACLs at most."
                        )
                if at % 64 == 63:
                    yield
            self.results.append(matched)
            yield

    def commit(self) -> None:
        """Delete what was found, in one batch. Raises KafkaError as `MetadataStore.commit`."""
        there = self._store.image.acls.by_id
        self._store.commit(
            [RemoveAccessControlEntryRecord(acl_id) for acl_id in self._found if acl_id in there]
        )


def _is_unknown(wanted: AclFilter) -> bool:
    """Whether one of the filter's numbers stands for nothing."""
    return not (
        0 < wanted.resource_type <= USER_RESOURCE
        and 0 < wanted.pattern_type <= PREFIXED
        and 0 < wanted.operation <= TWO_PHASE_COMMIT
        and 0 < wanted.permission_type <= ALLOW
    )
