"""The clusters for the tests of several nodes. A test with the fixture `kafka` runs once for each of CLUSTERS."""

from collections.abc import Iterator

import pytest

from compat_tests.nodes.kafka_cluster import KafkaCluster
from compat_tests.nodes.readers import CLIENTS, JAVA_SOURCE, Client, java
from compat_tests.nodes.target import Cluster
from compat_tests.real_kafka import RealPartMissing, compile_java, require

CLUSTERS = {"kafka": KafkaCluster}
PROPERTIES = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
RACKS = {1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}, 3: {"broker.rack": "c"}}


@pytest.fixture(scope="session", params=CLUSTERS)
def _cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    try:
        with CLUSTERS[request.param](PROPERTIES, RACKS) as cluster:
            yield cluster
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture
def kafka(_cluster: Cluster) -> Cluster:
    """Three brokers, all in sync, with no topics but internal ones."""
    _cluster.mend()
    return _cluster


@pytest.fixture(scope="session")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Client]:
    """The stock consumers."""
    try:
        classes = compile_java([JAVA_SOURCE], tmp_path_factory.mktemp("classes"))
    except RealPartMissing as missing:
        require(str(missing))
    return {**CLIENTS, "java": java(classes)}
