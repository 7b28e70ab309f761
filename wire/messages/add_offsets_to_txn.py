"""AddOffsetsToTxn (25): adds a group's offsets partition to a transaction."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, int16, int32, int64, string


class AddOffsetsToTxnRequest(
    Request["AddOffsetsToTxnResponse"], api_key=25, kind="request", versions="0-4", flexible="3+"
):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api_key=25, kind="response", versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
