"""``Broker(version=...)`` beside a real broker of that release: the same API versions and features, as far as oncelog
serves them, and the same answer to a request that is out of range.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import oncelog
from compat_tests.on_demand import OnDemand
from oncelog.broker.emulation import kafka_releases as facts
from oncelog.broker.handlers.table import HANDLERS, TELEMETRY_KEYS
from tests.common import facts as kafkas
from tests.common.frames import CLOSED, Connection
from tests.common.real_kafka import RealKafka
from tests.common.recorded.recorder import Recorder

KAFKA_APIS = {"3.9": "3.9.2", "4.0": "4.0.2", "4.1": "4.1.2", "4.2": "4.2.1", "4.3": kafkas.OLDER}
SOFTWARE = {"client_software_name": "frames", "client_software_version": "1.0"}
NOT_SERVED = ("kraft.version", "streams.version")
API_VERSIONS = 18
NONE = (0, -1)
"""The versions of an API that a release does not have."""


class Release:
    """A real broker of a release, which starts when it is asked, and ours that presents itself as one."""

    def __init__(self, version: str, ours: str, brokers: OnDemand[RealKafka]) -> None:
        self.version = version
        self.ours = ours
        self._brokers = brokers

    @property
    def kafka(self) -> str:
        return self._brokers[self.version].bootstrap


@pytest.fixture(scope="module", params=facts.RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[Release]:
    version = request.param
    with (
        OnDemand(lambda name: RealKafka(version=KAFKA_APIS[name])) as real,
        oncelog.Broker(version=version) as broker,
    ):
        yield Release(version, broker.bootstrap_servers, real)


def api_versions(bootstrap: str, version: int = 4) -> Any:
    with Connection(bootstrap) as connection:
        return connection.call("ApiVersions", version, SOFTWARE)


def ranges(bootstrap: str) -> dict[int, tuple[int, int]]:
    rows = api_versions(bootstrap)["api_keys"]
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in rows}


def finalized(bootstrap: str) -> dict[str, int]:
    return {row["name"]: row["max_version_level"] for row in api_versions(bootstrap)["finalized_features"]}


def supported(bootstrap: str, version: int = 4) -> dict[str, tuple[int, int]]:
    rows = api_versions(bootstrap, version)["supported_features"]
    return {row["name"]: (row["min_version"], row["max_version"]) for row in rows}


def test_the_facts_are_kafkas(release: Release, answers: Recorder) -> None:
    column = facts.RELEASES.index(release.version)
    known = {key: rows[column] for key, rows in facts.API_VERSIONS.items() if rows[column] is not None}
    assert answers.value(lambda: ranges(release.kafka)) == known
    level = facts.METADATA_VERSIONS[release.version]
    assert answers.value(lambda: finalized(release.kafka)) == {
        "metadata.version": level,
        **facts.FINALIZED_FEATURES[release.version],
    }
    features = answers.value(lambda: supported(release.kafka))
    assert features.pop("metadata.version")[1] == level
    assert features.pop("kraft.version") == (0, 1)
    assert features == facts.SUPPORTED_FEATURES[release.version]


def test_ours_is_the_part_of_kafkas_that_oncelog_serves(release: Release, answers: Recorder) -> None:
    kafka, ours = answers.value(lambda: ranges(release.kafka)), ranges(release.ours)
    assert ours.keys() == kafka.keys() & HANDLERS.keys()
    for key, (low, high) in kafka.items():
        if (handler := HANDLERS.get(key)) is not None:
            assert ours[key] == (max(low, handler.announced_min), min(high, handler.max_version))
    levels = answers.value(lambda: finalized(release.kafka))
    assert finalized(release.ours) == {
        name: level for name, level in levels.items() if name not in NOT_SERVED
    }
    for version in (3, 4):
        theirs = answers.value(partial(lambda version: supported(release.kafka, version), version))
        announced = supported(release.ours, version)
        assert announced.pop("metadata.version")[1] == theirs.pop("metadata.version")[1]
        assert announced == {name: row for name, row in theirs.items() if name not in NOT_SERVED}


def test_a_version_that_is_not_served_closes_the_connection(release: Release, answers: Recorder) -> None:
    kafka = answers.value(lambda: ranges(release.kafka))
    newer = {
        key: row.max_version
        for key, row in HANDLERS.items()
        if row.max_version > kafka.get(key, NONE)[1]
        and key not in TELEMETRY_KEYS  # Kafka serves them unannounced
        and key != API_VERSIONS  # which is answered, see below
    }
    assert newer

    def asked(bootstrap: str) -> dict[int, bytes | None]:
        return {key: raw_answer(bootstrap, key, version, bytes(64)) for key, version in newer.items()}

    closed = dict.fromkeys(newer)
    assert answers.value(lambda: asked(release.kafka)) == closed
    assert asked(release.ours) == closed


def raw_answer(bootstrap: str, key: int, version: int, body: bytes) -> bytes | None:
    """The bytes of a response, of which nobody may know the version; None if the connection was closed."""
    with Connection(bootstrap) as connection:
        connection.send_frame(connection.header(key, version, flexible=True) + body)
        return connection.receive_frame()


def test_api_versions_of_an_unknown_version(release: Release, answers: Recorder) -> None:
    latest = answers.value(lambda: ranges(release.kafka))[API_VERSIONS][1]

    def asked(bootstrap: str) -> list[bytes | None]:
        return [raw_answer(bootstrap, API_VERSIONS, version, b"\2x\2y\0") for version in (latest + 1, 99)]

    assert answers.value(lambda: asked(release.kafka)) == asked(release.ours)


def test_groups_of_the_consumer_protocol(release: Release, answers: Recorder) -> None:
    """A release without ``group.version`` 1 serves none, though it has the API."""
    heartbeat = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }

    def error(bootstrap: str) -> int:
        with Connection(bootstrap) as connection:
            connection.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
            response = connection.call("ConsumerGroupHeartbeat", 0, heartbeat)
        assert response != CLOSED
        return int(response["error_code"])

    theirs, ours = answers.value(lambda: error(release.kafka)), error(release.ours)
    assert (theirs, ours) == (35, 35) if release.version == "3.9" else ours == 0
