"""ApiVersions on both targets, and requests whose API or version is not supported."""

import struct

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.every_version.announced import SOFTWARE, announce_as_kafka, ranges
from oncelog.broker.dispatch.apis_page import KAFKA_APIS
from tests.common import facts
from tests.common.definitions import api_key, api_names, definition, versions_of
from tests.common.frames import Connection

pytestmark = pytest.mark.also_on("proxy")


@pytest.mark.parametrize("version", versions_of("ApiVersions"))
def test_every_range_is_kafkas(pair: Pair, version: int) -> None:
    announce_as_kafka(pair, version)


@pytest.mark.parametrize("version", versions_of("ApiVersions"))
def test_versions(pair: Pair, version: int) -> None:
    def scenario(session: Session) -> None:
        response = session.call_unobserved("ApiVersions", version, SOFTWARE)
        assert response.pop("error_code") == 0
        # The fields of each version are compared, but not their values: the targets' feature levels differ.
        session.observe("fields", sorted(response))
        session.observe(
            "keys in order",
            [row["api_key"] for row in response["api_keys"]] == sorted(ranges(session.bootstrap)),
        )
        if version >= 3:
            session.observe(
                "a feature that starts at 0",
                any(row["min_version"] == 0 for row in response["supported_features"]),
            )
            assert response["finalized_features_epoch"] >= 0
            levels = {
                row["name"]: (row["min_version_level"], row["max_version_level"])
                for row in response["finalized_features"]
            }
            for feature in ("metadata.version", "group.version", "transaction.version"):
                session.observe(feature, levels[feature])
                supported = [row for row in response["supported_features"] if row["name"] == feature]
                if feature != "metadata.version":  # oncelog supports fewer levels of it
                    session.observe(f"{feature}, supported", supported)

    pair.compare(scenario)


def test_an_unknown_version_gets_a_response_of_version_0(pair: Pair) -> None:
    """KIP-511: a response of version 0 with error 35, and with the supported versions of ApiVersions."""

    def scenario(session: Session) -> None:
        latest = versions_of("ApiVersions")[-1]
        for version in (latest + 1, 99, 32767):
            connection = session.connection
            connection.send_frame(connection.header(18, version, flexible=True) + b"\2x\2y\0")
            frame = connection.receive_frame()
            assert frame is not None
            session.observe(f"bytes of v{version}", frame[4:].hex())
            assert frame[4:] == struct.pack(">hihhh", 35, 1, 18, 0, latest)
        session.call("ApiVersions", 0, note="on the same connection")

    pair.compare(scenario, known=("api_keys",))


@pytest.mark.parametrize(
    ("software", "version", "error"),
    [
        ("", "1", 42),
        ("a", "", 42),
        ("-a", "1", 42),
        ("a-", "1", 42),
        ("a b", "1", 42),
        ("a_b", "1", 42),
        ("a.b-c", "1.0-SNAPSHOT", 0),
        ("ä", "1", 42),
    ],
)
def test_client_software_names(pair: Pair, software: str, version: str, error: int) -> None:
    values = {"client_software_name": software, "client_software_version": version}

    def scenario(session: Session) -> None:
        for api_version in (3, 4, 5):
            response = session.call_unobserved("ApiVersions", api_version, values)
            assert response["error_code"] == error
            session.observe("keys", bool(response["api_keys"]))
            session.observe("features", bool(response["finalized_features"]))

    pair.compare(scenario)


OWN, OTHER = "own", "other"
NODE, NO_NODE = 1, -1


@pytest.mark.parametrize(
    ("cluster", "node", "error"),
    [
        (None, NO_NODE, 0),
        (OWN, NODE, 0),
        (OWN, NO_NODE, 42),
        (None, NODE, 42),
        (None, 0, 42),
        (None, -2, 42),
        (OWN, 2, 129),
        (OWN, 0, 129),
        (OWN, -2, 129),
        (OWN, 2**31 - 1 - NODE, 129),
        (OTHER, NODE, 129),
        (OTHER, NO_NODE, 42),
        ("", NODE, 129),
        ("", NO_NODE, 42),
    ],
)
def test_the_cluster_and_the_node_that_a_client_means(
    pair: Pair, cluster: str | None, node: int, error: int
) -> None:
    """KIP-1242."""

    def scenario(session: Session) -> None:
        own = session.call_unobserved("DescribeCluster", 2)["cluster_id"]
        values = {"cluster_id": own if cluster == OWN else cluster, "node_id": node}
        for software in (SOFTWARE, {"client_software_name": "", "client_software_version": "1"}):
            response = session.call_unobserved("ApiVersions", 5, {**software, **values})
            expected = error if software is SOFTWARE else 42
            assert response.pop("error_code") == expected
            session.observe("apis", bool(response.pop("api_keys")))
            session.observe("features", bool(response.pop("finalized_features")))
            session.observe("supported", bool(response.pop("supported_features")))
            if expected:
                session.observe("the rest", response)
        session.call("Metadata", 12, {"topics": []}, note="on the same connection")

    pair.compare(scenario)


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (0, 2),
        (0, 14),
        (1, 3),
        (1, 19),
        (3, 14),
        (3, -1),
        (4, 0),
        (22, 6),
        (52, 0),
        (93, 0),
        (-1, 0),
        (32767, 0),
        (2, 0),
    ],
)
def test_unknown_keys_and_versions_close_the_connection(pair: Pair, key: int, version: int) -> None:
    def scenario(session: Session) -> None:
        connection = session.connection
        connection.send_frame(connection.header(key, version, flexible=True) + bytes(64))
        session.observe("response", connection.receive_frame())

    pair.compare(scenario)


def test_apis_that_are_not_advertised_close_the_connection(pair: Pair) -> None:
    ours = ranges(pair.bootstrap("oncelog"))
    missing = [
        api
        for api in ("JoinGroup", "OffsetCommit", "AddPartitionsToTxn", "ListGroups")
        if api_key(api) not in ours
    ]
    for api in missing:
        with Connection(pair.bootstrap("oncelog")) as connection:
            connection.send_frame(
                connection.header(api_key(api), max(versions_of(api)), flexible=True) + bytes(64)
            )
            assert connection.receive_frame() is None


# An empty request creates or shows something that belongs to the target (and an empty Produce, with acks=0, has no
# response).
NOT_COMPARED = {
    "Produce",
    "DescribeTopicPartitions",
    "FindCoordinator",
    "ApiVersions",
    "Metadata",
    "DescribeConfigs",
    "DescribeLogDirs",
    "InitProducerId",
    "ListConfigResources",
    "ListGroups",
    "ListTransactions",
}

NO_RESPONSE = {("AddPartitionsToTxn", 4), ("AddPartitionsToTxn", 5)}
"""Kafka responds when the last transaction of the request is done: to a request without one it never responds."""


def test_an_empty_request_of_every_version_of_every_api(pair: Pair) -> None:
    """Every field has Kafka's default. Equal responses show that every version is encoded as Kafka encodes it."""
    served = ranges(pair.bootstrap("oncelog"))
    names = {api_key(name): name for name in api_names()}

    def scenario(session: Session) -> None:
        session.wait_for_coordinator("")
        for key, (low, high) in sorted(served.items()):
            if names[key] not in NOT_COMPARED:
                for version in range(max(low, versions_of(names[key]).start), high + 1):
                    if (names[key], version) not in NO_RESPONSE:
                        session.call(names[key], version)

    # The proxy closes the connection there: tokens without headers would follow, which it does not pass.
    pair.compare(scenario, known=("^SaslHandshake v0: .*'closed'$",))


@facts.needs(facts.IS_4_4, "such versions")
def test_the_page_has_kafkas_list() -> None:
    """docs/reference/apis.md shows ours beside it."""
    served = [api for api in api_names() if "broker" in definition(f"{api}Request").get("listeners", ())]
    expected = {api_key(api): (api, versions_of(api).start, versions_of(api).stop - 1) for api in served}
    assert expected == KAFKA_APIS


@pytest.mark.skipif(versions_of("ApiVersions")[-1] < 5, reason="KIP-1242 is in Kafka from 4.4 on")
@pytest.mark.parametrize("cluster", [None, "", "here", "elsewhere"])
def test_the_node_that_the_client_means(pair: Pair, cluster: str | None) -> None:
    """KIP-1242: a cluster and a node, or neither."""

    def scenario(session: Session) -> None:
        told = session.call_unobserved("DescribeCluster", 1)
        [node] = told["brokers"]
        cluster_id = told["cluster_id"] if cluster == "here" else cluster
        for node_id in (-1, -2, 0, node["broker_id"], node["broker_id"] + 1, 2**31 - 1, -(2**31)):
            asked = {**SOFTWARE, "cluster_id": cluster_id, "node_id": node_id}
            response = session.call_unobserved("ApiVersions", 5, asked)
            session.observe(f"node {node_id}", [response["error_code"], len(response["api_keys"]) > 1])
        for wrong in ({"client_software_name": ""}, {"client_software_version": "a b"}):
            response = session.call_unobserved("ApiVersions", 5, {**SOFTWARE, "node_id": 1, **wrong})
            session.observe(f"{wrong}", [response["error_code"], response["api_keys"]])

    pair.compare(scenario)
