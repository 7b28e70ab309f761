"""Start positions of consumers: watermarks, by time, at the end; and unknown topics."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.brokers import Broker
from compat_tests.clients.stock_clients import DEADLINE_S, Confluent, Options, Record
from compat_tests.differential import Session

pytestmark = pytest.mark.also_on("proxy")

START_MS = 1_790_000_000_000
COUNT = 20


@pytest.fixture
def filled(bootstrap: str, name: str) -> str:
    """The name of a topic whose partition 0 has offsets 5 to 19, with timestamps 10 ms apart."""
    session = Session(bootstrap)
    session.topic(name, 2)
    records = [Record(b"%d" % number, b"v", (), START_MS + 10 * number) for number in range(COUNT)]
    Confluent.produce(bootstrap, name, 0, records, Options("gzip"))
    session.delete_records(name, 5)
    session.close()
    return name


class TestConfluent:
    @pytest.fixture
    def consumer(self, bootstrap: str) -> Iterator[Any]:
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.partition.eof": True})
        yield consumer
        consumer.close()

    def test_watermarks_and_times(self, consumer: Any, filled: str) -> None:
        from confluent_kafka import TopicPartition

        assert consumer.get_watermark_offsets(TopicPartition(filled, 0), timeout=DEADLINE_S) == (5, COUNT)
        expected = [
            (0, 5),
            (START_MS + 70, 7),
            (START_MS + 71, 8),
            (START_MS + 190, 19),
            (START_MS + 191, -1),
        ]
        for time, offset in expected:
            (found,) = consumer.offsets_for_times([TopicPartition(filled, 0, time)], timeout=DEADLINE_S)
            assert found.offset == offset, time

    def test_beginning_and_end(self, consumer: Any, bootstrap: str, filled: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, TopicPartition

        consumer.assign([TopicPartition(filled, 0, OFFSET_BEGINNING)])
        assert consumer.poll(DEADLINE_S).offset() == 5
        consumer.assign([TopicPartition(filled, 0, OFFSET_END)])
        end = consumer.poll(DEADLINE_S)  # after this event the consumer has its position
        assert end.error().code() == KafkaError._PARTITION_EOF
        assert end.offset() == COUNT
        Confluent.produce(bootstrap, filled, 0, [Record(b"new", b"v")], Options())
        assert consumer.poll(DEADLINE_S).key() == b"new"

    def test_out_of_range_resets(self, consumer: Any, filled: str) -> None:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(filled, 0, 2)])
        assert consumer.poll(DEADLINE_S).offset() == 5

    def test_unknown_topic_is_not_created(self, consumer: Any, name: str) -> None:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        with pytest.raises(KafkaException) as refused:
            consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=5)
        assert refused.value.args[0].code() in (
            KafkaError._UNKNOWN_PARTITION,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        )
        assert name not in consumer.list_topics(timeout=DEADLINE_S).topics


class TestKafkaPython:
    def test_positions(self, bootstrap: str, filled: str) -> None:
        from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped,unused-ignore]

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        try:
            first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)
            assert consumer.beginning_offsets([first, second]) == {first: 5, second: 0}
            assert consumer.end_offsets([first, second]) == {first: COUNT, second: 0}
            found = consumer.offsets_for_times({first: START_MS + 71, second: START_MS})
            assert found[first].offset == 8
            assert found[second] is None
            assert consumer.partitions_for_topic(filled) == {0, 1}
            consumer.assign([first])
            consumer.seek_to_end(first)
            assert consumer.position(first) == COUNT
            consumer.seek_to_beginning(first)
            assert next(consumer).offset == 5
        finally:
            consumer.close()


class TestAiokafka:
    def test_positions(self, bootstrap: str, filled: str) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped,unused-ignore]

        async def run() -> None:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
            await consumer.start()
            try:
                first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)
                assert await consumer.beginning_offsets([first, second]) == {first: 5, second: 0}
                assert await consumer.end_offsets([first, second]) == {first: COUNT, second: 0}
                found = await consumer.offsets_for_times({first: START_MS + 71})
                assert found[first].offset == 8
                consumer.assign([first])
                await consumer.seek_to_end(first)
                assert await consumer.position(first) == COUNT
                await consumer.seek_to_beginning(first)
                assert (await asyncio.wait_for(consumer.getone(), DEADLINE_S)).offset == 5
            finally:
                await consumer.stop()

        asyncio.run(run())


def test_no_topics_are_created_without_auto_create(own_broker: Callable[..., Broker], name: str) -> None:
    broker = own_broker({"auto.create.topics.enable": "false"})
    session = Session(broker.bootstrap)
    for version in (0, 4, 9, 13):
        response = session.call_unobserved("Metadata", version, {"topics": [{"name": name}]})
        assert response["topics"][0]["error_code"] == 3
    session.close()
