"""DeleteGroups (42): deletes empty groups (KIP-229). Version 3 adds an error's message (KIP-1331)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, int16, int32, string


class DeleteGroupsRequest(
    Request["DeleteGroupsResponse"], api_key=42, kind="request", versions="0-3", flexible="2+"
):
    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Message, api_key=42, kind="response", versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
