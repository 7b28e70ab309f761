"""A program that consumes, transforms and produces with confluent-kafka until it is killed.

python -m compat_tests.transactions.transformer BOOTSTRAP IN OUT GROUP TRANSACTIONAL-ID

It writes what it does to stderr: each assignment, and each transaction with the offsets that it read and committed.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

BATCH = 7
TIMEOUT_S = 20
HANGS_S = 2 * TIMEOUT_S
# By default a client bootstraps again when it has lost every broker; with one broker that is at each restart.
# send_offsets_to_transaction of librdkafka 2.16 may then wait for ever, past its timeout, on the group coordinator's
# old connection, which the client has already given up: in about one of ten runs of this program, whatever the broker
# returns. On a busy machine this has happened even with this setting, with a real Kafka: hence the watchdog.
RECOVERY = {"metadata.recovery.strategy": "none"}
DEBUG = {"debug": os.environ["ONCELOG_CLIENT_DEBUG"]} if "ONCELOG_CLIENT_DEBUG" in os.environ else {}


alive = threading.Event()


def say(text: str) -> None:
    print(f"{time.time():.3f} {os.getpid()} {text}", file=sys.stderr, flush=True)


def spans(messages: Sequence[Message]) -> str:
    """The first and last offset that were read of each partition."""
    offsets: dict[int | None, list[int | None]] = {}
    for message in messages:
        offsets.setdefault(message.partition(), []).append(message.offset())
    return " ".join(f"{partition}:{found[0]}-{found[-1]}" for partition, found in offsets.items())


def begin_at_committed(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Assign the partitions, each from its committed offset, without one from 0.

    With ``auto.offset.reset`` librdkafka 2.16 asks the broker for the first offset. If the broker dies meanwhile, and
    the group rebalances before it is back, the late response makes librdkafka fetch partitions that it no longer has.
    When it gets them back, it may deliver a batch of these records, and then all records from the first one: a batch
    twice within one assignment, with a real Kafka, too.
    """
    try:
        found = consumer.committed(partitions, TIMEOUT_S)
    except KafkaException as error:
        # The client's own exception leaves a callback as the KafkaError in it, which nobody expects.
        raise KafkaException(*error.args) from error
    for row in found:
        if row.error is not None:
            raise KafkaException(row.error)
        row.offset = max(row.offset, 0)
    say(f"assigned {' '.join(f'{row.partition}:{row.offset}' for row in found)}")
    consumer.assign(found)


def watch() -> None:
    """Start the program again if it does nothing for longer than any call may take."""
    while alive.wait(HANGS_S):
        alive.clear()
    say("restart: it hangs")
    os.execv(sys.executable, sys.orig_argv)


def transform(bootstrap: str, source: str, sink: str, group: str, transactional_id: str) -> None:
    """Run one producer and one consumer until an error that only a new producer can recover from."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "transaction.timeout.ms": 5000}
        | RECOVERY
        | DEBUG
    )
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 500,
        }
        | RECOVERY
        | DEBUG
    )
    try:
        producer.init_transactions(TIMEOUT_S)
        say("begins")
        consumer.subscribe([source], on_assign=begin_at_committed)
        while True:
            alive.set()
            messages = [one for one in consumer.consume(BATCH, 0.2) if one.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            try:
                for message in messages:
                    partition = message.partition()
                    assert partition is not None
                    producer.produce(sink, message.value(), partition=partition)
                positions = consumer.position(consumer.assignment())
                committed = " ".join(f"{row.partition}:{row.offset}" for row in positions)
                say(f"read {spans(messages)}, positions {committed}")
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
                producer.commit_transaction(TIMEOUT_S)
                say("committed")
            except KafkaException as error:
                say(f"aborts: {error}")
                producer.abort_transaction(TIMEOUT_S)
                say("aborted")
                raise
    finally:
        consumer.close()


def main() -> None:
    faulthandler.register(signal.SIGUSR1)  # a test that waits in vain asks for a traceback
    threading.Thread(target=watch, daemon=True).start()
    while True:
        try:
            transform(*sys.argv[1:])
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            say(f"restart: {reason.name()}")


if __name__ == "__main__":
    main()
