"""What a broker announces, and what of it oncelog does not."""

from tests.common.definitions import api_key, versions_of
from tests.common.frames import Connection

SOFTWARE = {"client_software_name": "frames", "client_software_version": "1.0"}

NOT_ANNOUNCED = {"StreamsGroupHeartbeat", "StreamsGroupDescribe", "StreamsGroupTopologyDescriptionUpdate"}
"""What Kafka announces and oncelog does not (docs/differences.md)."""


def ranges(bootstrap: str, version: int = max(versions_of("ApiVersions"))) -> dict[int, tuple[int, int]]:
    """The lowest and the highest version of each API that the broker announces to an ApiVersions of this version."""
    with Connection(bootstrap) as connection:
        rows = connection.call("ApiVersions", version, SOFTWARE if version >= 3 else {})["api_keys"]
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in rows}


def announces_as_kafka(kafka: str, ours: str, version: int, missing: set[str]) -> None:
    """Assert that `ours` announces what `kafka` does, but for the `missing` APIs, which it does not."""
    expected = ranges(kafka, version)
    for api in missing:
        del expected[api_key(api)]
    assert ranges(ours, version) == expected
