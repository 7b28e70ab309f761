"""UpdateFeatures (API key 57): finalizes other feature levels, all of them or none (KIP-584, KIP-778).

- Version 1 adds the upgrade types and ``validate_only``; the response of version 2 has no result for each feature.
- In version 0 Kafka ignores ``allow_downgrade`` too: every update is an upgrade.
- A result without an error has the message NONE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.metadata.features import UPGRADE
from oncelog.broker.metadata.store import store_of
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.handlers.services import Services
    from oncelog.broker.requests.request import RequestContext

NO_RESULTS_VERSION = 2


def handle(
    services: Services, request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    updates = {
        update.feature: (update.feature, update.max_version_level, update.upgrade_type)
        for update in request.feature_updates
    }
    try:
        records = services.metadata.features.update(
            services.metadata.image,
            services.config.current.node_id,
            list(updates.values()),
            services.config.static.min_insync_replicas,
        )
        if not request.validate_only:
            services.metadata.commit(records)
            if any(kind != UPGRADE for _, _, kind in updates.values()):
                # A release that does not know the higher level cannot read the record that raised it.
                store_of(services.metadata).snapshot()
    except KafkaError as error:
        text = f"The update failed for all features since the following feature had an error: {error.message}"
        return UpdateFeaturesResponse(0, error.code, text)
    results = []
    if context.api_version < NO_RESULTS_VERSION:
        results = [UpdatableFeatureResult(update.feature, 0, "NONE") for update in request.feature_updates]
    return UpdateFeaturesResponse(0, 0, None, results)
