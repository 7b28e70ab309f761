"""Records, topics and offsets that a test writes without a client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import trio
import trio.testing

from oncelog.broker.control import views
from oncelog.broker.control.errors import InvalidArgumentError, NotFoundError
from oncelog.broker.control.new_records import murmur2
from oncelog.broker.control.new_topics import create_topics
from oncelog.broker.control.operations.waiting import requests
from oncelog.broker.control.operations.writing import (
    commit_offsets,
    create_topic,
    delete_records,
    delete_topic,
    produce,
)
from oncelog.broker.control.options import TopicOptions
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.fetch import FetchResponse
from tests.control.journaled import journaled
from tests.harness.classic_members import SimMember
from tests.harness.requests import bytes_of, fetch_request
from tests.harness.requests import produce as produce_by_client
from tests.harness.sim_broker import EPOCH_MS
from tests.harness.simulation import simulated


@simulated
async def test_every_way_to_give_a_record() -> None:
    async with journaled() as broker:
        await create_topic(broker, name="t")
        at = datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
        given = [
            b"bytes",
            "täxt",
            None,
            ("k", b"v"),
            {"value": "v", "key": b"k", "headers": {"a": "1", "b": None}, "timestamp": 5},
            {
                "value": memoryview(b"v"),
                "headers": [("a", b"1"), ("a", b"2")],
                "timestamp": at,
                "partition": 0,
            },
        ]
        written = await produce(broker, topic="t", records=given)
        assert written == await views.records(broker.node, topic="t")
        assert [(one.key, one.value) for one in written] == [
            (None, b"bytes"),
            (None, "täxt".encode()),
            (None, None),
            (b"k", b"v"),
            (b"k", b"v"),
            (None, b"v"),
        ]
        assert [one.timestamp for one in written] == [EPOCH_MS] * 4 + [5, 1_714_979_289_123]
        assert written[5].time == at
        assert [one.headers for one in written[4:]] == [
            (("a", b"1"), ("b", None)),
            (("a", b"1"), ("a", b"2")),
        ]
        copies = await produce(broker, topic="copy", records=written)
        assert [one.value for one in copies] == [one.value for one in written]
        assert await requests(broker) == []  # no client sent anything


@simulated
async def test_log_append_time() -> None:
    async with journaled() as broker:
        await create_topic(broker, name="t", config={"message.timestamp.type": "LogAppendTime"})
        [written] = await produce(broker, topic="t", records=[{"value": b"v", "timestamp": 5}])
        assert (written.timestamp, written.timestamp_type) == (EPOCH_MS, "LogAppendTime")
        assert [written] == await views.records(broker.node, topic="t")


@simulated
async def test_partitions() -> None:
    async with journaled() as broker:
        await create_topic(broker, name="t", partitions=3)
        written = await produce(
            broker, topic="t", records=[b"a", b"b", b"c", b"d", {"value": b"e", "partition": 2}]
        )
        assert [one.partition for one in written] == [0, 1, 2, 0, 2]
        [again] = await produce(broker, topic="t", records=[b"f"])
        assert again.partition == 1
        with pytest.raises(NotFoundError, match=r"no partition 3 of topic 't' \(it has partitions 0 to 2\)"):
            await produce(broker, topic="t", records=[b"a", {"value": b"b", "partition": 3}])
        assert len(await views.records(broker.node, topic="t")) == 6


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_of_keys(key: bytes, found: int) -> None:
    """The values are those of Kafka's ``UtilsTest``."""
    assert murmur2(key) == found & 0xFFFFFFFF


@simulated
async def test_many_records_are_several_batches() -> None:
    async with journaled() as broker:
        await create_topic(broker, name="t", partitions=2)
        value = bytes(100_000)
        written = await produce(broker, topic="t", records=[value] * 11)
        assert [(one.partition, one.offset) for one in written] == [(at % 2, at // 2) for at in range(11)]
        assert len(await views.records(broker.node, topic="t")) == 11


@simulated
async def test_what_the_broker_refuses() -> None:
    async with journaled() as broker:
        await create_topic(broker, name="t", config={"max.message.bytes": 1000})
        await create_topic(broker, name="c", config={"cleanup.policy": "compact"})
        with pytest.raises(KafkaError) as caught:
            await produce(broker, topic="t", records=[b"a", bytes(2000), b"b"])
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert "1 of 3 records were written" in str(caught.value)
        with pytest.raises(KafkaError, match=r"INVALID_RECORD: .*key"):
            await produce(broker, topic="c", records=[b"a"])
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            await produce(broker, topic="no such", records=[b"a"])


@simulated
async def test_an_unknown_key_of_a_topic_is_told_with_the_similar_ones() -> None:
    async with journaled() as broker:
        for key, said in (
            ("retention.msec", r"did you mean retention\.ms.*\?"),
            ("log.segment.bytes", r"did you mean .*segment\.bytes.*\?"),
            ("Cleanup.Policy", r"did you mean cleanup\.policy\?"),
            ("nothing", "Unknown topic config name: nothing$"),
        ):
            with pytest.raises(KafkaError, match=said) as caught:
                await create_topic(broker, name="t", config={"cleanup.policy": "compact", key: "1"})
            assert caught.value.code is ErrorCode.INVALID_CONFIG
            assert f"Unknown topic config name: {key}" in str(caught.value)
            with pytest.raises(InvalidArgumentError, match=said):
                create_topics(broker.node, {"t": TopicOptions(1, {key: "1"})})
        with pytest.raises(KafkaError) as caught:
            await create_topic(broker, name="t", config={"retention.ms": "x"})
        assert "did you mean" not in str(caught.value)


@simulated
async def test_it_may_write_where_clients_may_not() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    async with journaled(authorizer_class_name=authorizer) as broker:
        await create_topic(broker, name="t")
        row = await produce_by_client(broker.sim.connect(), "t")
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert len(await produce(broker, topic="t", records=[b"a"])) == 1
        await commit_offsets(broker, group_id="g", offsets={"t": {0: 1}})
        assert await delete_records(broker, topic="t") == {0: 1}


@simulated
async def test_a_topic_that_does_not_exist() -> None:
    async with journaled() as broker:
        [written] = await produce(broker, topic="t", records=[b"a"])
        assert written.topic == "t"
    async with journaled(auto_create_topics_enable="false") as broker:
        await create_topic(broker, name="orders")
        with pytest.raises(NotFoundError) as caught:
            await produce(broker, topic="order", records=[b"a"])
        assert str(caught.value) == (
            "there is no topic 'order'; did you mean orders? (there is: orders); create_topic() creates it, "
            "and so does auto.create.topics.enable=true"
        )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (7, r"value=7: expected bytes, a text or None; encode it first, for example with json\.dumps"),
        ({"valu": b"v"}, "there is no field 'valu'"),
        ((b"k", b"v", b"w"), r"expected \(key, value\)"),
        ({"value": b"v", "key": 7}, "key=7"),
        ({"value": b"v", "timestamp": datetime(2024, 1, 1)}, "has no time zone"),
        ({"value": b"v", "timestamp": 1.5}, "timestamp=1.5: expected milliseconds"),
        ({"value": b"v", "headers": {"a": 1}}, "header a=1"),
        ({"value": b"v", "headers": [("a",)]}, r"header \('a',\): expected \(name, value\)"),
        ({"value": b"v", "headers": "a"}, "headers='a': expected"),
        ({"value": b"v", "partition": "1"}, "partition='1': expected a number"),
    ],
)
@simulated
async def test_records_that_make_no_sense_change_nothing(record: Any, message: str) -> None:
    async with journaled() as broker:
        with pytest.raises(InvalidArgumentError, match=message):
            await produce(broker, topic="t", records=[b"a", record])
        assert await views.topics(broker.node) == []


@simulated
async def test_a_delayed_fetch_is_completed() -> None:
    async with journaled(kept=0) as broker:
        client = broker.sim.connect()
        await create_topic(broker, name="t")
        await client.send(fetch_request("t", 0, max_wait_ms=60_000), 12)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await produce(broker, topic="t", records=[b"value"])
        assert not broker.node.dispatcher.satisfied_fetches
        response = await client.receive(FetchResponse, 12)
        assert b"value" in bytes_of(response.responses[0].partitions[0].records)
        assert trio.current_time() == began


@simulated
async def test_it_waits_for_the_disk_where_the_topic_asks_for_it() -> None:
    async with journaled() as broker:
        await create_topic(broker, name="t", config={"flush.messages": "1"})
        broker.sim.files.latency_s = 5
        began = trio.current_time()
        await produce(broker, topic="t", records=[b"value"])
        assert trio.current_time() - began >= 5
        assert (await views.topic(broker.node, name="t")).partitions[0].high_watermark == 1


@simulated
async def test_topics() -> None:
    async with journaled() as broker:
        made = await create_topic(
            broker, name="t", partitions=2, config={"retention.ms": 5, "preallocate": True}
        )
        assert len(made.partitions) == 2
        assert made.overrides == {"retention.ms": "5", "preallocate": "true"}
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            await create_topic(broker, name="t")
        with pytest.raises(KafkaError, match="INVALID_PARTITIONS"):
            await create_topic(broker, name="u", partitions=0)
        with pytest.raises(KafkaError, match="INVALID_CONFIG"):
            await create_topic(broker, name="u", config={"retention.ms": "x"})
        await delete_topic(broker, name="t")
        with pytest.raises(NotFoundError, match=r"no topic 't' \(there is no topic at all\)"):
            await delete_topic(broker, name="t")


@simulated
async def test_records_are_deleted() -> None:
    async with journaled() as broker:
        await create_topic(broker, name="t", partitions=2)
        await produce(broker, topic="t", records=[b"v"] * 6)
        with pytest.raises(NotFoundError, match="no partition 2 of topic 't'"):
            await delete_records(broker, topic="t", before={0: 1, 2: 1})
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
            await delete_records(broker, topic="t", before={0: 9})
        assert await delete_records(broker, topic="t", before={1: 2}) == {1: 2}
        assert [one.offset for one in await views.records(broker.node, topic="t")] == [0, 1, 2, 2]
        assert await delete_records(broker, topic="t") == {0: 3, 1: 3}
        assert await views.records(broker.node, topic="t") == []


@simulated
async def test_offsets_are_committed() -> None:
    async with journaled() as broker:
        await create_topic(broker, name="t", partitions=2)
        await commit_offsets(broker, group_id="g", offsets={"t": {0: 3, 1: 4}})
        assert (await views.group(broker.node, group_id="g")).committed == {"t": {0: 3, 1: 4}}
        with pytest.raises(NotFoundError, match="no topic 'u'"):
            await commit_offsets(broker, group_id="g", offsets={"t": {0: 7}, "u": {0: 1}})
        with pytest.raises(InvalidArgumentError, match="t-0: -1: expected an offset from 0 on"):
            await commit_offsets(broker, group_id="g", offsets={"t": {0: -1}})
        with pytest.raises(InvalidArgumentError, match="the group id is empty"):
            await commit_offsets(broker, group_id="", offsets={"t": {0: 1}})
        assert (await views.group(broker.node, group_id="g")).committed["t"][0] == 3
        await SimMember(broker.sim, "busy").found()
        with pytest.raises(
            KafkaError, match="UNKNOWN_MEMBER_ID: group busy has members: only they can commit"
        ):
            await commit_offsets(broker, group_id="busy", offsets={"t": {0: 1}})
