"""Share groups as a test sees them, read by confluent-kafka's share consumers."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import AcknowledgeType, Consumer, ShareConsumer

import oncelog
from oncelog import RecordsInFlight
from tests.harness.stock_share_consumers import PATIENCE_S, consuming_share_group, poll, settle

GROUP = "jobs"
consuming = partial(consuming_share_group, group_id=GROUP, topic="work")


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics={"work": 1}) as broker:
        broker.share_group(GROUP).configure({"share.auto.offset.reset": "earliest"})
        yield broker


def states(kafka: oncelog.Broker) -> list[tuple[int, int, str, int]]:
    rows = kafka.share_group(GROUP).in_flight.get("work", {}).get(0, ())
    return [(row.first_offset, row.last_offset, row.state, row.delivery_count) for row in rows]


def test_members_and_records_in_flight(kafka: oncelog.Broker) -> None:
    assert kafka.share_groups == []
    with pytest.raises(oncelog.NotFoundError):
        _ = kafka.share_group(GROUP).info
    kafka.produce_many("work", [b"1", b"2", b"3", b"4"])
    with consuming(kafka) as consumer:
        messages = poll(consumer)
        group = kafka.share_group(GROUP)
        assert kafka.share_groups == [GROUP]
        assert kafka.groups == []
        [member] = group.members
        assert (member.client_id, member.subscription, member.assignment) == ("one", ("work",), {"work": [0]})
        assert (group.state, group.info.acquired) == ("Stable", 4)
        [row] = group.in_flight["work"][0]
        assert (row.first_offset, row.last_offset, row.state, row.delivery_count) == (0, 3, "acquired", 1)
        assert row.member_id == member.member_id
        assert row.locked_until_ms is not None
        assert 0 < row.locked_until_ms - kafka.clock.now_ms() <= 30_000
        kinds = (
            AcknowledgeType.RELEASE,
            AcknowledgeType.ACCEPT,
            AcknowledgeType.REJECT,
            AcknowledgeType.ACCEPT,
        )
        for message, kind in zip(messages, kinds, strict=True):
            consumer.acknowledge(message, kind)
        assert all(error is None for error in consumer.commit_sync(PATIENCE_S).values())
        after = states(kafka)
        assert after[0] in ((0, 0, "available", 1), (0, 0, "acquired", 2))
        assert after[1:] == [(1, 1, "acknowledged", 1), (2, 2, "archived", 1), (3, 3, "acknowledged", 1)]
        assert group.partitions["work"][0].lag == 1
        assert group.info.start_offsets == {"work": {0: 0}}
        [again] = poll(consumer)
        consumer.acknowledge(again)
        consumer.commit_sync(PATIENCE_S)
        info = group.wait_for(lag=0, acquired=0, state="Stable", members=1, timeout=PATIENCE_S)
        assert info.partitions["work"][0] == oncelog.SharePartitionInfo(4, (), 0)
    assert kafka.share_group(GROUP).wait_for(members=0, timeout=PATIENCE_S).state == "Empty"


def test_after_a_restart(kafka: oncelog.Broker) -> None:
    """What is stored is seen before anybody reads."""
    kafka.produce_many("work", [b"1", b"2", b"3"])
    with consuming(kafka) as consumer:
        for message in poll(consumer):
            kind = AcknowledgeType.ACCEPT if message.value() == b"2" else AcknowledgeType.RELEASE
            consumer.acknowledge(message, kind)
        consumer.commit_sync(PATIENCE_S)
    kafka.kill()
    kafka.start()
    assert kafka.share_group(GROUP).in_flight == {
        "work": {
            0: (
                RecordsInFlight(0, 0, "available", 1),
                RecordsInFlight(1, 1, "acknowledged", 1),
                RecordsInFlight(2, 2, "available", 1),
            )
        }
    }
    assert kafka.share_group(GROUP).info.total_lag == 2


def test_the_clock_ends_locks(kafka: oncelog.Broker) -> None:
    kafka.produce("work", b"1")
    kafka.clock.freeze()
    with consuming(kafka) as consumer:
        poll(consumer)
        kafka.clock.advance(seconds=29)
        assert states(kafka) == [(0, 0, "acquired", 1)]
        happened = kafka.clock.advance(seconds=2)
        assert [it.what for it in happened] == ["record locks ended"]
        assert str(happened[0]) == f"share group {GROUP}, topic work partition 0: locks of 1 record ended"


def test_a_wait_says_what_there_was(kafka: oncelog.Broker) -> None:
    kafka.produce("work", b"1")
    with consuming(kafka) as consumer:
        poll(consumer)
        with pytest.raises(
            oncelog.WaitTimeoutError, match=r"share group jobs has not got a lag of at most 0 in 0 s"
        ):
            kafka.share_group(GROUP).wait_for(lag=0, timeout=0)
    for wrong in ({}, {"lag": -1}, {"acquired": True}, {"state": "Assigning"}):
        with pytest.raises(oncelog.InvalidArgumentError):
            kafka.share_group(GROUP).wait_for(**wrong)


@pytest.mark.slow
def test_a_wait_says_who_has_which_partitions() -> None:
    with oncelog.Broker(topics={"work": 2}) as kafka, consuming(kafka) as one:
        group = kafka.share_group(GROUP)
        one.poll(0.1)
        group.wait_for(members=1, timeout=PATIENCE_S)
        with consuming(kafka, client_id="two") as two:
            two.poll(0.1)
            group.wait_for(members=2, timeout=PATIENCE_S)
            while sorted(member.assignment.get("work", []) for member in group.members) != [[0], [1]]:
                one.poll(0.1)
                two.poll(0.1)
            has = "; ".join(
                f"{it.client_id} ({it.member_id}) work-{it.assignment['work'][0]}" for it in group.members
            )
            with pytest.raises(oncelog.WaitTimeoutError) as caught:
                group.wait_for(members=3, timeout=0)
            assert f"; assigned: {has}\n" in str(caught.value)


@pytest.mark.slow
def test_a_wait_says_why_there_are_no_records(kafka: oncelog.Broker) -> None:
    kafka.share_group(GROUP).configure({"share.auto.offset.reset": "latest"})
    kafka.produce("work", b"1")
    with consuming(kafka) as consumer:
        consumer.poll(0.1)
        kafka.share_group(GROUP).wait_for(lag=0, members=1, timeout=PATIENCE_S)
        with pytest.raises(
            oncelog.WaitTimeoutError, match=r"reset is latest: it reads work-0 from offset 1\n"
        ):
            kafka.share_group(GROUP).wait_for(acquired=1, timeout=0)
        settle(kafka, consumer, "one")
        consumer.subscribe(["wokr"])
        kafka.wait_for("ShareGroupHeartbeat", error=None, timeout=PATIENCE_S)
        said = ""
        while "wokr" not in said:
            with pytest.raises(oncelog.WaitTimeoutError) as caught:
                kafka.share_group(GROUP).wait_for(acquired=1, timeout=0)
            said = str(caught.value)
            consumer.poll(0.1)
        assert re.search(r"; assigned: one \(\S+\) (work-0|nothing); members subscribe", said)
        assert "; members subscribe to wokr, and there is no such topic; did you mean work?" in said


@pytest.mark.slow
def test_the_log_says_that_a_group_is_of_another_type(kafka: oncelog.Broker) -> None:
    kafka.group("billing").commit({"work": {0: 0}})
    consumers = []
    with consuming(kafka):
        kafka.share_group(GROUP).wait_for(members=1, timeout=PATIENCE_S)
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": GROUP}
        for protocol, api, error in (
            ("classic", "JoinGroup", "INCONSISTENT_GROUP_PROTOCOL"),
            ("consumer", "ConsumerGroupHeartbeat", "GROUP_ID_NOT_FOUND"),
        ):
            consumer = Consumer({**settings, "group.protocol": protocol})
            consumers.append(consumer)
            consumer.subscribe(["work"])
            kafka.wait_for(api, error=error, timeout=PATIENCE_S)
    for consumer in consumers:
        consumer.close()
    share_consumer = ShareConsumer({**settings, "group.id": "billing"})
    share_consumer.subscribe(["work"])
    kafka.wait_for("ShareGroupHeartbeat", error="GROUP_ID_NOT_FOUND", timeout=PATIENCE_S)
    share_consumer.close()
    lines = [line for line in kafka.log_lines if "of another type" in line]
    for facts in (
        "group=jobs type=share protocol=classic",
        "group=jobs type=share protocol=consumer",
        "group=billing type=classic protocol=share",
    ):
        assert any(facts in line for line in lines), lines


def test_a_misspelt_key_is_named() -> None:
    with oncelog.Broker() as kafka:
        for wrong, meant in (
            ("share.auto.ofset.reset", "share.auto.offset.reset"),
            ("group.share.record.lock.duration.ms", "share.record.lock.duration.ms"),
        ):
            with pytest.raises(oncelog.InvalidArgumentError, match=f"; did you mean {meant}"):
                kafka.share_group(GROUP).configure({wrong: "x"})


def test_configures() -> None:
    with oncelog.Broker() as kafka:
        group = kafka.share_group(GROUP)
        group.configure({"share.delivery.count.limit": 3})
        for wrong in (
            {"share.auto.offset.reset": "never"},
            {"share.unknown": 1},
            {"share.isolation.level": None},
        ):
            with pytest.raises(oncelog.InvalidArgumentError):
                group.configure(wrong)


def test_the_log_says_which_settings_the_brokers_limits_no_longer_allow(tmp_path: pathlib.Path) -> None:
    with oncelog.Broker(data_dir=tmp_path) as kafka:
        kafka.share_group(GROUP).configure(
            {"share.record.lock.duration.ms": 50_000, "share.delivery.count.limit": 4}
        )
        kafka.share_group("others").configure({"share.delivery.count.limit": 2})
    limits = {"group.share.max.record.lock.duration.ms": 40_000, "group.share.min.delivery.count.limit": 3}
    with oncelog.Broker(data_dir=tmp_path, config=limits) as kafka:
        lines = [line for line in kafka.log_lines if "beyond the broker's limit" in line]
        # What is set while it runs is refused, and so no reason for a line.
        with pytest.raises(oncelog.InvalidArgumentError, match="must be in the range 15000 to 40000"):
            kafka.share_group("later").configure({"share.record.lock.duration.ms": 50_000})
        assert [line for line in kafka.log_lines if "beyond the broker's limit" in line] == lines
    assert all("WARNING" in line for line in lines)
    facts = sorted(line.partition("group=")[2] for line in lines)
    assert facts == [
        "jobs key=share.record.lock.duration.ms value=50000 "
        "limit=group.share.max.record.lock.duration.ms counts_as=40000",
        "others key=share.delivery.count.limit value=2 limit=group.share.min.delivery.count.limit counts_as=3",
    ]


@pytest.mark.slow
def test_groups_and_share_groups_are_apart(kafka: oncelog.Broker) -> None:
    kafka.group("billing").commit({"work": {0: 0}})
    with consuming(kafka):
        kafka.share_group(GROUP).wait_for(members=1, timeout=PATIENCE_S)
        assert kafka.groups == ["billing"]
        with pytest.raises(oncelog.NotFoundError, match=r"jobs is a share group: .*share_group"):
            _ = kafka.group(GROUP).info
        with pytest.raises(oncelog.KafkaError, match=r"jobs is a share group, .*kafka-share-groups"):
            kafka.group(GROUP).commit({"work": {0: 0}})
        with pytest.raises(oncelog.NotFoundError):
            _ = kafka.share_group("billing").info


def test_of_a_cluster_it_is_not_known_what_is_in_flight(kafka: oncelog.Broker) -> None:
    kafka.produce("work", b"1")
    with oncelog.Proxy(kafka.bootstrap_servers) as proxy, consuming(proxy) as consumer:
        [message] = poll(consumer)
        group = proxy.share_group(GROUP)
        unknown = "a Kafka cluster, also one behind a proxy, does not tell which records of a share group are in flight"
        for ask in (lambda: group.in_flight, lambda: group.info.acquired, lambda: group.info.in_flight):
            with pytest.raises(oncelog.UnsupportedError, match=unknown):
                ask()
        with pytest.raises(oncelog.UnsupportedError, match="does not tell which records"):
            group.wait_for(acquired=1)
        assert group.partitions["work"][0].in_flight is None
        assert group.members[0].client_id == "one"
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        consumer.commit_sync(PATIENCE_S)
        assert group.wait_for(lag=0, timeout=PATIENCE_S).partitions["work"][0].in_flight is None


def test_a_right_that_lacks_is_named() -> None:
    acls = [oncelog.Acl("User:app", "Read", group=GROUP)]
    with oncelog.Broker(topics={"work": 1}, users={"app": "app-secret"}, acls=acls) as kafka:
        consumer = ShareConsumer({**kafka.client_config(user="app"), "group.id": GROUP})
        consumer.subscribe(["work"])
        refused = kafka.wait_for(
            "ShareGroupHeartbeat", error="TOPIC_AUTHORIZATION_FAILED", timeout=PATIENCE_S
        )
        consumer.close()
    assert refused.response.error_message == "The request needs DESCRIBE on the topic work."
