"""`python -m bench.hostile_batches`: how long do others wait for batches that take long, on oncelog and on Kafka?

Each batch of `compat_tests.large_batches` is sent to a topic that keeps the producer's codec, and to one that
recompresses. Another connection sends ApiVersions all the time. The table has its longest wait, how long the Produce
took, and its outcome.
"""

import argparse
import sys
import time
from collections.abc import Iterator

from bench.hostile import RESPONSE_TIMEOUT_S, Bystander
from compat_tests.frames import Connection
from compat_tests.large_batches import LARGE_BATCHES
from compat_tests.oncelog_server import Oncelog
from compat_tests.real_kafka import RealKafka
from oncelog.wire.errors import ErrorCode

COMPRESSIONS = ("producer", "gzip")
PRODUCE_VERSION = 9


def measured(bootstrap: str) -> Iterator[tuple[str, float, float, str]]:
    """What was sent, the longest wait of others (seconds), how long the request took (seconds), and its outcome."""
    bystander = Bystander(bootstrap)
    bystander.start()
    with Connection(bootstrap) as connection:
        connection.socket.settimeout(RESPONSE_TIMEOUT_S)
        for compression in COMPRESSIONS:
            configs = [{"name": "compression.type", "value": compression}]
            topic = {"num_partitions": 1, "replication_factor": 1, "configs": configs}
            for number, (name, make) in enumerate(LARGE_BATCHES.items()):
                topic_name = f"{compression}-{number}"
                connection.call(
                    "CreateTopics", 5, {"topics": [{**topic, "name": topic_name}], "timeout_ms": 9000}
                )
                data = make(1).batch()
                rows = [{"name": topic_name, "partition_data": [{"index": 0, "records": data}]}]
                body = {"acks": 1, "timeout_ms": 60_000, "topic_data": rows}
                label = f"{name}, {len(data):,} bytes" + ("" if compression == "producer" else ", to gzip")
                time.sleep(0.2)
                bystander.longest = 0.0
                began = time.perf_counter()
                response = connection.call("Produce", PRODUCE_VERSION, body)
                took = time.perf_counter() - began
                code = response["responses"][0]["partition_responses"][0]["error_code"]
                yield label, bystander.longest, took, ErrorCode(code).name


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.hostile_batches", description=__doc__)
    parser.add_argument("--no-kafka", action="store_true", help="only oncelog")
    options = parser.parse_args()
    found: dict[str, list[str]] = {}
    targets = (Oncelog,) if options.no_kafka else (Oncelog, RealKafka)
    for target in targets:
        with target() as broker:
            for label, longest, took, outcome in measured(broker.bootstrap):
                cell = f"{longest * 1000:.0f} ms ({took:.2f} s, {outcome})"
                print(target.__name__, label, cell, file=sys.stderr, flush=True)
                found.setdefault(label, []).append(cell)
    print(f"| request | {' | '.join(target.__name__ for target in targets)} |")
    for label, cells in found.items():
        print(f"| {label} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
