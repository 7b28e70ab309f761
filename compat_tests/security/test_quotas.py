"""Client quotas on both targets: who is throttled for how long, what tools print, what stock clients see."""

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, ThrottleEvent

from compat_tests.differential import Session
from tests.common.batches import WAIT_MS, batch, now_ms, record
from tests.common.definitions import Fields
from tests.common.frames import CLOSED, Connection
from tests.common.jars import RealPartMissing, require, run_tool, tool_command

Entity = dict[str, str | None]
Values = dict[str, float | None]
LIMIT = 1000
WINDOW_S = 10
"""Of the 11 samples that are kept, those that are complete."""
SLACK_MS = 500
"""The difference in a throttle time that the time between two requests may make."""
THROTTLED = 89
OWN_OF_A_PROXY = pytest.mark.also_on("proxy-own")


class Quotas:
    """Changes quotas and takes them back at the end."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._altered: list[tuple[Entity, str]] = []

    def alter(self, entity: Entity, values: Values) -> None:
        """Set values, and remove those that are None; wait until the broker knows of it."""
        ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
        names = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        change = {"entries": [{"entity": names, "ops": ops}], "validate_only": False}
        [row] = self._session.call_unobserved("AlterClientQuotas", 1, change)["entries"]
        assert row["error_code"] == 0, row
        self._altered += [(entity, key) for key, value in values.items() if value is not None]
        rows = [
            {"entity_type": kind, "match_type": 1 if name is None else 0, "match": name}
            for kind, name in entity.items()
        ]
        deadline = now_ms() + WAIT_MS
        while True:
            asked = {"components": rows, "strict": True}
            found = self._session.call_unobserved("DescribeClientQuotas", 1, asked)["entries"]
            now = {one["key"]: one["value"] for entry in found for one in entry["values"]}
            if all(now.get(key) == value for key, value in values.items()):
                return
            assert now_ms() < deadline, found

    def close(self) -> None:
        """Remove all that were set."""
        for entity, key in self._altered:
            self.alter(entity, {key: None})


@pytest.fixture
def session(bootstrap: str) -> Iterator[Session]:
    session = Session(bootstrap)
    yield session
    session.end()


@pytest.fixture
def quotas(session: Session) -> Iterator[Quotas]:
    with contextlib.closing(Quotas(session)) as quotas:
        yield quotas


def frame_size(name: str, records: bytes, client_id: str) -> int:
    """The bytes of a Produce of version 9, without its size."""
    fixed = 2 + 2 + 4 + 2 + 1  # header
    body = 1 + 2 + 4 + 1 + 1 + 1 + 4 + 1 + 1 + 1  # from transactional id to the tags
    return fixed + len(client_id) + body + len(name) + len(records) + varint_size(len(records) + 1)


def varint_size(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))


def produce(name: str, records: bytes) -> Fields:
    row = {"index": 0, "records": records}
    return {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 9000,
        "topic_data": [{"name": name, "partition_data": [row]}],
    }


LARGE = batch([record(value=bytes(15_000))])


@OWN_OF_A_PROXY
@pytest.mark.parametrize(
    ("kind", "wins"),
    [("client-id", "client-id"), ("user", "user"), ("both", "both"), ("default", "client-id")],
)
def test_the_first_large_produce_is_throttled_alike(
    bootstrap: str, session: Session, quotas: Quotas, name: str, kind: str, wins: str
) -> None:
    session.topic(name)
    client_id = f"client-{name}"
    entities: dict[str, Entity] = {
        "client-id": {"client-id": client_id},
        "user": {"user": "ANONYMOUS"},
        "both": {"user": "ANONYMOUS", "client-id": client_id},
        "default": {"client-id": None},
    }
    quotas.alter(entities[kind], {"producer_byte_rate": LIMIT})
    with Connection(bootstrap, client_id) as connection:
        began = time.monotonic()
        response = connection.call("Produce", 9, produce(name, LARGE))
        assert response["responses"][0]["partition_responses"][0]["error_code"] == 0
        wanted = frame_size(name, LARGE, client_id) * 1000 / LIMIT - WINDOW_S * 1000
        assert response["throttle_time_ms"] == pytest.approx(wanted, abs=SLACK_MS)
        assert time.monotonic() - began < response["throttle_time_ms"] / 1000, "the response comes first"
        quotas.alter(entities[kind], {"producer_byte_rate": 1e9})
        connection.call("ListGroups", 1, {})
        assert time.monotonic() - began >= response["throttle_time_ms"] / 1000 - 0.2
        again = connection.call("Produce", 9, produce(name, LARGE))
        assert again["throttle_time_ms"] == 0, "the change holds for the next request"


@OWN_OF_A_PROXY
def test_a_throttled_fetch_is_empty(bootstrap: str, session: Session, quotas: Quotas, name: str) -> None:
    session.topic(name)
    for _ in range(4):
        assert session.produce(name, batch([record(value=bytes(4000))]))["error_code"] == 0
    client_id = f"client-{name}"
    quotas.alter({"client-id": client_id}, {"consumer_byte_rate": LIMIT})

    def fetch(offset: int) -> Any:
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 6000}
        partition |= {"current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1}
        return connection.call(
            "Fetch",
            12,
            {
                "replica_id": -1,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": 6000,
                "isolation_level": 0,
                "session_id": 0,
                "session_epoch": -1,
                "topics": [{"topic": name, "partitions": [partition]}],
                "forgotten_topics_data": [],
                "rack_id": "",
            },
        )

    with Connection(bootstrap, client_id) as connection:
        first = fetch(0)
        assert first["throttle_time_ms"] == 0
        assert first["responses"]
        second = fetch(1)
        assert (second["error_code"], second["responses"]) == (0, [])
        assert second["throttle_time_ms"] == pytest.approx(2100, abs=SLACK_MS + 100)


@OWN_OF_A_PROXY
def test_changes_of_topics(session: Session, bootstrap: str, quotas: Quotas, name: str) -> None:
    client_id = f"client-{name}"
    quotas.alter({"client-id": client_id}, {"controller_mutation_rate": 1.0})

    def create(*counts: int) -> Any:
        rows = [
            {"name": f"{name}-{number}-{count}", "num_partitions": count, "replication_factor": 1}
            for number, count in enumerate(counts)
        ]
        return {"topics": rows, "timeout_ms": 9000, "validate_only": False}

    with Connection(bootstrap, client_id) as connection:
        response = connection.call("CreateTopics", 7, create(9, 4, 1))
        codes = sorted(row["error_code"] for row in response["topics"])
        assert codes == [0, 0, THROTTLED]
        [refused] = [row for row in response["topics"] if row["error_code"]]
        assert refused["error_message"] is None
        assert response["throttle_time_ms"] == pytest.approx(2000, abs=SLACK_MS)
    with Connection(bootstrap, client_id) as connection:
        response = connection.call("CreateTopics", 5, create(2))
        assert [row["error_code"] for row in response["topics"]] == [0], "older clients are only throttled"
        assert response["throttle_time_ms"] == pytest.approx(4000, abs=SLACK_MS)


@OWN_OF_A_PROXY
def test_the_share_of_time_throttles_for_no_more_than_a_window(
    bootstrap: str, quotas: Quotas, name: str
) -> None:
    client_id = f"client-{name}"
    quotas.alter({"client-id": client_id}, {"request_percentage": 0.0001})
    with Connection(bootstrap, client_id) as connection:
        times = [connection.call("ListGroups", 1, {})["throttle_time_ms"] for _ in range(3)]
    assert times == [1000] * 3


@OWN_OF_A_PROXY
def test_connections_of_an_address(bootstrap: str, quotas: Quotas) -> None:
    quotas.alter({"ip": "127.0.0.77"}, {"connection_creation_rate": 1})
    served = 0
    for _ in range(12):
        with Connection(bootstrap, source="127.0.0.77") as connection:
            try:
                answer = connection.call("ListGroups", 1, {})
            except ConnectionError:
                answer = CLOSED
            if answer == CLOSED:
                break
            served += 1
    assert served in (10, 11)


@pytest.fixture
def tool(bootstrap: str) -> Callable[..., str]:
    try:
        tool_command("none")
    except RealPartMissing as missing:
        require(str(missing))

    def run(*arguments: str, check: bool = True) -> str:
        ran = run_tool(
            "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", bootstrap, *arguments, check=check
        )
        return ran.stdout + ("" if check else ran.stderr)

    return run


@OWN_OF_A_PROXY
@pytest.mark.slow
def test_kafka_configs(session: Session, quotas: Quotas, name: str, tool: Callable[..., str]) -> None:
    def described(*entity: str, line: str) -> None:
        """Kafka's broker learns of a change a moment after the tool has ended."""
        deadline = now_ms() + 30_000
        while (shown := tool("--describe", *entity)) != line:
            assert now_ms() < deadline, shown

    user = ("--entity-type", "users", "--entity-name", name)
    both = (*user, "--entity-type", "clients", "--entity-name", "app")
    config = "producer_byte_rate=100000000,request_percentage=12500.5"
    assert tool("--alter", *user, "--add-config", config) == f"Completed updating config for user {name}.\n"
    described(
        *user,
        line=f"Quota configs for user-principal '{name}' are request_percentage=12500.5, producer_byte_rate=1.0E8\n",
    )
    tool("--alter", *both, "--add-config", "consumer_byte_rate=100000000")
    described(
        *both,
        line=f"Quota configs for user-principal '{name}', client-id 'app' are consumer_byte_rate=1.0E8\n",
    )
    default = ("--entity-type", "ips", "--entity-default")
    tool("--alter", *default, "--add-config", "connection_creation_rate=100000")
    described(*default, line="Quota configs for the default ip are connection_creation_rate=100000.0\n")
    tool("--alter", *default, "--delete-config", "connection_creation_rate")
    tool("--alter", *both, "--delete-config", "consumer_byte_rate")
    tool("--alter", *user, "--delete-config", "producer_byte_rate,request_percentage")
    described(*user, line="")
    refused = tool("--alter", *user, "--add-config", "producer_byte_rate=-1", check=False)
    assert "Quota producer_byte_rate must be greater than 0" in refused


@OWN_OF_A_PROXY
def test_librdkafka_sees_its_throttle_time(
    bootstrap: str, session: Session, quotas: Quotas, name: str
) -> None:
    session.topic(name)
    client_id = f"client-{name}"
    quotas.alter({"client-id": client_id}, {"producer_byte_rate": LIMIT})
    seen: list[float] = []

    def throttled(event: ThrottleEvent) -> None:
        seen.append(event.throttle_time)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": client_id, "throttle_cb": throttled, "linger.ms": 0}
    )
    producer.produce(name, bytes(20_000))
    deadline = now_ms() + WAIT_MS
    while not seen:
        assert now_ms() < deadline
        producer.poll(0.1)
    assert seen[0] == pytest.approx(10, abs=1)


@OWN_OF_A_PROXY
@pytest.mark.slow
def test_a_java_producer_sees_its_throttle_time(
    bootstrap: str, session: Session, quotas: Quotas, name: str, tool: Callable[..., str]
) -> None:
    session.topic(name)
    client_id = f"client-{name}"
    quotas.alter({"client-id": client_id}, {"producer_byte_rate": LIMIT})
    properties = (f"bootstrap.servers={bootstrap}", f"client.id={client_id}", "acks=1")
    ran = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", name, "--num-records", "1", "--record-size", "15000", "--throughput", "-1"),
        *("--print-metrics", "--producer-props", *properties),
    )
    [text] = re.findall(r"producer-metrics:produce-throttle-time-max:.*?: ([0-9.]+)", ran.stdout)
    assert float(text) == pytest.approx(5_100, abs=SLACK_MS)


def test_a_host_by_its_name(session: Session, quotas: Quotas) -> None:
    name = socket.gethostname()
    quotas.alter({"ip": name}, {"connection_creation_rate": 1_000_000})
    entity = [{"entity_type": "ip", "entity_name": "nowhere.invalid"}]
    ops = [{"key": "connection_creation_rate", "value": 1.0, "remove": False}]
    change = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
    [row] = session.call_unobserved("AlterClientQuotas", 1, change)["entries"]
    assert row["error_code"] == 42
    assert "nowhere.invalid is not a valid IP or resolvable host" in row["error_message"]


def test_connections_of_a_listener(bootstrap: str, session: Session) -> None:
    """The listener's own rate, set and taken back while it is open."""
    key = "listener.name.plaintext.max.connection.creation.rate"

    def alter(value: str | None) -> tuple[int, str | None]:
        change = {"name": key, "config_operation": 1 if value is None else 0, "value": value}
        resource = {"resource_type": 4, "resource_name": "1", "configs": [change]}
        [row] = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})["responses"]
        return row["error_code"], row["error_message"]

    def longest_wait_s(connections: int) -> float:
        longest = 0.0
        for _ in range(connections):
            began = time.monotonic()
            with Connection(bootstrap) as connection:
                connection.call("ListGroups", 1, {})
            longest = max(longest, time.monotonic() - began)
        return longest

    code, message = alter("0")
    assert code == 42
    assert "Invalid max.connection.creation.rate 0" in (message or "")
    assert alter("many")[0] == 42
    assert alter("1") == (0, None)
    try:
        deadline = time.monotonic() + 20
        while longest_wait_s(3) < 0.7:  # Kafka's broker learns of the change a moment later
            assert time.monotonic() < deadline
        resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": [key]}
        [result] = session.call_unobserved("DescribeConfigs", 4, {"resources": [resource]})["results"]
        [row] = result["configs"]
        assert (row["name"], row["value"], row["config_source"], row["read_only"]) == (key, "1", 2, True)
    finally:
        assert alter(None) == (0, None)
    deadline = time.monotonic() + 20
    while longest_wait_s(20) > 0.7:
        assert time.monotonic() < deadline
