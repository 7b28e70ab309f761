"""Heartbeat (12): classic protocol: renews a member's session, and tells it of a rebalance. Version 3 has static
members (KIP-345)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, int16, int32, string


class HeartbeatRequest(
    Request["HeartbeatResponse"], api_key=12, kind="request", versions="0-4", flexible="4+"
):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api_key=12, kind="response", versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
