"""ListConfigResources (74): resources that have configs (KIP-1142). Version 0 lists client metrics resources only
(KIP-714)."""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(
    Request["ListConfigResourcesResponse"], api_key=74, kind="request", versions="0-1", flexible="0+"
):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api_key=74, kind="response", versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
