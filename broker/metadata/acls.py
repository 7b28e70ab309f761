"""`AclsImage`: the access control lists (ACLs), as the records of the metadata log make them.

Source: Kafka's ``AclsImage``, ``AclControlManager``, ``StandardAcl``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import Uuid
from oncelog.wire.stored.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord

LITERAL, PREFIXED = 3, 4
"""Pattern types (Kafka: ``PatternType``)."""
DENY, ALLOW = 2, 3
"""Permissions (Kafka: ``AclPermissionType``)."""
WILDCARD = "*"
"""All names, all hosts; ``User:*``: all principals."""


class AclBinding(NamedTuple):
    """One ACL: it allows or denies a principal an operation on resources, from a host. Types are Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def of(cls, record: AccessControlEntryRecord) -> AclBinding:
        """Return the ACL of a record."""
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def record(self, acl_id: Uuid) -> AccessControlEntryRecord:
        """Return the record that creates this ACL."""
        return AccessControlEntryRecord(acl_id, *self)


class AclsImage:
    """All ACLs. It changes only in `replay` and `replay_remove`."""

    __slots__ = ("by_id", "ids")

    def __init__(self) -> None:
        self.by_id: dict[Uuid, AclBinding] = {}
        """In the order in which they were created."""
        self.ids: dict[AclBinding, Uuid] = {}

    def replay(self, record: AccessControlEntryRecord) -> None:
        """Add an ACL. Raises DecodeError if there is one with the same id or content."""
        acl = AclBinding.of(record)
        if record.id in self.by_id or acl in self.ids:
            raise DecodeError(f"metadata record creates an ACL that exists: {record!r}")
        self.by_id[record.id] = acl
        self.ids[acl] = record.id

    def replay_remove(self, record: RemoveAccessControlEntryRecord) -> None:
        """Remove an ACL. Raises DecodeError if there is none with the id."""
        acl = self.by_id.pop(record.id, None)
        if acl is None:
            raise DecodeError(f"metadata record removes an ACL {record.id.hex()} that does not exist")
        del self.ids[acl]

    def records(self) -> Iterator[AccessControlEntryRecord]:
        """Yield the records that make this image."""
        for acl_id, acl in self.by_id.items():
            yield acl.record(acl_id)
