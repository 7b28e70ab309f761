"""Requests that set quotas, as tests need them."""

from __future__ import annotations

from oncelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    QuotaAlteration,
)
from oncelog.wire.messages.describe_client_quotas import EntityData
from tests.harness.sim_client import SimClient

Names = dict[str, str | None]
ANYBODY: Names = {"client-id": None}


async def set_quota(client: SimClient, names: Names, key: str, value: float | None) -> None:
    """Set a quota of the users, clients or addresses of these names; None removes it."""
    entity = [EntityData(*pair) for pair in names.items()]
    request = AlterClientQuotasRequest([QuotaAlteration(entity, [OpData(key, value or 0.0, value is None)])])
    response = await client.call(request, 1, AlterClientQuotasResponse)
    assert [row.error_code for row in response.entries] == [0], response
