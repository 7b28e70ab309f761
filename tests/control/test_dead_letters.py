"""The dead-letter queues of share groups as a test sees them, filled by confluent-kafka's share consumers."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

import oncelog
from tests.harness.stock_share_consumers import PATIENCE_S, consuming_share_group, poll

GROUP, QUEUE = "workers", "dlq.workers"
ENABLED = {"errors.deadletterqueue.group.enable": True}
TOPICS = {"jobs": 1, QUEUE: {"config": ENABLED}}
CONFIG = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": QUEUE}
COPIES = {"errors.deadletterqueue.copy.record.enable": True}
consuming = partial(consuming_share_group, group_id=GROUP, topic="jobs")
REJECTED, TOO_OFTEN = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=TOPICS) as broker:
        broker.share_group(GROUP).configure(CONFIG)
        yield broker


def reject(consumer: Any, count: int) -> None:
    """Reject the next records, so many."""
    while count > 0:
        for message in poll(consumer):
            consumer.acknowledge(message, AcknowledgeType.REJECT)
            count -= 1
        consumer.commit_sync(PATIENCE_S)


def positions(letters: list[oncelog.DeadLetter]) -> list[tuple[str, int, int]]:
    return [(one.topic, one.partition, one.offset) for one in letters]


def test_what_a_dead_letter_tells(kafka: oncelog.Broker) -> None:
    group = kafka.share_group(GROUP)
    assert group.dead_letters() == []
    group.configure({**COPIES, "share.delivery.count.limit": 2})
    kafka.produce_many("jobs", [("a", "sweep"), ("b", "paint")])
    before = kafka.clock.now_ms()
    with consuming(kafka) as consumer:
        for kinds in ((AcknowledgeType.REJECT, AcknowledgeType.RELEASE), (AcknowledgeType.RELEASE,)):
            for message, kind in zip(poll(consumer), kinds, strict=True):
                consumer.acknowledge(message, kind)
            consumer.commit_sync(PATIENCE_S)
        letters = group.wait_for_dead_letters(2, timeout=PATIENCE_S)
    about: dict[str, Any] = {
        "topic": "jobs",
        "partition": 0,
        "group_id": GROUP,
        "queue": QUEUE,
        "queue_partition": 0,
    }
    times = [one.timestamp for one in letters]
    assert letters == group.dead_letters() == [
        oncelog.DeadLetter(
            offset=0, delivery_count=1, reason=REJECTED, queue_offset=0, timestamp=times[0], key=b"a",
            value=b"sweep", **about,
        ),
        oncelog.DeadLetter(
            offset=1, delivery_count=2, reason=TOO_OFTEN, queue_offset=1, timestamp=times[1], key=b"b",
            value=b"paint", **about,
        ),
    ]  # fmt: skip
    assert before <= times[0] <= times[1] <= kafka.clock.now_ms()


def test_without_copies_there_is_neither_key_nor_value(kafka: oncelog.Broker) -> None:
    kafka.produce("jobs", "sweep", key="a")
    with consuming(kafka) as consumer:
        reject(consumer, 1)
        [letter] = kafka.share_group(GROUP).wait_for_dead_letters(timeout=PATIENCE_S)
    assert (letter.key, letter.value, letter.offset) == (None, None, 0)


def test_records_of_others_in_the_queue_are_left_out(kafka: oncelog.Broker) -> None:
    kafka.produce(QUEUE, "of a program")
    kafka.produce(QUEUE, None, headers={"__dlq.errors.group": GROUP, "__dlq.errors.offset": "x"})
    kafka.share_group("others").configure(CONFIG)
    kafka.produce("jobs", "sweep")
    with consuming(kafka) as consumer:
        reject(consumer, 1)
        [letter] = kafka.share_group(GROUP).wait_for_dead_letters(timeout=PATIENCE_S)
    assert (letter.offset, letter.queue_offset) == (0, 2)
    assert kafka.share_group("others").dead_letters() == []


def test_asynchronous_code_waits_for_them() -> None:
    async def main() -> None:
        async with oncelog.AsyncBroker(topics=TOPICS) as kafka:
            group = kafka.share_group(GROUP)
            await group.configure(CONFIG)
            waiting = asyncio.create_task(group.wait_for_dead_letters(timeout=PATIENCE_S))
            names = "topic", "partition", "offset", "group", "delivery.count", "message"
            texts = "jobs", "0", "7", GROUP, "3", REJECTED
            headers = {f"__dlq.errors.{name}": text for name, text in zip(names, texts, strict=True)}
            await kafka.produce(QUEUE, None, headers=headers)
            assert positions(await waiting) == positions(await group.dead_letters()) == [("jobs", 0, 7)]

    asyncio.run(main())


def test_a_group_without_a_queue_is_an_error_in_one_line(kafka: oncelog.Broker) -> None:
    with pytest.raises(oncelog.NotFoundError) as caught:
        kafka.share_group("worker").dead_letters()
    assert str(caught.value) == (
        "share group worker has no dead-letter queue; did you mean workers? (kafka.share_group('worker').configure("
        "{'errors.deadletterqueue.topic.name': 'dlq.worker'}) names one)"
    )
    kafka.share_group(GROUP).configure({"errors.deadletterqueue.topic.name": "dlq.wrokers"})
    with pytest.raises(oncelog.NotFoundError) as caught:
        kafka.share_group(GROUP).dead_letters()
    assert str(caught.value) == (
        "the dead-letter queue of share group workers does not exist: topic 'dlq.wrokers'; did you mean dlq.workers? "
        "(errors.deadletterqueue.auto.create.topics.enable=true lets the broker create it with the first record)"
    )


def test_a_wait_begins_before_the_group_and_its_queue_are_there() -> None:
    with oncelog.Broker(
        topics=["jobs"], config={"errors.deadletterqueue.auto.create.topics.enable": True}
    ) as kafka:
        group = kafka.share_group(GROUP)
        found: list[oncelog.DeadLetter] = []
        waiting = threading.Thread(
            target=lambda: found.extend(group.wait_for_dead_letters(2, timeout=PATIENCE_S))
        )
        waiting.start()
        group.configure(CONFIG)
        kafka.produce_many("jobs", ["sweep", "paint"])
        with consuming(kafka) as consumer:
            reject(consumer, 2)
            waiting.join(PATIENCE_S)
        assert positions(found) == [("jobs", 0, 0), ("jobs", 0, 1)]
        assert kafka.topic(QUEUE).info.overrides == {
            "errors.deadletterqueue.group.enable": "true",
            "message.timestamp.type": "CreateTime",
        }


def test_a_wait_sees_that_the_queue_was_created_anew(kafka: oncelog.Broker) -> None:
    kafka.produce_many("jobs", ["sweep", "paint"])
    group = kafka.share_group(GROUP)
    found: list[oncelog.DeadLetter] = []
    with consuming(kafka) as consumer:
        messages = poll(consumer)
        consumer.acknowledge(messages[0], AcknowledgeType.REJECT)
        consumer.commit_sync(PATIENCE_S)
        group.wait_for_dead_letters(1, timeout=PATIENCE_S)
        waiting = threading.Thread(
            target=lambda: found.extend(group.wait_for_dead_letters(2, timeout=PATIENCE_S))
        )
        waiting.start()
        kafka.topic(QUEUE).delete()
        kafka.create_topic(QUEUE, config=ENABLED)
        consumer.acknowledge(messages[1], AcknowledgeType.REJECT)
        consumer.commit_sync(PATIENCE_S)
        group.wait_for_dead_letters(1, timeout=PATIENCE_S)
        kafka.produce("jobs", "sand")
        reject(consumer, 1)
        waiting.join(PATIENCE_S)
    assert positions(found) == [("jobs", 0, 1), ("jobs", 0, 2)]


def test_a_wait_that_times_out_says_why(kafka: oncelog.Broker) -> None:
    group = kafka.share_group(GROUP)
    with pytest.raises(
        oncelog.WaitTimeoutError, match=r"workers has not got 1 dead letters in 0 s: it has 0\n"
    ):
        group.wait_for_dead_letters(timeout=0)
    with pytest.raises(
        oncelog.WaitTimeoutError, match=r"in 0 s: share group worker has no dead-letter queue; did"
    ):
        kafka.share_group("worker").wait_for_dead_letters(timeout=0)
    for wrong in ({"count": -1}, {"count": True}, {"timeout": -1}):
        with pytest.raises(oncelog.InvalidArgumentError):
            group.wait_for_dead_letters(**wrong)
    kafka.create_topic("dlq.other")
    group.configure({"errors.deadletterqueue.topic.name": "dlq.other"})
    kafka.produce("jobs", "sweep")
    with consuming(kafka) as consumer:
        reject(consumer, 1)
        group.wait_for(lag=0, timeout=PATIENCE_S)
    with pytest.raises(oncelog.WaitTimeoutError) as caught:
        group.wait_for_dead_letters(timeout=0)
    assert (
        "it has 0; the broker's log: group=workers topic=jobs partition=0 first_offset=0 last_offset=0 reason='DLQ is "
        "not enabled on configured DLQ topic for share group: workers, topic: dlq.other.'"
    ) in str(caught.value)


def test_moved_time_tells_of_dead_letters(kafka: oncelog.Broker) -> None:
    group = kafka.share_group(GROUP)
    group.configure({"share.delivery.count.limit": 2})
    kafka.produce_many("jobs", ["sweep", "paint"])

    def lose_locks(client_id: str) -> list[oncelog.Occurrence]:
        with consuming(kafka, client_id=client_id) as consumer:
            poll(consumer)
            return kafka.clock.advance(seconds=31)

    assert [one.what for one in lose_locks("one")] == ["record locks ended"]
    assert [str(one) for one in lose_locks("two")] == [
        "share group workers, topic jobs partition 0: locks of 2 records ended",
        "share group workers, topic jobs partition 0: 2 records written to dlq.workers",
    ]
    assert [one.delivery_count for one in group.dead_letters()] == [2, 2]
    group.configure({"errors.deadletterqueue.topic.name": "other"})
    kafka.produce("jobs", "sand")
    lose_locks("three")
    happened = lose_locks("four")
    assert [one.what for one in happened] == ["record locks ended", "archived without a dead letter"]
    assert str(happened[1]) == (
        "share group workers, topic jobs partition 0: 1 record archived without a dead letter: Configured DLQ topic "
        "name does not comply with the DLQ topic prefix in share group: workers, topic: other, prefix: dlq.."
    )


def test_a_group_that_reads_its_own_queue_is_warned_of_once(kafka: oncelog.Broker) -> None:
    kafka.produce(QUEUE, "sweep")
    with consuming(kafka, topic=QUEUE) as consumer:
        reject(consumer, 4)
        letters = kafka.share_group(GROUP).wait_for_dead_letters(4, timeout=PATIENCE_S)
    assert positions(letters) == [(QUEUE, 0, offset) for offset in range(4)]
    [line] = [line for line in kafka.log_lines if "reads its own dead-letter queue" in line]
    assert "WARNING" in line
    assert line.endswith("group=workers topic=dlq.workers")


def test_with_an_older_share_version_nothing_is_written() -> None:
    with oncelog.Broker(topics=TOPICS, version="4.3") as kafka:
        group = kafka.share_group(GROUP)
        group.configure(CONFIG)
        kafka.produce("jobs", "sweep")
        with consuming(kafka) as consumer:
            reject(consumer, 1)
            group.wait_for(lag=0, timeout=PATIENCE_S)
        assert group.dead_letters() == []
        with pytest.raises(
            oncelog.WaitTimeoutError, match=r"; with share\.version below 2 nothing is written"
        ):
            group.wait_for_dead_letters(timeout=0)


def test_through_a_proxy_the_cluster_writes_the_queue(kafka: oncelog.Broker) -> None:
    with oncelog.Proxy(kafka.bootstrap_servers) as proxy:
        group = proxy.share_group(GROUP)
        group.configure(COPIES)
        assert group.dead_letters() == []
        kafka.produce("jobs", "sweep", key="a")
        with consuming(proxy) as consumer:
            reject(consumer, 1)
            [letter] = group.wait_for_dead_letters(timeout=PATIENCE_S)
        assert letter == kafka.share_group(GROUP).dead_letters()[0]
        assert (letter.key, letter.value) == (b"a", b"sweep")
        with pytest.raises(oncelog.WaitTimeoutError, match=r"has not got 2 dead letters in 0 s: it has 1$"):
            group.wait_for_dead_letters(2, timeout=0)
        with pytest.raises(oncelog.NotFoundError, match="share group others has no dead-letter queue"):
            proxy.share_group("others").dead_letters()
        group.configure({"errors.deadletterqueue.topic.name": "dlq.none"})
        with pytest.raises(oncelog.NotFoundError, match=r"topic 'dlq.none'"):
            group.dead_letters()


@pytest.mark.parametrize("point", ["before append", "after append"])
def test_the_broker_dies_while_the_queue_is_written(
    kafka: oncelog.Broker, point: str, tmp_path: pathlib.Path
) -> None:
    """The state ARCHIVING is kept first: the record is there after the crash, after another, and in a snapshot."""
    group = kafka.share_group(GROUP)
    kafka.produce("jobs", "sweep")
    rule = kafka.faults.crash_at(point, topic=QUEUE)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe(["jobs"])
    [message] = poll(consumer)
    consumer.acknowledge(message, AcknowledgeType.REJECT)
    consumer.commit_async()
    rule.wait_fired(timeout=PATIENCE_S)
    seed = tmp_path / "seed.oncelog"
    kafka.snapshot(seed)
    with suppress(KafkaException):
        consumer.close()
    times = 2 if point == "after append" else 1
    kafka.start()
    with oncelog.Broker(from_snapshot=seed) as other:
        for broker in (kafka, other):
            [held] = broker.share_group(GROUP).in_flight["jobs"][0]
            assert (held.state, held.first_offset, held.delivery_count) == ("archiving", 0, 1)
            with consuming(broker) as consumer:
                consumer.poll(0.1)
                letters = broker.share_group(GROUP).wait_for_dead_letters(times, timeout=PATIENCE_S)
                broker.share_group(GROUP).wait_for(lag=0, timeout=PATIENCE_S)
            assert positions(letters) == [("jobs", 0, 0)] * times
    assert group.dead_letters()[0].delivery_count == 1
