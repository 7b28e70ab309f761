"""Server-side assignors: pure functions from members and partitions to target assignments, in steps (KIP-848).

The keys of `ASSIGNORS` are the names for ``group.consumer.assignors`` and for a member's ``server_assignor``.
"""

from __future__ import annotations

from oncelog.coordinator.groups.assignors import range as _range
from oncelog.coordinator.groups.assignors import uniform
from oncelog.coordinator.groups.assignors.spec import Assign, Assignment, GroupSpec, MemberSpec

__all__ = ["ASSIGNORS", "CLASS_NAMES", "Assign", "Assignment", "GroupSpec", "MemberSpec"]

ASSIGNORS: dict[str, Assign] = {"uniform": uniform.assign, "range": _range.assign}
CLASS_NAMES = {
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name for name in ASSIGNORS
}
"""Kafka's class names, which the configuration may also use -> names in `ASSIGNORS`."""
