"""What one request costs the server with many partitions and with many connections: it must not grow."""

from collections.abc import Callable

from bench import topics
from bench.experiment import Experiment, Lab, Row, ours_at_most
from bench.measure import cpu_s
from bench.raw import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    Template,
    batch,
    connect,
    fetch_fields,
    produce_fields,
    slide,
    wait_until_listed,
)
from bench.servers import Kind, Server
from compat_tests.definitions import decode
from compat_tests.frames import Connection

FEW_PARTITIONS, MANY_PARTITIONS = 10, 10_000
FEW_CONNECTIONS, MANY_CONNECTIONS = 8, 2_000
WINDOW = 8
REQUESTS = 30_000
VALUE = b"v" * 100
STRIDE = 7919  # a prime: visits every partition, neighbours never in a row

FEW = f"{FEW_PARTITIONS} partitions, {FEW_CONNECTIONS} connections"
MANY_P = f"{MANY_PARTITIONS:,} partitions"
MANY_C = f"{MANY_CONNECTIONS:,} connections"
LOADS = {
    FEW: (FEW_PARTITIONS, FEW_CONNECTIONS),
    MANY_P: (MANY_PARTITIONS, FEW_CONNECTIONS),
    MANY_C: (FEW_PARTITIONS, MANY_CONNECTIONS),
}
GROWTH_MAX = 1.15  # 1, and what two measurements of the same may differ by
APIS: dict[str, tuple[int, Callable[[str, int], dict[str, object]]]] = {
    "Produce": (PRODUCE_VERSION, lambda topic, partition: produce_fields(topic, partition, batch(VALUE))),
    "Fetch": (FETCH_VERSION, fetch_fields),
}


def _row(api: str, load: str) -> str:
    return f"server CPU per {api}, {load}"


def _growth(api: str, load: str) -> str:
    return f"cost of a {api} with {load}, against few"


def _check(api: str, version: int, answer: bytes) -> None:
    """The answer (after a flexible header) has no error."""
    fields = decode(f"{api}Response", version, answer[5:])
    topic = fields["responses"][0]
    partition = topic["partition_responses" if api == "Produce" else "partitions"][0]
    if partition["error_code"]:
        raise RuntimeError(f"{api}: error {partition['error_code']}")


def _measure(lab: Lab, kind: Kind, server: Server, load: str) -> dict[str, float]:
    """Microseconds of server CPU per request of each API."""
    partitions, connections = LOADS[load]
    if lab.scale < 1:
        partitions = max(FEW_PARTITIONS, partitions // 10)
    topic = lab.name("scale")
    topics.create(server, topic, partitions=partitions)
    wait_until_listed(server.bootstrap, topic, partitions)
    cost: dict[str, float] = {}
    opened = connect(server.bootstrap, connections)
    try:
        for api, (version, fields) in APIS.items():
            with Connection(server.bootstrap) as maker:
                template = Template(maker, api, version, lambda one, fields=fields: fields(topic, one))  # type: ignore[misc]

            def frame(number: int, template: Template = template) -> bytes:
                return template.frame(number * STRIDE % partitions)

            # Once round everything first: opening a log or a connection is not the cost of a request.
            _check(
                api,
                version,
                slide(opened, frame, max(partitions, connections, lab.count(REQUESTS // 3)), WINDOW),
            )
            count, before = lab.count(REQUESTS), cpu_s(server.pid)
            _check(api, version, slide(opened, frame, count, WINDOW))
            cost[api] = 1e6 * (cpu_s(server.pid) - before) / count
            lab.record(_row(api, load), kind, cost[api])
    finally:
        for one in opened:
            one.close()
    return cost


def _run(lab: Lab, kind: Kind) -> None:
    few: dict[str, float] = {}
    for load in LOADS:
        # A server of its own for each: what ten thousand partitions leave to be flushed is not the next one's cost.
        with lab.fresh_server(kind) as fresh:
            server = fresh.server.start()
            with lab.unrecorded():
                _measure(lab, kind, server, FEW)  # the JVM compiles
            cost = _measure(lab, kind, server, load)
        few = few or cost
        for api in APIS if load != FEW else ():
            lab.record(_growth(api, load), kind, cost[api] / few[api])


ROWS = (
    *(Row(_row(api, load), "us") for api in APIS for load in LOADS),
    *(Row(_growth(api, load), "x", ours_at_most(GROWTH_MAX)) for api in APIS for load in (MANY_P, MANY_C)),
)
EXPERIMENTS = (Experiment("scale", ROWS, _run, rounds_max=2),)
