"""As ShareWorker.java, with confluent-kafka's ShareConsumer, which cannot renew locks nor limit the records."""

from __future__ import annotations

import json
import random
import sys
import time

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

TYPES = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)


def write(event: str, rows: list[tuple[int | None, int | None, int]]) -> None:
    print(json.dumps({"at": time.time_ns() // 1_000_000, "event": event, "records": rows}), flush=True)


def main(servers: str, topic: str, group: str, seed: str, mode: str, _acquire_mode: str = "") -> None:
    rng = random.Random(int(seed))
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "share.acknowledgement.mode": mode,
        "max.poll.records": rng.randrange(1, 20),
    }
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        while True:
            try:
                round_trip(consumer, rng, explicit=mode == "explicit")
            except KafkaException as error:
                print(error, file=sys.stderr, flush=True)


def round_trip(consumer: ShareConsumer, rng: random.Random, *, explicit: bool) -> None:
    records = [one for one in consumer.poll(0.2) if one.error() is None]
    if not records:
        return
    write("got", [(one.partition(), one.offset(), one.delivery_count() or 0) for one in records])
    said = {}
    for one in records:
        kind = rng.choices(TYPES, (80, 17, 3))[0] if explicit else AcknowledgeType.ACCEPT
        said[one.partition(), one.offset()] = kind
        if explicit:
            consumer.acknowledge(one, kind)
    results = consumer.commit_sync(30.0)
    done = {one.partition for one, error in results.items() if error is None}
    write("said", [(*key, int(kind)) for key, kind in said.items() if key[0] in done])


if __name__ == "__main__":
    main(*sys.argv[1:])
