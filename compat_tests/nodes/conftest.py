"""The clusters for the tests of several nodes. A test with the fixture `kafka` runs once for each of CLUSTERS."""

import pathlib
from collections.abc import Iterator

import pytest

from compat_tests.nodes import readers as readers_of
from compat_tests.nodes import writers as writers_of
from compat_tests.nodes.kafka_cluster import KafkaCluster
from compat_tests.nodes.oncelog_cluster import OncelogCluster
from compat_tests.nodes.target import Cluster
from compat_tests.transactions import java_worker
from tests.common.jars import RealPartMissing, compile_java, require

CLUSTERS: dict[str, type[KafkaCluster] | type[OncelogCluster]] = {
    "kafka": KafkaCluster,
    "oncelog": OncelogCluster,
}
PROPERTIES = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    # A group that a test has killed members of goes on soon.
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
RACKS = {1: {"broker.rack": "a"}, 2: {"broker.rack": "b"}, 3: {"broker.rack": "c"}}


@pytest.fixture(scope="package", params=CLUSTERS)
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
def _classes(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Java's programs."""
    try:
        return compile_java(
            [readers_of.JAVA_SOURCE, java_worker.JAVA_SOURCE], tmp_path_factory.mktemp("classes")
        )
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture(scope="session")
def readers(_classes: pathlib.Path) -> dict[str, readers_of.Reader]:
    """The stock consumers."""
    return {**readers_of.CLIENTS, "java": readers_of.java(_classes)}


@pytest.fixture(scope="session")
def writers(_classes: pathlib.Path) -> dict[str, writers_of.Writer]:
    """The stock producers."""
    return {**writers_of.CLIENTS, "java": writers_of.java(_classes)}
