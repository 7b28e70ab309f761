"""Several nodes under control, at the level of requests, with messages between them as objects and as bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

import oncelog
from oncelog.broker.client.routes import BrokerWithId
from oncelog.broker.control.acl_options import Acl
from oncelog.broker.control.errors import BrokerFailedError, InvalidArgumentError, NotRunningError
from oncelog.broker.control.nodes.controlled_cluster import ControlledCluster
from oncelog.broker.control.nodes.options import cluster_options
from oncelog.broker.control.options import checked_options
from oncelog.broker.control.types import PartitionState
from oncelog.broker.metadata.feed import OBSERVER_SESSION_MS
from oncelog.broker.network.network import CONTROLLER_ID, Client, Delivery
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.wire.schema import ZERO_UUID
from oncelog.wire.topic_names import CLUSTER_METADATA_TOPIC

ONE_REPLICA = {"default.replication.factor": 1, "min.insync.replicas": 1}
TOPIC, BROKER = 2, 4


def run(
    scenario: Callable[[ControlledCluster], Awaitable[None]], *, encodes: bool = False, **options: Any
) -> None:
    async def main() -> None:
        given = checked_options(**{"config": ONE_REPLICA, **options})
        cluster = ControlledCluster(replace(cluster_options(3, given), encodes=encodes))
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.run)
            await cluster.start()
            with trio.fail_after(30):
                await scenario(cluster)
            await cluster.stop()
            nursery.cancel_scope.cancel()

    trio.run(main)


async def state(cluster: ControlledCluster, topic: str, partition: int) -> PartitionState:
    found: list[PartitionState] = await cluster.call("partitions", {"topic": topic})
    return found[partition]


async def as_client(cluster: ControlledCluster, node: int, request: Any, version: int, principal: str) -> Any:
    """Send a request of a client to a node, past its listener."""
    client = Client(principal, "127.0.0.1:1", "test", "PLAINTEXT", "PLAINTEXT")
    services = cluster.of(node).node.services
    if services.forward is None or not services.handlers[request.API_KEY].is_forwarded:
        return await cluster.of(node).node.membership.receive(Delivery(node, request, version, client))
    return await services.forward.call(request, version, client)  # type: ignore[attr-defined]


@pytest.mark.parametrize("encodes", [False, True])
def test_each_node_tells_of_all_and_of_every_topic(encodes: bool) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.call("create_topic", {"name": "t", "partitions": 6, "config": None})
        told = [await cluster.client.call(MetadataRequest(None), BrokerWithId(node)) for node in (1, 2, 3)]
        addresses = {
            ",".join(f"{row.node_id}@{row.host}:{row.port}" for row in response.brokers) for response in told
        }
        assert addresses == {",".join(f"{node}@{address}" for node, address in cluster.addresses().items())}
        leaders = [[row.leader_id for row in response.topics[0].partitions] for response in told]
        assert leaders[0] == leaders[1] == leaders[2]
        assert sorted(leaders[0]) == [1, 1, 2, 2, 3, 3]

    run(scenario, encodes=encodes)


def test_a_node_serves_only_what_it_leads() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        topic = CreatableTopic("t", 3, 1)
        await cluster.client.call(CreateTopicsRequest([topic]))
        await cluster.wait_followed()
        written = [
            await cluster.call("produce", {"topic": "t", "records": [{"value": b"v", "partition": index}]})
            for index in range(3)
        ]
        assert [rows[0].partition for rows in written] == [0, 1, 2]
        for index in range(3):
            partition = await state(cluster, "t", index)
            for node_id in (1, 2, 3):
                logs = cluster.of(node_id).node.logs.logs
                assert (("t", index) in logs) == (node_id == partition.leader)

    run(scenario)


def test_a_killed_node_leads_again_in_a_later_epoch() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.call("create_topic", {"name": "t", "partitions": 3, "config": None})
        before = await state(cluster, "t", 0)
        assert before.leader is not None
        leader = before.leader
        await cluster.call("kill_node", {"node": leader})
        assert (await state(cluster, "t", 0)).leader == leader  # its session lasts
        await cluster.call("expire_node", {"node": leader})
        dead = await state(cluster, "t", 0)
        assert (dead.leader, dead.leader_epoch, dead.elr) == (None, before.leader_epoch + 1, (leader,))
        await cluster.call("start_node", {"node": leader})
        again = await cluster.call("wait_for_partition", {"topic": "t", "partition": 0, "leader": leader})
        assert again.leader_epoch > dead.leader_epoch

    run(scenario)


def test_a_session_ends_by_itself() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.call("kill_node", {"node": 2})
        image = cluster.runs.current.store.image
        while not image.brokers[2].fenced:
            await cluster.runs.current.store.changed.wait()

    run(
        scenario, config={**ONE_REPLICA, "broker.session.timeout.ms": 300, "broker.heartbeat.interval.ms": 50}
    )


def test_a_node_without_its_controller_has_stale_metadata_and_no_session() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.call("cut", {"source": 1, "target": CONTROLLER_ID})
        image = cluster.runs.current.store.image
        await cluster.call("expire_node", {"node": 1})
        await cluster.call("create_topic", {"name": "later", "partitions": 1, "config": None})
        assert image.brokers[1].fenced
        request = MetadataRequest([MetadataRequestTopic(name="later")], allow_auto_topic_creation=False)
        stale = await cluster.client.call(request, BrokerWithId(1))
        assert stale.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [row.node_id for row in stale.brokers] == [1, 2, 3]
        current = await cluster.client.call(request, BrokerWithId(2))
        assert (current.topics[0].error_code, [row.node_id for row in current.brokers]) == (0, [2, 3])
        await cluster.call("heal", {})
        while image.brokers[1].fenced:
            await cluster.runs.current.store.changed.wait()
        await cluster.wait_followed()
        healed = await cluster.client.call(request, BrokerWithId(1))
        assert (healed.topics[0].error_code, len(healed.brokers)) == (0, 3)

    run(scenario)


def test_what_changes_metadata_times_out_without_the_controller() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.call("cut", {"source": 1, "target": CONTROLLER_ID, "one_way": True})
        request = CreateTopicsRequest([CreatableTopic("t", 1, 1)])
        forward: Any = cluster.of(1).node.services.forward
        with pytest.raises(Exception, match="REQUEST_TIMED_OUT"):
            await forward.call(request, 7)
        assert "t" not in cluster.runs.current.store.image.topics

    run(scenario, config={**ONE_REPLICA, "request.timeout.ms": 100})


@pytest.mark.parametrize("encodes", [False, True])
def test_the_controller_asks_what_the_client_may_do(encodes: bool) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        request = CreateTopicsRequest([CreatableTopic("t", 1, 1)])
        denied = await as_client(cluster, 2, request, 7, "User:other")
        assert denied.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        allowed = await as_client(cluster, 2, request, 7, "User:app")
        assert allowed.topics[0].error_code == 0

    run(scenario, acls=[Acl("User:app", "Create", topic="t")], encodes=encodes)


def test_a_changed_configuration_holds_on_every_node() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.call("create_topic", {"name": "t", "partitions": 1, "config": None})
        change = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(TOPIC, "t", [AlterableConfig("retention.ms", 0, "5000")])]
        )
        assert not (await cluster.client.call(change)).responses[0].error_code
        await cluster.wait_followed()
        for node in (1, 2, 3):
            asked = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", ["retention.ms"])])
            response = await cluster.client.call(asked, BrokerWithId(node))
            assert [row.value for row in response.results[0].configs] == ["5000"]

    run(scenario)


def test_a_nodes_own_configuration_is_that_nodes() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        change = IncrementalAlterConfigsRequest(
            [AlterConfigsResource(BROKER, "2", [AlterableConfig("log.retention.ms", 0, "5000")])]
        )
        assert (await cluster.client.call(change)).responses[0].error_code == 0
        await cluster.wait_followed()
        ages = {node: cluster.of(node).node.config.current.log_retention_ms for node in (1, 2, 3)}
        assert ages[2] == 5000
        assert ages[1] == ages[3] != 5000

    run(scenario)


def test_the_quorum_is_the_controller_and_the_nodes_observe() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        request = DescribeQuorumRequest([TopicData(CLUSTER_METADATA_TOPIC, [PartitionData(0)])])
        [partition] = (await cluster.client.call(request)).topics[0].partitions
        assert (partition.leader_id, [one.replica_id for one in partition.current_voters]) == (3000, [3000])
        assert [one.replica_id for one in partition.observers] == [1, 2, 3]
        assert len({one.replica_directory_id for one in partition.observers} - {ZERO_UUID}) == 3
        await cluster.call("stop_node", {"node": 2})
        for seconds, observers in ((OBSERVER_SESSION_MS / 1000 - 60, [1, 2, 3]), (120, [1, 3])):
            await cluster.call("clock_advance", {"seconds": seconds})
            [partition] = (await cluster.client.call(request)).topics[0].partitions
            assert [one.replica_id for one in partition.observers] == observers

    run(scenario)


def test_no_producer_id_is_given_out_twice() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        found = set()
        for node in (1, 2, 3):
            while True:
                request = InitProducerIdRequest(None, 60_000)
                response = await cluster.client.call(request, BrokerWithId(node))
                if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    break
                await trio.lowlevel.checkpoint()
            assert not response.error_code
            found.add(response.producer_id)
        assert len(found) == 3

    run(scenario)


def test_the_data_outlives_the_cluster(tmp_path: Any) -> None:
    identity: list[str] = []

    async def write(cluster: ControlledCluster) -> None:
        identity.append(cluster.cluster_id)
        for index in range(3):
            await cluster.call(
                "produce", {"topic": "t", "records": [{"value": b"v%d" % index, "partition": index}]}
            )

    async def read(cluster: ControlledCluster) -> None:
        identity.append(cluster.cluster_id)
        for index in range(3):
            await cluster.call("wait_for_partition", {"topic": "t", "partition": index})
        records = await cluster.call("records", {"topic": "t"})
        assert sorted(record.value for record in records) == [b"v0", b"v1", b"v2"]

    for scenario in (write, read):
        run(scenario, data_dir=str(tmp_path / "data"), topics={"t": 3})
    assert identity[0] == identity[1]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["1", "2", "3", "controller"]
    with pytest.raises(InvalidArgumentError, match="has the data of 3 nodes, not of 2"):
        cluster_options(2, checked_options(data_dir=str(tmp_path / "data")))


@pytest.mark.parametrize(
    ("nodes", "options", "reason"),
    [
        (0, {}, "expected 1 to 100"),
        (True, {}, "expected a number, or configurations by id"),
        (2.0, {}, "expected a number, or configurations by id"),
        ([1, 2], {}, "expected a number, or configurations by id"),
        ({1: None, 2: None}, {}, r"nodes\[1\]=None: expected a mapping of Kafka's keys"),
        ({1: {"log.dirs": "/x"}}, {}, r"nodes\[1\] log.dirs: several nodes have .* leave it out"),
        ({1: {}, 3: {}}, {}, "expected the ids 1 to 2"),
        (3, {"config": {"node.id": 4}}, "several nodes have the ids"),
        (3, {"port": 65535}, "65536 is no port"),
        ({1: {"num.partitions": "x"}}, {}, "num.partitions"),
    ],
)
def test_options_that_make_no_sense(nodes: Any, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        cluster_options(nodes, checked_options(**options))


def test_unknown_nodes_and_links() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        with pytest.raises(InvalidArgumentError, match="node 4: there are 1, 2, 3"):
            await cluster.call("kill_node", {"node": 4})
        with pytest.raises(InvalidArgumentError, match="node 1 has no link to itself"):
            await cluster.call("cut", {"source": 1, "target": 1})
        with pytest.raises(InvalidArgumentError, match="expected 0 or more"):
            await cluster.call("delay", {"source": 1, "target": 2, "ms": -1})

    run(scenario)


def test_a_cluster_that_was_not_started() -> None:
    async def main() -> None:
        cluster = ControlledCluster(cluster_options(3, checked_options()))
        async with trio.open_nursery() as nursery:
            await nursery.start(cluster.run)
            with pytest.raises(NotRunningError):
                await cluster.call("kill_node", {"node": 1})
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_directory_that_is_in_use(tmp_path: Any) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        other = ControlledCluster(cluster.options)
        async with trio.open_nursery() as nursery:
            await nursery.start(other.run)
            with pytest.raises(BrokerFailedError, match="in use by another process"):
                await other.start()
            nursery.cancel_scope.cancel()

    run(scenario, data_dir=str(tmp_path / "data"))


def test_advertised_ports_follow_each_other_as_listeners_do() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        assert [*cluster.addresses().values()] == ["here:9092", "here:9093", "here:9094"]

    run(scenario, config={**ONE_REPLICA, "advertised.listeners": "PLAINTEXT://here:9092"})


def test_a_node_that_does_not_reach_the_controller_does_not_start() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.call("cut", {"source": 1, "target": "controller"})
        await cluster.call("kill_node", {"node": 1})
        with pytest.raises(BrokerFailedError, match="node 1 was not registered in 0"):
            await cluster.call("start_node", {"node": 1})
        await cluster.call("heal", {})
        await cluster.call("start_node", {"node": 1})

    run(scenario, config={**ONE_REPLICA, "initial.broker.registration.timeout.ms": 500})


def test_what_a_single_node_is_told_of_the_data_of_several(tmp_path: Any) -> None:
    data_dir = str(tmp_path / "data")

    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.call("create_topic", {"name": "t", "partitions": 3, "config": None})
        for partition in range(3):
            await cluster.call(
                "produce", {"topic": "t", "records": [{"value": b"v", "partition": partition}]}
            )

    run(scenario, data_dir=data_dir)
    for folder, reason in (
        ("", "has the data of 3 nodes: start it with --nodes 3"),
        ("/1", "one of several"),
    ):
        with pytest.raises(oncelog.BrokerFailedError, match=reason):
            oncelog.Broker(data_dir=data_dir + folder).start()
    kept: list[Any] = []

    async def again(cluster: ControlledCluster) -> None:
        kept.extend(await cluster.call("records", {"topic": "t"}))

    run(again, data_dir=data_dir)
    assert len(kept) == 3
