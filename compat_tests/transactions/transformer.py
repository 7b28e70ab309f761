"""Consume, transform, produce, with confluent-kafka: run as a program, until it is killed.

python -m compat_tests.transactions.transformer BOOTSTRAP IN OUT GROUP TRANSACTIONAL-ID
"""

import faulthandler
import os
import signal
import sys
import threading

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

BATCH = 7
TIMEOUT_S = 20
HANGS_S = 2 * TIMEOUT_S
# The default is to bootstrap again when every broker was lost, which with one broker is each restart of it. librdkafka
# 2.16 may then leave send_offsets_to_transaction waiting for ever, past its time-out, on the group coordinator's old
# connection, which it has already given up: about once in ten runs of this program, whatever the broker answers. On a
# busy machine that was seen even so, with a real Kafka: hence the watchdog.
RECOVERY = {"metadata.recovery.strategy": "none"}
DEBUG = {"debug": os.environ["ONCELOG_CLIENT_DEBUG"]} if "ONCELOG_CLIENT_DEBUG" in os.environ else {}


alive = threading.Event()


def watch() -> None:
    """Begin this program again, as a new process would, when it does nothing for longer than any call may take."""
    while alive.wait(HANGS_S):
        alive.clear()
    print("again: it hangs", file=sys.stderr, flush=True)
    os.execv(sys.executable, sys.orig_argv)


def transform(bootstrap: str, source: str, sink: str, group: str, transactional_id: str) -> None:
    """One producer and one consumer, until an error that only a new producer gets over."""
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
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 500,
        }
        | RECOVERY
        | DEBUG
    )
    try:
        producer.init_transactions(TIMEOUT_S)
        consumer.subscribe([source])
        while True:
            alive.set()
            messages = [one for one in consumer.consume(BATCH, 0.2) if one.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            try:
                for message in messages:
                    producer.produce(sink, message.value(), partition=message.partition())
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
                producer.commit_transaction(TIMEOUT_S)
            except KafkaException:
                producer.abort_transaction(TIMEOUT_S)
                raise
    finally:
        consumer.close()


def main() -> None:
    faulthandler.register(signal.SIGUSR1)  # asked where it stands when a test waits in vain
    threading.Thread(target=watch, daemon=True).start()
    while True:
        try:
            transform(*sys.argv[1:])
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            print(f"again: {reason.name()}", file=sys.stderr)


if __name__ == "__main__":
    main()
