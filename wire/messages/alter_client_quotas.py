"""AlterClientQuotas (49): sets and removes the quotas of clients, users and addresses (KIP-546)."""

from __future__ import annotations

from oncelog.wire.messages.describe_client_quotas import EntityData
from oncelog.wire.schema import Message, Request, Struct, array, boolean, float64, int16, int32, string


class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class QuotaAlteration(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(
    Request["AlterClientQuotasResponse"], api_key=49, kind="request", versions="0-1", flexible="1+"
):
    entries: list[QuotaAlteration] = array(QuotaAlteration)
    validate_only: bool = boolean()


class AlteredEntity(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Message, api_key=49, kind="response", versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    entries: list[AlteredEntity] = array(AlteredEntity)
