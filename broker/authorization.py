"""Who may do what.

Rights are not kept yet: without an `Authorizer` everybody may do everything that a resource supports (Kafka:
``AclEntry.supportedOperations``), and Metadata, DescribeCluster and the group APIs say so in a bit field (KIP-430).
"""

from __future__ import annotations

from typing import Protocol

NOT_ASKED = -(2**31)
"""The value of that field if the client did not ask for it."""

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


CLUSTER_OPERATIONS = _bits(
    CREATE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALTER, DESCRIBE
)
TOPIC_OPERATIONS = _bits(READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS)
GROUP_OPERATIONS = _bits(READ, DESCRIBE, DELETE, DESCRIBE_CONFIGS, ALTER_CONFIGS)

CLUSTER = (4, "kafka-cluster")
"""The cluster as a resource: its type (Kafka: ``ResourceType``) and name."""

CLUSTER_OPERATION = {
    29: DESCRIBE,
    30: ALTER,
    31: ALTER,
    43: ALTER,
    45: ALTER,
    46: DESCRIBE,
    48: DESCRIBE_CONFIGS,
    50: DESCRIBE,
    55: DESCRIBE,
    57: ALTER,
}
"""By API key: the operation on the cluster that a whole request of the API needs (Kafka: ``KafkaApis``,
``ControllerApis``). Every other API asks row by row."""


class Authorizer(Protocol):
    """The policy (Kafka: ``Authorizer``)."""

    def authorize(self, principal: str, operation: int, resource: tuple[int, str]) -> bool:
        """Whether the principal (``User:alice``) may do the operation on the resource (its type, its name)."""
