"""UnregisterController (94): removes a controller from the cluster's metadata."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, int16, int32, string


class UnregisterControllerRequest(
    Request["UnregisterControllerResponse"], api_key=94, kind="request", versions="0", flexible="0+"
):
    controller_id: int = int32()


class UnregisterControllerResponse(Message, api_key=94, kind="response", versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
