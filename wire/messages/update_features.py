"""UpdateFeatures (57): finalizes feature levels (KIP-584).

In version 0 a flag allows a downgrade; from 1 ``upgrade_type`` says 1 upgrade, 2 safe downgrade, 3 unsafe
downgrade (KIP-778). Version 2 has no results of single features (KIP-1022).
"""

from __future__ import annotations

from oncelog.wire.schema import Message, Request, Struct, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(
    Request["UpdateFeaturesResponse"], api_key=57, kind="request", versions="0-2", flexible="0+"
):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesResponse(Message, api_key=57, kind="response", versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
