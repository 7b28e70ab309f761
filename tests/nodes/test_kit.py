"""What a test sees of several nodes, and does to them, by `oncelog.Broker(nodes=3)` and confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import oncelog
from tests.common.frames import Connection

PATIENCE_S = 60


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(nodes=3, topics={"t": 3}) as broker:
        yield broker


def new_producer(kafka: oncelog.Broker, **settings: object) -> Producer:
    return Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "client.id": "app", "log_level": 0, **settings}
    )


def write(kafka: oncelog.Broker, *partitions: int, **settings: object) -> list[Any]:
    """Write a record to each of the partitions; return the errors, None for what was acknowledged."""
    producer, outcomes = new_producer(kafka, **settings), []
    for partition in partitions:
        value = b"to %d" % partition
        producer.produce(
            "t", value, partition=partition, on_delivery=lambda error, message: outcomes.append(error)
        )
    assert producer.flush(PATIENCE_S) == 0
    return outcomes


def reassign(kafka: oncelog.Broker, topic: str, replicas: dict[int, list[int]]) -> None:
    """Give partitions other replicas, by number."""
    partitions = [{"partition_index": number, "replicas": found} for number, found in replicas.items()]
    with Connection(kafka.bootstrap_servers.split(",")[0]) as connection:
        asked = {"timeout_ms": 30_000, "topics": [{"name": topic, "partitions": partitions}]}
        assert connection.call("AlterPartitionReassignments", 0, asked)["error_code"] == 0


def leader_of(kafka: oncelog.Broker, partition: int) -> int:
    leader = kafka.topic("t").partitions[partition].leader
    assert leader is not None
    return leader


# -- what one node has


def test_metrics_of_clients_come_to_any_node() -> None:
    with oncelog.Broker(nodes=3, topics=["t"], config={"oncelog.client.metrics.enable": True}) as kafka:
        with pytest.raises(oncelog.WaitTimeoutError, match="there is no subscription"):
            kafka.wait_for_client_metrics(timeout=0)
        with pytest.raises(oncelog.InvalidArgumentError, match=r"subscription all: Invalid value 99"):
            kafka.configure_client_metrics("all", {"interval.ms": 99})
        kafka.configure_client_metrics("all", {"metrics": "org.apache.kafka.producer.", "interval.ms": 100})
        producers = []
        for node_id, node in kafka.nodes.items():  # each client pushes to a node that it knows
            settings = {"bootstrap.servers": node.info.address, "client.id": f"app-{node_id}"}
            producers.append(Producer(settings))
            producers[-1].produce("t", b"value")
            assert producers[-1].flush(PATIENCE_S) == 0
        for node_id in kafka.nodes:
            kafka.wait_for_client_metrics(client_id=f"app-{node_id}", timeout=PATIENCE_S)
        pushes = kafka.client_metrics()
        numbers = [push.number for push in pushes]
        assert numbers == sorted({*numbers})
        assert kafka.wait_for_client_metrics(after=pushes[-1], timeout=PATIENCE_S).number > numbers[-1]


def test_the_journal_names_the_node(kafka: oncelog.Broker) -> None:
    assert write(kafka, 0, 1, 2) == [None, None, None]
    requests = kafka.requests("Produce", topic="t")
    leaders = [leader_of(kafka, request.records[0].partition) for request in requests]
    assert [request.node for request in requests] == leaders
    assert sorted(leaders) == [1, 2, 3]
    assert [request.number for request in requests] == sorted(request.number for request in requests)
    assert f"node={leaders[0]}" in repr(requests[0])
    for node_id, node in kafka.nodes.items():
        assert node.requests("Produce") == [one for one in requests if one.node == node_id]
    latest = kafka.wait_for("Produce", times=3)
    assert latest == requests[-1]


def test_log_lines_name_the_node(kafka: oncelog.Broker) -> None:
    for node_id, node in kafka.nodes.items():
        lines = node.log_lines()
        assert lines
        assert all(f" node={node_id}" in line for line in lines)
        assert set(lines) < set(kafka.log_lines)
    [fenced] = [line for line in kafka.log_lines if "registered a broker" in line and "broker=2" in line]
    assert "node=3000" in fenced


def test_a_replica_has_what_no_consumer_sees(kafka: oncelog.Broker) -> None:
    assert write(kafka, 0) == [None]
    leader = leader_of(kafka, 0)
    followers = {1, 2, 3} - {leader}
    for follower in followers:
        kafka.network.cut(leader, follower)
    assert write(kafka, 0, acks=1) == [None]
    assert len(kafka.nodes[leader].topic("t").records()) == 2
    assert [len(kafka.nodes[one].topic("t").records(partition=0)) for one in followers] == [1, 1]
    assert len(kafka.topic("t").records()) == 1
    [record] = kafka.nodes[leader].topic("t").records(from_offset=1)
    assert (record.value, record.offset) == (b"to 0", 1)


def test_what_waits_at_a_killed_node_is_lost(kafka: oncelog.Broker) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "g",
            "log_level": 0,
            "fetch.wait.max.ms": 30_000,
            "socket.timeout.ms": 60_000,
        }
    )
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(3)])
    waiting: set[int | None] = set()
    while len(waiting) < 3:
        consumer.poll(0.05)
        waiting = {one.node for one in kafka.requests("Fetch") if one.outcome == "pending"}
    kafka.nodes[2].kill()
    assert {one.outcome for one in kafka.nodes[2].requests("Fetch")} == {"lost"}
    assert kafka.nodes[1].requests("Fetch")[-1].outcome == "pending"
    consumer.close()


# -- who leads


def test_a_leader_moves_where_it_is_told_to(kafka: oncelog.Broker) -> None:
    before = kafka.topic("t").partitions[0]
    to = next(one.node for one in before.replicas if one.node != before.leader)
    kafka.move_leader("t", 0, to=to)
    after = kafka.topic("t").partitions[0]
    assert (after.leader, after.replicas[0].node) == (to, to)
    assert after.leader_epoch > before.leader_epoch
    assert write(kafka, 0) == [None]
    assert kafka.wait_for("Produce").node == to
    kafka.move_leader("t", 0, to=to)
    assert kafka.topic("t").partitions[0].leader_epoch == after.leader_epoch


def test_a_leader_moves_only_to_replicas_in_sync(kafka: oncelog.Broker) -> None:
    kafka.nodes[3].kill()
    kafka.nodes[3].expire()
    with pytest.raises(
        oncelog.KafkaError,
        match=r"PREFERRED_LEADER_NOT_AVAILABLE.*has replicas \[.*\]: of these run \[.*in sync are \[",
    ):
        kafka.move_leader("t", 0, to=3)
    with pytest.raises(oncelog.InvalidArgumentError, match="replicas of t-0 are on"):
        kafka.move_leader("t", 0, to=4)
    with pytest.raises(oncelog.NotFoundError, match=r"no partition 9 of topic"):
        kafka.move_leader("t", 9, to=1)
    with pytest.raises(oncelog.NotFoundError):
        kafka.elect_leaders("no-topic")


def test_an_unclean_election_lets_a_replica_lead_that_was_not_in_sync(kafka: oncelog.Broker) -> None:
    leader = leader_of(kafka, 0)
    first, second = sorted({1, 2, 3} - {leader})
    for node in (first, second):
        kafka.nodes[node].kill()
        kafka.nodes[node].expire()
    assert write(kafka, 0, acks=1) == [None]
    kafka.nodes[leader].kill()
    kafka.nodes[leader].expire()
    kafka.nodes[first].start()
    assert kafka.topic("t").partitions[0].leader is None
    kafka.elect_leaders("t", 0, unclean=True)
    assert kafka.topic("t").wait_for_partition(0, leader=first).isr == (first,)
    assert kafka.topic("t").records(partition=0) == []


# -- what goes wrong on purpose


def test_a_rule_counts_what_comes_to_any_node(kafka: oncelog.Broker) -> None:
    rule = kafka.faults.on("Produce", topic="t").nth(2).error("INVALID_RECORD")
    outcomes = [write(kafka, partition)[0] for partition in (0, 1, 2)]
    assert [error and error.name() for error in outcomes] == [None, "INVALID_RECORD", None]
    assert (rule.state.matched, rule.fired) == (3, 1)


def test_a_rule_for_a_node(kafka: oncelog.Broker) -> None:
    node = leader_of(kafka, 1)
    rule = kafka.faults.on("Produce", node=node).error("INVALID_RECORD")
    outcomes = [write(kafka, partition)[0] for partition in (0, 1, 2)]
    assert [error and error.name() for error in outcomes] == [None, "INVALID_RECORD", None]
    assert rule.fired == 1
    kafka.nodes[node].kill()
    kafka.nodes[node].start()
    kafka.move_leader("t", 1, to=node)
    assert [error.name() for error in write(kafka, 1)] == ["INVALID_RECORD"]  # it outlives the run
    with pytest.raises(oncelog.InvalidArgumentError, match="node 4 does not exist"):
        kafka.faults.on("Produce", node=4).error("INVALID_RECORD")
    with oncelog.Broker() as one, pytest.raises(oncelog.InvalidArgumentError, match="node 1 does not exist"):
        one.faults.refuse_connections(node=1)


def test_a_node_that_refuses_connections(kafka: oncelog.Broker) -> None:
    node = leader_of(kafka, 0)
    rule = kafka.faults.refuse_connections(node=node)
    assert write(kafka, 1, 2) == [None, None]
    [error] = write(kafka, 0, **{"message.timeout.ms": 500})
    assert error.name() == "_MSG_TIMED_OUT"
    assert rule.fired
    rule.remove()
    assert write(kafka, 0) == [None]


@pytest.mark.parametrize("point", ["before append", "after append"])
def test_only_the_leader_dies_at_its_write(kafka: oncelog.Broker, point: str) -> None:
    leader = leader_of(kafka, 0)
    rule = kafka.faults.crash_at(point, topic="t", nth=2)
    write(kafka, 0)
    assert rule.fired == 0  # the followers' copies do not count
    producer = new_producer(kafka, **{"enable.idempotence": True})
    producer.produce("t", b"twice?", partition=0)
    producer.poll(0)
    assert rule.wait_fired().fired == 1
    assert [node.is_running for node in kafka.nodes.values()].count(False) == 1
    assert not kafka.nodes[leader].is_running
    assert producer.flush(PATIENCE_S) == 0  # the session ends, and another leads
    kafka.nodes[leader].start()
    assert [record.value for record in kafka.topic("t").records(partition=0)] == [b"to 0", b"twice?"]


def test_the_tests_own_write_by_which_a_node_dies(kafka: oncelog.Broker) -> None:
    kafka.faults.crash_at("before append", topic="t")
    with pytest.raises(oncelog.NotRunningError, match=r"node \d died at rule 1"):
        kafka.produce("t", b"v", partition=0)
    kafka.start()
    kafka.produce("t", b"v", partition=0)


# -- again from the beginning


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_reset_mends_all(on_disk: bool, tmp_path: Any) -> None:
    options: Any = {"data_dir": tmp_path / "data"} if on_disk else {}
    with oncelog.Broker(nodes=3, topics={"t": 3}, **options) as kafka:
        before = (kafka.bootstrap_servers, kafka.cluster_id, kafka.topic("t").info.topic_id)
        assert write(kafka, 0, 1, 2, **{"enable.idempotence": True}) == [None] * 3
        producer_ids = {one.producer_id for one in kafka.topic("t").records()}
        kafka.create_topics(["other"])
        kafka.faults.refuse_connections(node=2)
        kafka.network.cut(1, 3)
        kafka.nodes[1].kill()
        assert kafka.reset() == []
        assert (kafka.bootstrap_servers, kafka.cluster_id) == before[:2]
        assert kafka.topics == ["t"]
        assert kafka.topic("t").info.topic_id != before[2]
        assert [kafka.topic("t").records(), kafka.requests(), kafka.faults.rules] == [[], [], []]
        assert [node.info.is_fenced for node in kafka.nodes.values()] == [False] * 3
        assert write(kafka, 0, 1, 2, **{"enable.idempotence": True}) == [None] * 3
        assert not producer_ids & {one.producer_id for one in kafka.topic("t").records()}
    if on_disk:
        with oncelog.Broker(nodes=3, data_dir=tmp_path / "data") as kafka:
            assert kafka.cluster_id == before[1]
            assert len(kafka.topic("t").wait_for_records(3)) == 3
            with pytest.raises(oncelog.UnsupportedError, match="would be deleted"):
                kafka.reset()


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_loss_of_power_keeps_what_was_flushed(is_reset: bool) -> None:
    with oncelog.Broker(nodes=3, topics=["t"], config={"log.flush.interval.messages": 1}) as kafka:
        if is_reset:
            kafka.nodes[2].lose_power()
            kafka.reset()
        kafka.produce("t", b"flushed")
        for node in kafka.nodes.values():
            node.lose_power()
        for node in kafka.nodes.values():
            node.start()
        kafka.topic("t").wait_for_partition(0, isr=[1, 2, 3])
        assert [one.value for one in kafka.topic("t").records()] == [b"flushed"]


def test_records_have_broker_time(kafka: oncelog.Broker) -> None:
    kafka.clock.advance(days=8)
    written = kafka.produce("t", b"v")
    assert abs(written.timestamp - kafka.clock.now().timestamp() * 1000) < 60_000


def test_a_wait_for_a_leader(kafka: oncelog.Broker) -> None:
    leader = leader_of(kafka, 0)
    kafka.nodes[leader].stop()
    found = kafka.topic("t").wait_for_partition(0)
    assert found.leader not in (None, leader)
    for node in kafka.nodes.values():
        node.stop()
    with pytest.raises(oncelog.WaitTimeoutError, match="t-0 has leader None"):
        kafka.topic("t").wait_for_partition(0, timeout=0.1)


def test_a_write_without_a_leader_says_why(kafka: oncelog.Broker) -> None:
    leader = leader_of(kafka, 0)
    kafka.nodes[leader].kill()
    with pytest.raises(
        oncelog.KafkaError, match=rf"node {leader} does not run; it leads until its session is over"
    ):
        kafka.produce("t", b"v", partition=0)
    for number, node in kafka.nodes.items():
        if number != leader:
            node.stop()
    kafka.nodes[leader].expire()
    one = next(number for number in kafka.nodes if number != leader)
    kafka.nodes[one].start()
    with pytest.raises(oncelog.KafkaError, match="t-0 has no leader: of its replicas"):
        kafka.produce("t", b"v", partition=0)


def test_a_stop_of_all_nodes_keeps_what_they_have(kafka: oncelog.Broker) -> None:
    assert write(kafka, 0) == [None]
    for end in (kafka.stop, kafka.kill):
        end()
        kafka.start()
        assert [one.value for one in kafka.topic("t").wait_for_records(1)] == [b"to 0"]


def test_a_snapshot_is_one_instant_of_all_nodes(kafka: oncelog.Broker, tmp_path: Any) -> None:
    assert write(kafka, 0, 1, 2) == [None] * 3
    kafka.move_leader("t", 0, to=leader_of(kafka, 1))
    before = [(one.leader_epoch, one.replicas[0].node) for one in kafka.topic("t").partitions]
    kafka.group("g").commit({"t": {0: 1}})
    kafka.clock.freeze()
    kafka.snapshot(tmp_path / "three")
    content = kafka.snapshot_bytes()
    with pytest.raises(oncelog.SnapshotError, match="of 3 nodes, not of one node"):
        oncelog.Broker(from_snapshot=content).start()
    with oncelog.Broker(from_snapshot=tmp_path / "three", nodes=3) as copy:
        assert copy.clock.is_frozen
        assert copy.cluster_id == kafka.cluster_id
        for partition in range(3):
            copy.topic("t").wait_for_partition(partition, isr=[1, 2, 3])
        assert {one.value for one in copy.topic("t").wait_for_records(3)} == {b"to 0", b"to 1", b"to 2"}
        after = [(one.leader_epoch, one.replicas[0].node) for one in copy.topic("t").partitions]
        assert [node for _, node in after] == [node for _, node in before]
        assert all(now > then for (now, _), (then, _) in zip(after, before, strict=True))
        assert copy.group("g").committed == {"t": {0: 1}}
        assert write(copy, 0) == [None]
        copy.reset()
        assert len(copy.topic("t").wait_for_records(3)) == 3
    with oncelog.Broker(topics=["one"]) as one:
        content = one.snapshot_bytes()
    with pytest.raises(oncelog.SnapshotError, match="of one node, not of 3 nodes"):
        oncelog.Broker(from_snapshot=content, nodes=3).start()


# -- time


def told(happened: list[oncelog.Occurrence]) -> list[str]:
    return [str(one) for one in happened]


def test_nodes_that_run_and_reach_each_other_stay_in_session_and_in_sync(kafka: oncelog.Broker) -> None:
    before = kafka.topic("t").partitions
    assert kafka.clock.advance(days=3) == []
    assert kafka.topic("t").partitions == before
    assert [node.info.is_fenced for node in kafka.nodes.values()] == [False] * 3
    assert write(kafka, 0, 1, 2) == [None] * 3


def test_who_does_not_reach_the_controller_falls_out_at_its_time(kafka: oncelog.Broker) -> None:
    begin = kafka.clock.now_ms()
    kafka.network.cut(3, "controller", one_way=True)
    kafka.nodes[2].kill()
    happened = kafka.clock.advance(minutes=5)
    fenced = [one for one in happened if one.what == "session ended"]
    assert sorted(told(fenced)) == [f"node {node}: its session ended, and it is fenced" for node in (2, 3)]
    assert all(one.at_ms - begin < 30_000 for one in fenced)  # its session is of one second
    assert [node.info.is_fenced for node in kafka.nodes.values()] == [False, True, True]
    assert {one.leader for one in kafka.topic("t").partitions} == {1}
    kafka.network.heal()
    kafka.nodes[2].start()
    for partition in range(3):
        kafka.topic("t").wait_for_partition(partition, isr=[1, 2, 3])


def test_a_follower_that_does_not_reach_its_leader_falls_out_of_sync(kafka: oncelog.Broker) -> None:
    leader = leader_of(kafka, 0)
    cut, other = sorted({1, 2, 3} - {leader})
    kafka.network.cut(cut, leader)
    assert write(kafka, 0, acks=1) == [None]
    happened = kafka.clock.advance(minutes=2)
    expected = f"node {leader}: topic t partition 0: the replica of node {cut} is out of sync"
    assert expected in told(happened)
    assert sorted(kafka.topic("t").partitions[0].isr) == sorted((leader, other))
    assert len(kafka.topic("t").records(partition=0)) == 1
    kafka.network.heal()
    kafka.topic("t").wait_for_partition(0, isr=[1, 2, 3])


def test_a_transaction_times_out_over_all_nodes(kafka: oncelog.Broker) -> None:
    producer = new_producer(kafka, **{"transactional.id": "a", "transaction.timeout.ms": 60_000})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in range(3):
        producer.produce("t", b"v", partition=partition)
    producer.flush(PATIENCE_S)
    opened = [(one.partition, one.transactional_id, one.transaction_start_offset) for one in kafka.producers]
    assert opened == [(0, "a", 0), (1, "a", 0), (2, "a", 0)]
    assert kafka.topic("t").producers == kafka.producers
    happened = kafka.clock.advance(minutes=2)
    assert [one.what for one in happened if "transaction" in one.what] == ["transaction timed out"]
    info = kafka.topic("t").info
    assert [one.high_watermark for one in info.partitions] == [2, 2, 2]  # with the markers
    assert kafka.transactions["a"].state == "CompleteAbort"


def test_a_coordinator_goes_on_when_its_partition_gets_another_replica() -> None:
    factors = {
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "offsets.topic.replication.factor": 1,
    }
    with oncelog.Broker(nodes=2, topics={"t": 1}, config=factors) as kafka:
        producer = new_producer(kafka, **{"transactional.id": "a", "transaction.timeout.ms": 60_000})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce("t", b"v", partition=0)
        producer.flush(PATIENCE_S)
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "log_level": 0})
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.05)
        for topic in ("__transaction_state", "__consumer_offsets"):
            leaders = {row.partition: row.leader or 0 for row in kafka.topic(topic).partitions}
            reassign(kafka, topic, {number: [leader, 3 - leader] for number, leader in leaders.items()})
            for number in leaders:
                kafka.topic(topic).wait_for_partition(number, isr=[1, 2])
        assert [line for line in kafka.log_lines if "shard unloaded" in line] == []
        assert kafka.group("g").state == "Stable"
        assert "transaction timed out" in [one.what for one in kafka.clock.advance(minutes=2)]
        assert kafka.transactions["a"].state == "CompleteAbort"
        consumer.close()


def test_a_member_and_a_transaction_that_expire_on_their_node(kafka: oncelog.Broker) -> None:
    producer = new_producer(kafka, **{"transactional.id": "a"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("t", b"v", partition=0)
    producer.flush(PATIENCE_S)
    assert "transaction timed out" in [one.what for one in kafka.transactions["a"].expire()]
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g", "log_level": 0, "client.id": "c"}
    )
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(0.05)
    [member] = kafka.group("g").members
    assert "member dropped" in [one.what for one in kafka.group("g").expire_member(member.member_id)]
    with pytest.raises(oncelog.NotFoundError):
        kafka.group("other").expire_member("nobody")
    consumer.close()


def test_the_wall_time_of_one_node(kafka: oncelog.Broker) -> None:
    kafka.create_topic("stamped", 3, {"message.timestamp.type": "LogAppendTime"})
    leaders = [one.leader for one in kafka.topic("stamped").partitions]
    kafka.clock.freeze()
    now = kafka.clock.now_ms()
    skews = {1: 0, 2: 60_000, 3: -5_000}
    for node, ms in skews.items():
        kafka.nodes[node].clock.skew(ms=ms)
        assert kafka.nodes[node].clock.now_ms() == now + ms
    for partition in range(3):
        kafka.produce("stamped", b"v", partition=partition)
    records = kafka.topic("stamped").records()
    assert [one.timestamp - now for one in records] == [skews[leader or 0] for leader in leaders]
    kafka.clock.advance(seconds=1)
    assert kafka.nodes[2].clock.now_ms() == now + 61_000
    kafka.clock.resume()
    assert not kafka.clock.is_frozen
    with pytest.raises(oncelog.InvalidArgumentError, match="whole number"):
        kafka.nodes[1].clock.skew(ms=0.5)  # type: ignore[arg-type]


def test_a_node_that_no_client_reaches(kafka: oncelog.Broker) -> None:
    node = leader_of(kafka, 0)
    producer = new_producer(kafka, **{"message.timeout.ms": 1_000})
    errors: list[Any] = []
    for partition in range(3):  # it has a connection to each
        producer.produce("t", b"v", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    kafka.network.cut("clients", node)
    for partition in range(3):
        producer.produce(
            "t", b"v", partition=partition, on_delivery=lambda error, message: errors.append(error)
        )
    producer.flush(PATIENCE_S)
    assert sorted(error.name() if error else "" for error in errors) == ["", "", "_MSG_TIMED_OUT"]
    assert leader_of(kafka, 0) == node  # the other nodes reach it
    kafka.nodes[node].kill()
    kafka.nodes[node].start()
    kafka.move_leader("t", 0, to=node)
    assert write(kafka, 0, **{"message.timeout.ms": 500})[0].name() == "_MSG_TIMED_OUT"
    kafka.network.heal()
    assert write(kafka, 0) == [None]
    with pytest.raises(oncelog.InvalidArgumentError, match="expected the id of a node"):
        kafka.network.cut("clients", "clients")
    with pytest.raises(oncelog.UnsupportedError, match="a rule delays clients"):
        kafka.network.delay(1, "clients", ms=5)
