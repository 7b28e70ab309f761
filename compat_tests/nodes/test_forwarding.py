"""What brokers forward to the controller: for whose quota it counts, and which broker's configuration it may change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from compat_tests.nodes.target import Cluster
from compat_tests.nodes.topic import call
from compat_tests.nodes.waiting import wait_until
from tests.common.frames import Connection

INVALID_REQUEST = 42
THROTTLING_QUOTA_EXCEEDED = 89
BROKER = 4
SET, DELETE = 0, 1
RATE = 1.0
"""Partitions that a client may create or delete in a second; of the eleven seconds that count, it has all at first."""
TIMEOUT_MS = 15_000


def create(connection: Connection, name: str, partitions: int) -> Any:
    """Create a topic as the connection's client; return the whole response."""
    row = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    return connection.call("CreateTopics", 7, {"topics": [row], "timeout_ms": TIMEOUT_MS})


@contextmanager
def quota(kafka: Cluster, client_id: str) -> Iterator[None]:
    """A quota for a client's changes of topics, which each broker knows."""
    entity = [{"entity_type": "client-id", "entity_name": client_id}]

    def alter(*, remove: bool) -> None:
        ops = [{"key": "controller_mutation_rate", "value": RATE, "remove": remove}]
        change = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
        [row] = call(kafka, 1, "AlterClientQuotas", 1, change)["entries"]
        assert row["error_code"] == 0, row

    def is_known() -> bool:
        components = [{"entity_type": "client-id", "match_type": 0, "match": client_id}]
        asked = {"components": components, "strict": True}
        return all(call(kafka, node, "DescribeClientQuotas", 1, asked)["entries"] for node in kafka.nodes)

    alter(remove=False)
    try:
        wait_until(is_known, bool, "the quota")
        yield
    finally:
        alter(remove=True)


def test_changes_of_topics_count_for_the_clients_quota_whichever_broker_gets_them(
    kafka: Cluster, name: str
) -> None:
    with quota(kafka, name):
        with Connection(kafka.nodes[2].bootstrap, client_id=name) as connection:
            first = create(connection, f"{name}-1", 20)
            assert (first["topics"][0]["error_code"], first["throttle_time_ms"]) == (0, 0)
        for node in (2, 3):
            with Connection(kafka.nodes[node].bootstrap, client_id=name) as connection:
                refused = create(connection, f"{name}-2", 1)
            assert refused["topics"][0]["error_code"] == THROTTLING_QUOTA_EXCEEDED
            assert 0 < refused["throttle_time_ms"] <= 9_000
        with Connection(kafka.nodes[2].bootstrap, client_id="another") as connection:
            assert create(connection, f"{name}-3", 20)["topics"][0]["error_code"] == 0


@pytest.mark.parametrize("api", ["IncrementalAlterConfigs", "AlterConfigs"])
def test_a_broker_refuses_to_change_the_configuration_of_another(kafka: Cluster, api: str) -> None:
    def alter(node: int, broker: str, operation: int) -> tuple[int, str | None]:
        config = {"name": "message.max.bytes", "value": "1048588", "config_operation": operation}
        if api == "AlterConfigs":
            del config["config_operation"]
        resource = {"resource_type": BROKER, "resource_name": broker, "configs": [config]}
        if api == "AlterConfigs" and operation == DELETE:
            resource["configs"] = []
        [row] = call(kafka, node, api, 1, {"resources": [resource], "validate_only": False})["responses"]
        return row["error_code"], row["error_message"]

    assert alter(2, "1", SET) == (INVALID_REQUEST, "Unexpected broker id, expected 2, but received 1")
    assert alter(1, "1", SET)[0] == 0
    assert alter(2, "1", DELETE)[0] == INVALID_REQUEST
    assert alter(1, "1", DELETE)[0] == 0
    assert alter(2, "9", SET) == (INVALID_REQUEST, "Unexpected broker id, expected 2, but received 9")
