"""`Release`: the API versions and the features that a broker announces and accepts.

`OURS` is all that oncelog serves. `emulated` is the part of it that a broker of an earlier release of Kafka serves, so
that a client takes the path that it takes with such a broker. Behaviour within a version of an API is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.handlers.table import HANDLERS, TELEMETRY_KEYS
from oncelog.broker.metadata.features import OUR_FEATURES, Features
from oncelog.broker.metadata.image import METADATA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oncelog.broker.handlers.table import ApiRow

OUR_RELEASE = "4.4"


class Release(NamedTuple):
    """The APIs of a broker, by key, and its features."""

    handlers: Mapping[int, ApiRow]
    features: Features


OURS = Release(HANDLERS, OUR_FEATURES)


def emulated(version: str) -> Release:
    """Return what a broker of that release of Kafka serves, such as "3.9", as far as oncelog serves it.

    Raises ValueError, with a message for the user, for a release that is not known.
    """
    if version == OUR_RELEASE:
        return OURS
    from oncelog.broker.emulation import kafka_releases as facts

    if version not in facts.RELEASES:
        known = ", ".join((*facts.RELEASES, OUR_RELEASE))
        raise ValueError(f"version {version!r}: expected a release of Kafka: {known}")
    column = facts.RELEASES.index(version)
    handlers = {
        key: limited
        for key, ranges in facts.API_VERSIONS.items()
        if (served := ranges[column]) is not None
        and key in HANDLERS
        and (limited := _limited(HANDLERS[key], *served)) is not None
    }
    # Every release has them, and announces them only with a plug-in that takes the metrics.
    handlers |= {key: HANDLERS[key] for key in TELEMETRY_KEYS}
    level = facts.METADATA_VERSIONS[version]
    supported = facts.SUPPORTED_FEATURES[version]
    features = Features(
        {
            METADATA_VERSION: (level, level),
            **{
                name: (max(low, supported[name][0]), min(high, supported[name][1]))
                for name, (low, high) in OUR_FEATURES.supported.items()
                if name in supported
            },
        },
        {
            METADATA_VERSION: level,
            **{
                name: level
                for name, level in facts.FINALIZED_FEATURES[version].items()
                if name in OUR_FEATURES.supported
            },
        },
        version,
    )
    return Release(handlers, features)


def _limited(row: ApiRow, low: int, high: int) -> ApiRow | None:
    """Return ``handler`` for the versions that both have; None if there are none."""
    announced_min = max(low, row.announced_min)
    low, high = max(low, row.min_version), min(high, row.max_version)
    if low > high:
        return None
    return row._replace(min_version=low, max_version=high, announced_min=announced_min)
