"""UnregisterBroker (64): removes a broker from the cluster's metadata."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, int16, int32, string


class UnregisterBrokerRequest(
    Request["UnregisterBrokerResponse"], api_key=64, kind="request", versions="0", flexible="0+"
):
    broker_id: int = int32()


class UnregisterBrokerResponse(Message, api_key=64, kind="response", versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
