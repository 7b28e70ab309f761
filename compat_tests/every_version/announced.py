"""What a broker announces, and what of it oncelog does not."""

from compat_tests.differential import Pair
from compat_tests.proxied import OF_PAIR
from tests.common.definitions import api_key, versions_of
from tests.common.frames import Connection

SOFTWARE = {"client_software_name": "frames", "client_software_version": "1.0"}

NOT_ANNOUNCED = {"StreamsGroupHeartbeat", "StreamsGroupDescribe", "StreamsGroupTopologyDescriptionUpdate"}
"""What Kafka announces and oncelog does not (docs/reference/differences.md)."""


def ranges(bootstrap: str, version: int = max(versions_of("ApiVersions"))) -> dict[int, tuple[int, int]]:
    """The lowest and the highest version of each API that the broker announces to an ApiVersions of this version."""
    with Connection(bootstrap) as connection:
        rows = connection.call("ApiVersions", version, SOFTWARE if version >= 3 else {})["api_keys"]
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in rows}


def announce_as_kafka(pair: Pair, version: int) -> None:
    """Assert that our targets announce what Kafka does, except the APIs in NOT_ANNOUNCED."""
    expected = pair.answers.value(lambda: ranges(pair.bootstrap("kafka"), version))
    for target in pair.ours:
        missing = () if target == OF_PAIR else tuple(map(api_key, NOT_ANNOUNCED))
        assert ranges(pair.bootstrap(target), version) == {
            key: found for key, found in expected.items() if key not in missing
        }
