"""UpdateFeatures (API key 57): finalize other feature levels, all of them or none (KIP-584, KIP-778).

- Versions 0 to 2: 1 brings the upgrade types and ``validate_only``; 2 answers without a row per feature.
- In version 0 Kafka does not look at ``allow_downgrade`` either: it always means an upgrade.
- A feature's row that is fine has the text NONE where its message would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata import features
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.request import RequestContext
    from oncelog.broker.services import Services

NO_RESULTS_VERSION = 2


def handle(
    services: Services, request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    updates = {
        row.feature: (row.feature, row.max_version_level, row.upgrade_type) for row in request.feature_updates
    }
    try:
        records = features.update(
            services.metadata.image,
            services.config.current.node_id,
            list(updates.values()),
            services.config.static.min_insync_replicas,
        )
        if not request.validate_only:
            services.metadata.commit(records)
    except KafkaError as error:
        text = f"The update failed for all features since the following feature had an error: {error.message}"
        return UpdateFeaturesResponse(0, error.code, text)
    rows = []
    if context.api_version < NO_RESULTS_VERSION:
        rows = [UpdatableFeatureResult(row.feature, 0, "NONE") for row in request.feature_updates]
    return UpdateFeaturesResponse(0, 0, None, rows)
