"""Who may describe or change a resource's configuration. Source: ``ControllerApis.authorizeAlterResource``,
``ConfigHelper``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from oncelog.broker.requests.authorization import GROUP_RESOURCE, THE_CLUSTER, TOPIC_RESOURCE, denied

if TYPE_CHECKING:
    from collections.abc import Callable

    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.errors import KafkaError

CLUSTERS = frozenset((BROKER, BROKER_LOGGER, CLIENT_METRICS))
"""Types of resources whose configurations belong to the cluster."""


def config_refusal(
    services: Services, context: RequestContext, operation: int
) -> Callable[[int, str], KafkaError | None] | None:
    """Return a function that tells why the client may not do the operation on the configuration of a resource (its
    type, its name), or None: it may. Returns None where everybody may do everything.
    """
    authorization = services.authorization
    if authorization.authorizer is None:
        return None

    def refusal(resource_type: int, name: str) -> KafkaError | None:
        resource = THE_CLUSTER
        if resource_type == TOPIC:
            resource = (TOPIC_RESOURCE, name)
        elif resource_type == GROUP:
            resource = (GROUP_RESOURCE, name)
        elif resource_type not in CLUSTERS:
            return None
        return None if authorization.allows(context, operation, *resource) else denied(operation, *resource)

    return refusal
