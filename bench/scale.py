"""The server's CPU per request with many partitions and with many connections, which must not grow."""

from collections.abc import Callable
from functools import partial

from bench import topics
from bench.experiment import Experiment, Harness, Row, ours_at_most
from bench.measure import cpu_s
from bench.raw import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Template,
    batch,
    connect,
    fetch_fields,
    produce_fields,
    send_windowed,
    wait_for_offsets,
)
from bench.servers import Kind, Server
from tests.common.definitions import decode

FEW_PARTITIONS, MANY_PARTITIONS = 10, 10_000
FEW_CONNECTIONS, MANY_CONNECTIONS = 8, 2_000
WINDOW = 8
REQUESTS = 30_000
VALUE = b"v" * 100
STRIDE = 7919  # a prime: visits every partition, and never two neighbours in a row

FEW = f"{FEW_PARTITIONS} partitions, {FEW_CONNECTIONS} connections"
MANY_P = f"{MANY_PARTITIONS:,} partitions"
MANY_C = f"{MANY_CONNECTIONS:,} connections"
LOADS = {
    FEW: (FEW_PARTITIONS, FEW_CONNECTIONS),
    MANY_P: (MANY_PARTITIONS, FEW_CONNECTIONS),
    MANY_C: (FEW_PARTITIONS, MANY_CONNECTIONS),
}
GROWTH_MAX = 1.15  # 1, and the noise between two measurements
APIS: dict[str, tuple[int, Callable[[str, int], dict[str, object]]]] = {
    "Produce": (PRODUCE_VERSION, lambda topic, partition: produce_fields(topic, partition, batch(VALUE))),
    "Fetch": (FETCH_VERSION, fetch_fields),
}


def _row(api: str, load: str) -> str:
    return f"server CPU per {api}, {load}"


def _growth(api: str, load: str) -> str:
    return f"cost of a {api} with {load}, against few"


def _check(api: str, version: int, response: bytes) -> None:
    """Raise RuntimeError for an error in the response (which has a flexible header)."""
    fields = decode(f"{api}Response", version, response[5:])
    topic = fields["responses"][0]
    partition = topic["partition_responses" if api == "Produce" else "partitions"][0]
    if partition["error_code"]:
        raise RuntimeError(f"{api}: error {partition['error_code']}")


def cost_of_requests(
    harness: Harness, server: Server, partitions: int = FEW_PARTITIONS, connections: int = FEW_CONNECTIONS
) -> dict[str, float]:
    """Microseconds of server CPU per request of each API."""
    if harness.scale < 1:
        partitions = max(FEW_PARTITIONS, partitions // 10)
    topic = harness.name("scale")
    topics.create(server, topic, partitions=partitions)
    wait_for_offsets(server.bootstrap, topic, partitions)
    cost: dict[str, float] = {}
    opened = connect(server.bootstrap, connections)
    try:
        for api, (version, fields) in APIS.items():
            template = Template(api, version, partial(fields, topic))

            def frame(number: int, template: Template = template) -> bytes:
                return template.frame(number * STRIDE % partitions)

            # First use every partition and connection: opening them is not part of a request's cost.
            _check(
                api,
                version,
                send_windowed(
                    opened, frame, max(partitions, connections, harness.count(REQUESTS // 3)), WINDOW
                ),
            )
            count, before = harness.count(REQUESTS), cpu_s(server.pid)
            _check(api, version, send_windowed(opened, frame, count, WINDOW))
            cost[api] = 1e6 * (cpu_s(server.pid) - before) / count
    finally:
        for connection in opened:
            connection.close()
    return cost


def _run(harness: Harness, kind: Kind) -> None:
    few: dict[str, float] = {}
    for load in LOADS:
        # Each load has its own server: flushes after ten thousand partitions must not count for the next load.
        with harness.fresh_server(kind) as fresh:
            server = fresh.server.start()
            cost_of_requests(harness, server)  # warms up the JVM
            cost = cost_of_requests(harness, server, *LOADS[load])
        few = few or cost
        for api in APIS:
            harness.record(_row(api, load), kind, cost[api])
            if load != FEW:
                harness.record(_growth(api, load), kind, cost[api] / few[api])


ROWS = (
    *(Row(_row(api, load), "us") for api in APIS for load in LOADS),
    *(Row(_growth(api, load), "x", ours_at_most(GROWTH_MAX)) for api in APIS for load in (MANY_P, MANY_C)),
)
EXPERIMENTS = (Experiment("scale", ROWS, _run, rounds_max=2),)
