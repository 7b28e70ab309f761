"""Before a cluster: what the proxy says is what the nodes say, but for addresses, in every version of each API."""

from typing import Any

import pytest

from compat_tests.differential import make_topic, produce_request
from compat_tests.nodes.asking import NODES
from compat_tests.nodes.oncelog_cluster import AnyCluster
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from tests.common.batches import batch
from tests.common.definitions import Fields, api_key, versions_of
from tests.common.frames import CLOSED, Connection, address

NOT_LEADER = 6
Address = tuple[str, int]
VOLATILE = (
    *("log_end_offset", "high_watermark", "last_fetch_timestamp", "last_caught_up_timestamp"),
    "controller_id",  # Kafka names any node
    "finalized_features_epoch",
)
BROKER = 4


def call(bootstrap: str, api: str, version: int, values: Fields | None = None) -> Any:
    with Connection(bootstrap) as connection:
        return connection.call(api, version, values)


def addresses(bootstrap: str) -> dict[int, Address]:
    rows = call(bootstrap, "Metadata", 12, {"topics": []})["brokers"]
    return {row["node_id"]: (row["host"], row["port"]) for row in rows}


class Ways:
    """A node by its own address and by the proxy's."""

    def __init__(self, cluster: AnyCluster, proxy: OncelogProxy) -> None:
        self.cluster = cluster
        self.proxy = proxy
        self.direct = addresses(cluster.nodes[1].bootstrap)
        self.proxied = addresses(proxy.bootstrap)
        self._shown = {self.direct[node]: self.proxied[node] for node in self.direct}

    def translated(self, value: Any) -> Any:
        """A node's response with the addresses that the proxy should show."""
        if isinstance(value, list):
            return [self.translated(one) for one in value]
        if not isinstance(value, dict):
            return value
        found = {key: self.translated(one) for key, one in value.items()}
        if "port" in found and (found["host"], found["port"]) in self._shown:
            found["host"], found["port"] = self._shown[found["host"], found["port"]]
        return found

    def compare(self, node: int, api: str, version: int, values: Fields | None = None) -> Any:
        """Assert that the node says the same by both ways; returns what it says through the proxy."""
        host, port = self.proxied[node]
        shown = call(f"{host}:{port}", api, version, values)
        told = call(self.cluster.nodes[node].bootstrap, api, version, values)
        assert steady(shown) == steady(self.translated(told))
        return shown


def steady(value: Any, key: str = "") -> Any:
    """The value without volatile fields, and with the brokers in order, which Kafka shuffles."""
    if isinstance(value, dict):
        return {name: steady(one, name) for name, one in value.items() if name not in VOLATILE}
    if isinstance(value, list):
        rows = [steady(one) for one in value]
        return sorted(rows, key=lambda row: row["port"]) if key == "brokers" else rows
    return value


@pytest.fixture(scope="module")
def ways(cluster: AnyCluster, proxy: OncelogProxy) -> Ways:
    make_topic(proxy.bootstrap, "led", NODES)
    alone = {"name": "alone", "num_partitions": NODES, "replication_factor": 1}
    created = call(proxy.bootstrap, "CreateTopics", 7, {"topics": [alone], "timeout_ms": 15_000})
    assert created["topics"][0]["error_code"] == 0, created
    cluster.wait_until_in_sync()
    return Ways(cluster, proxy)


@pytest.fixture(params=[1, 2, 3])
def node(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_each_node_has_a_port_of_the_proxy(ways: Ways) -> None:
    assert ways.proxied.keys() == ways.direct.keys() == {1, 2, 3}
    assert len(set(ways.proxied.values()) | {address(ways.proxy.bootstrap)}) == NODES + 1
    assert not set(ways.proxied.values()) & set(ways.direct.values())


def test_a_port_is_that_nodes(ways: Ways, node: int) -> None:
    """DescribeConfigs of another broker is refused by the node that gets it."""
    host, port = ways.proxied[node]
    for other in (1, 2, 3):
        resource = {
            "resource_type": BROKER,
            "resource_name": str(other),
            "configuration_keys": ["node.id"],
        }
        (row,) = call(f"{host}:{port}", "DescribeConfigs", 4, {"resources": [resource]})["results"]
        assert (row["error_code"] == 0) == (other == node), row


def test_the_node_that_a_client_means(ways: Ways, node: int) -> None:
    """Each port lets those through who mean its node, and tells the others to bootstrap again (KIP-1242)."""
    own = ways.cluster.metadata([])["cluster_id"]
    software = {"client_software_name": "frames", "client_software_version": "1.0"}
    for cluster_id, expected in ((own, node), ("other", None)):
        served = {
            meant
            for meant in (0, 1, 2, 3)
            if not ways.compare(
                node, "ApiVersions", 5, {**software, "cluster_id": cluster_id, "node_id": meant}
            )["error_code"]
        }
        assert served == ({expected} - {None})


@pytest.mark.parametrize("version", versions_of("Metadata"))
def test_metadata(ways: Ways, node: int, version: int) -> None:
    shown = ways.compare(node, "Metadata", version, {"topics": [{"name": "led"}]})
    assert {(row["host"], row["port"]) for row in shown["brokers"]} == set(ways.proxied.values())


@pytest.mark.parametrize("key_type", [0, 1])
@pytest.mark.parametrize("version", versions_of("FindCoordinator"))
def test_find_coordinator(ways: Ways, node: int, version: int, key_type: int) -> None:
    keys = [f"group-{number}" for number in range(8)]
    if version >= 4:
        values: Fields = {"key_type": key_type, "coordinator_keys": keys}
        wait_for_coordinators(ways, values)
        shown = ways.compare(node, "FindCoordinator", version, values)
        assert all(
            (row["host"], row["port"]) == ways.proxied[row["node_id"]] for row in shown["coordinators"]
        )
    elif version >= 1 or not key_type:
        wait_for_coordinators(ways, {"key_type": key_type, "coordinator_keys": keys[:1]})
        values = {"key": keys[0], "key_type": key_type} if version else {"key": keys[0]}
        shown = ways.compare(node, "FindCoordinator", version, values)
        assert (shown["host"], shown["port"]) == ways.proxied[shown["node_id"]]


def wait_for_coordinators(ways: Ways, values: Fields) -> None:
    """The first request has the internal topic created."""
    for one in ways.cluster.nodes.values():
        while any(
            row["error_code"] for row in call(one.bootstrap, "FindCoordinator", 4, values)["coordinators"]
        ):
            pass


@pytest.mark.parametrize("version", versions_of("DescribeCluster"))
def test_describe_cluster(ways: Ways, node: int, version: int) -> None:
    shown = ways.compare(node, "DescribeCluster", version)
    assert {row["broker_id"]: (row["host"], row["port"]) for row in shown["brokers"]} == ways.proxied


@pytest.mark.parametrize("version", versions_of("DescribeQuorum"))
def test_describe_quorum(ways: Ways, upstream: str, node: int, version: int) -> None:
    """The controller has a listener that clients do not reach, so it is shown without one."""
    row = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    host, port = ways.proxied[node]
    shown = call(f"{host}:{port}", "DescribeQuorum", version, {"topics": [row]})
    told = call(ways.cluster.nodes[node].bootstrap, "DescribeQuorum", version, {"topics": [row]})
    for one in told.get("nodes", ()):
        assert bool(one.pop("listeners")) == (upstream == "kafka")  # oncelog's controller has none
    assert [one.pop("listeners") for one in shown.get("nodes", ())] == [[]] * (version >= 2)
    assert steady(shown) == steady(told)


@pytest.mark.parametrize("version", versions_of("DescribeConfigs"))
def test_advertised_listeners(ways: Ways, node: int, version: int) -> None:
    keys = ["advertised.listeners", "num.io.threads", "broker.id", "node.id"]
    resource = {"resource_type": BROKER, "resource_name": str(node), "configuration_keys": keys}
    values: Fields = {"resources": [resource], **({"include_synonyms": True} if version else {})}
    host, port = ways.proxied[node]
    shown = call(f"{host}:{port}", "DescribeConfigs", version, values)["results"][0]["configs"]
    told = call(ways.cluster.nodes[node].bootstrap, "DescribeConfigs", version, values)["results"][0][
        "configs"
    ]
    assert [row for row in shown if row["name"] != keys[0]] == [row for row in told if row["name"] != keys[0]]
    (row,) = [row for row in shown if row["name"] == keys[0]]
    assert row["value"] == f"PLAINTEXT://{host}:{port}"


def elsewhere(ways: Ways, node: int) -> tuple[int, int, bytes]:
    """A partition of "alone" that is on another node: the partition, that node, and the topic's id."""
    (topic,) = ways.cluster.metadata(["alone"])["topics"]
    row = next(row for row in topic["partitions"] if row["leader_id"] != node)
    return row["partition_index"], row["leader_id"], topic["topic_id"]


def endpoints(response: Any) -> list[Address]:
    return [(row["host"], row["port"]) for row in response["node_endpoints"]]


@pytest.mark.parametrize("version", versions_of("Produce"))
def test_a_produce_to_another_node_than_the_leader(ways: Ways, node: int, version: int) -> None:
    partition, leader, topic_id = elsewhere(ways, node)
    topic = topic_id if version >= 13 else "alone"
    shown = ways.compare(node, "Produce", version, produce_request(topic, batch(1), partition))
    assert shown["responses"][0]["partition_responses"][0]["error_code"] == NOT_LEADER
    if version >= 10:
        assert endpoints(shown) == [ways.proxied[leader]]


@pytest.mark.parametrize("version", versions_of("Fetch"))
def test_a_fetch_from_another_node_than_the_leader(ways: Ways, node: int, version: int) -> None:
    partition, leader, topic_id = elsewhere(ways, node)
    topic: Fields = {"topic_id": topic_id} if version >= 13 else {"topic": "alone"}
    topic["partitions"] = [{"partition": partition, "partition_max_bytes": 1000}]
    values: Fields = {"max_wait_ms": 0, "max_bytes": 1000, "topics": [topic]}
    if version >= 7:
        values["session_epoch"] = -1
    shown = ways.compare(node, "Fetch", version, values)
    assert shown["responses"][0]["partitions"][0]["error_code"] == NOT_LEADER
    if version >= 16:
        assert endpoints(shown) == [ways.proxied[leader]]


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, version) for api in ("ShareFetch", "ShareAcknowledge") for version in versions_of(api)],
)
def test_a_share_session_with_another_node_than_the_leader(
    ways: Ways, node: int, api: str, version: int
) -> None:
    partition, leader, topic_id = elsewhere(ways, node)
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_records": 10, "batch_size": 10}
    acknowledged = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    steps: list[tuple[str, Fields, Fields]] = [("ShareFetch", limits, {})]
    if api == "ShareAcknowledge":
        steps.append((api, {}, {"acknowledgement_batches": [acknowledged]}))
    responses: list[list[Any]] = []
    for host, port in (ways.proxied[node], ways.direct[node]):
        with Connection(f"{host}:{port}") as connection:
            responses.append([])
            for epoch, (step, fields, row) in enumerate(steps):
                values = {"group_id": f"share-{node}", "member_id": "m" * 22, "share_session_epoch": epoch}
                topics = [{"topic_id": topic_id, "partitions": [{"partition_index": partition, **row}]}]
                responses[-1].append(connection.call(step, version, {**values, **fields, "topics": topics}))
    shown, told = responses
    if api_key(api) not in {
        row["api_key"] for row in call(ways.proxy.bootstrap, "ApiVersions", 0)["api_keys"]
    }:
        assert {*shown} == {CLOSED}  # it cannot pass unread: there are addresses in it
        return
    # Whether the partition is still in the session, when its acknowledgements come, is a matter of time.
    assert shown[0] == ways.translated(told)[0]
    assert shown[-1].keys() == told[-1].keys()
    assert {*endpoints(shown[-1])} <= {ways.proxied[leader]}
    errors = {row["error_code"] for row in shown[0]["responses"][0]["partitions"]}
    assert errors == {NOT_LEADER}
    assert endpoints(shown[0]) == [ways.proxied[leader]]
