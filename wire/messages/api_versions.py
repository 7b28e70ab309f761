"""ApiVersions (18): the API versions and features of the broker, usually a client's first request.

The response header is always v0 (see ``wire.header``), and so is the response to an unknown version (KIP-511).
Version 3 adds the client's name and, as tagged fields, the features (KIP-584); in version 4 a feature's
lowest version may be 0. Version 5 adds the cluster and the node that the client means (KIP-1242).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(
    Request["ApiVersionsResponse"], api_key=18, kind="request", versions="0-5", flexible="3+"
):
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)
    cluster_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    node_id: int = int32("5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    """``max_version`` is included."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Message, api_key=18, kind="response", versions="0-5", flexible="3+"):
    """``finalized_features`` are valid only if ``finalized_features_epoch`` is not -1."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
