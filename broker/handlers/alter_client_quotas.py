"""AlterClientQuotas (API key 49): sets and removes the quotas of clients, users and addresses.

All changes that are not refused are one batch of records. Source: ``ClientQuotaControlManager``; KIP-546.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers.chunked import chunked_steps
from oncelog.broker.metadata.client_quota_changes import alter
from oncelog.broker.metadata.client_quotas import IP, entity_of
from oncelog.broker.requests.request import Pending
from oncelog.broker.scheduling.slices import in_slices
from oncelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
)
from oncelog.wire.messages.describe_client_quotas import EntityData

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import AccessServices
    from oncelog.broker.metadata.client_quotas import Entity
    from oncelog.broker.requests.request import RequestContext
    from oncelog.wire.errors import KafkaError
    from oncelog.wire.steps import Steps


def handle(
    services: AccessServices, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse | Pending[AlterClientQuotasResponse]:
    hosts = [one.entity_name for entry in request.entries for one in entry.entity if one.entity_type == IP]
    unknown = services.host_names.unknown(hosts)
    return (
        Pending(_looked_up(services, request, unknown))
        if unknown
        else chunked_steps(_alter(services, request))
    )


async def _looked_up(
    services: AccessServices, request: AlterClientQuotasRequest, unknown: list[str]
) -> AlterClientQuotasResponse:
    await services.host_names.resolve(unknown)
    response: AlterClientQuotasResponse = await in_slices(_alter(services, request))
    return response


def _alter(services: AccessServices, request: AlterClientQuotasRequest) -> Steps[AlterClientQuotasResponse]:
    alterations = (
        (
            entity_of((one.entity_type, one.entity_name) for one in entry.entity),
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in request.entries
    )
    records, results = yield from alter(
        services.metadata.image.client_quotas, alterations, services.host_names.address
    )
    if not request.validate_only:
        services.metadata.commit(records)
    response = AlterClientQuotasResponse()
    for entity, error in results.items():
        response.entries.append(_row(entity, error))
        yield
    return response


def _row(entity: Entity, error: KafkaError | None) -> AlteredEntity:
    names = [EntityData(entity_type, name) for entity_type, name in entity]
    if error is None:
        return AlteredEntity(error_message=None, entity=names)
    return AlteredEntity(error.code, error.message, names)
