"""The attacks by name: each a request of at most a megabyte, or a few, that costs its server much.

`ATTACKS` are those that take time, `MEMORY` those that take memory. An attack prepares what it needs on a server, and
returns what it sends: again and again, each time on connections of its own.
"""

import base64
import itertools
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.hostile.arrays import known_values, largest, numbered
from bench.hostile.bystander import RESPONSE_TIMEOUT_S
from bench.hostile.servers import PASSWORD, USER, Server
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_frame
from oncelog.wire.header import has_tagged_response_header, read_response_header
from tests.common.batches import TRANSACTIONAL, ZSTD, batch, compress, now_ms, record
from tests.common.definitions import Fields, api_key, decode, encode, is_flexible
from tests.common.frames import Connection
from tests.common.large_batches import LARGE_BATCHES, one_large_record

DECODED_BYTES_MAX = 100_000
"""A larger response is not decoded: that would take the time of the bystander, which runs in this process."""
BYTES_MAX = 1_000_000
ELEMENTS_MAX = 99_000
SLOW = {"20 million headers, compressed"}
"""Batches that take half a minute: they are sent once."""
ROWS = 100
TOGETHER = 250
SCANNED_ROWS = 10
PRODUCE = 9
_numbers = itertools.count()


class Sending(NamedTuple):
    """What an attack sends: its bytes in all, and a call that sends it and returns the outcome."""

    size: int
    send: Callable[[], str]


class Attack(NamedTuple):
    """``prepare`` may return None: the server has nothing to attack there."""

    name: str
    prepare: Callable[[Server], Sending | None]
    repetitions: int = 3


def connect(server: Server, *, as_user: bool = False) -> Connection:
    """A connection of the super user, or of the user without rights."""
    connection = Connection(server.login if as_user and server.login else server.bootstrap)
    connection.socket.settimeout(RESPONSE_TIMEOUT_S)
    if as_user and server.login:
        connection.log_in(USER, PASSWORD)
    return connection


def outcome(api: str, version: int, frame: bytes | None) -> str:
    """The first error in a response, or its size."""
    if frame is None:
        return "closed"
    if len(frame) <= DECODED_BYTES_MAX:
        tagged = has_tagged_response_header(api_key(api), is_flexible(api, version))
        _, size = read_response_header(frame, tagged)
        code = first_error(decode(f"{api}Response", version, frame[size:]))
        if code:
            return ErrorCode(code).name
    return f"{len(frame):,} bytes"


def first_error(value: Any) -> int:
    """The first error code that is not 0."""
    if isinstance(value, list):
        return next(filter(None, map(first_error, value)), 0)
    if isinstance(value, dict):
        return value.get("error_code") or next(filter(None, map(first_error, value.values())), 0)
    return 0


def one_request(server: Server, api: str, version: int, body: bytes, *, as_user: bool = False) -> Sending:
    """Send a request whose body is at hand."""

    def send() -> str:
        with connect(server, as_user=as_user) as connection:
            connection.send_frame(
                connection.header(api_key(api), version, flexible=is_flexible(api, version)) + body
            )
            try:
                return outcome(api, version, connection.receive_frame())
            except OSError as error:
                return type(error).__name__

    return Sending(len(body), send)


def new_topic(server: Server, partitions: int = 1, **configs: str) -> str:
    """Make a topic; returns its name. Configuration keys have an underscore for each period."""
    name = f"hostile-{next(_numbers)}"
    rows = [{"name": key.replace("_", "."), "value": text} for key, text in configs.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": rows}
    with connect(server) as connection:
        response = connection.call("CreateTopics", 5, {"topics": [topic], "timeout_ms": 9000})
        assert response["topics"][0]["error_code"] == 0, response
        while True:  # Kafka's broker learns of it a moment later
            shown = connection.call("Metadata", 5, {"topics": [{"name": name}]})["topics"][0]
            if not first_error(shown):
                return name


def produced(
    topic: str, batches: Sequence[bytes], transactional_id: str | None = None, *, first: int = 0
) -> bytes:
    """The body of a Produce with a batch for each partition from the ``first`` on."""
    rows = [{"index": index, "records": data} for index, data in enumerate(batches, first)]
    values = {"acks": -1, "timeout_ms": 60_000, "transactional_id": transactional_id}
    return encode(
        "ProduceRequest", PRODUCE, {**values, "topic_data": [{"name": topic, "partition_data": rows}]}
    )


# -- records


def batch_attack(name: str, compression: str) -> Attack:
    """A batch to a topic that keeps the producer's codec, or recompresses."""

    def prepare(server: Server) -> Sending:
        topic = new_topic(server, compression_type=compression)
        return one_request(server, "Produce", PRODUCE, produced(topic, [LARGE_BATCHES[name](1).batch()]))

    label = f"Produce: {name}" + ("" if compression == "producer" else f", to {compression}")
    return Attack(label, prepare, 1 if name in SLOW else 3)


def late_records(count: int) -> bytes:
    """A valid batch whose last record alone has the timestamp that is looked for."""
    base = now_ms()
    payload = [record(None, None, offset_delta=at) for at in range(count - 1)]
    payload.append(record(None, None, offset_delta=count - 1, timestamp_delta=1000))
    return batch(
        [compress(ZSTD, b"".join(payload))],
        attributes=ZSTD, count=count, last_offset_delta=count - 1, base_timestamp=base, max_timestamp=base + 1000,
    )  # fmt: skip


SCANNED: dict[str, Callable[[], bytes]] = {
    "200,000 records": lambda: late_records(200_000),
    **{
        name: lambda name=name: LARGE_BATCHES[name](1).batch()  # type: ignore[misc]
        for name in (
            "one record of 60 MB",
            "240,000 run-length blocks",
            "190,000 snappy blocks",
            "450,000 headers",
            "60,000 records of long varints",
        )
    },
}


def scan_attack(name: str, timestamp: int | None) -> Attack:
    """ListOffsets of `SCANNED_ROWS` partitions with such a batch: by its largest timestamp, or for the largest (-3)."""

    def prepare(server: Server) -> Sending:
        topic, data = new_topic(server, SCANNED_ROWS), SCANNED[name]()
        with connect(server) as connection:
            for index in range(SCANNED_ROWS):
                body = produced(topic, [data], first=index)
                stored = ErrorCode.NOT_LEADER_OR_FOLLOWER.name
                while stored == ErrorCode.NOT_LEADER_OR_FOLLOWER.name:  # Kafka's broker leads a moment later
                    connection.send_frame(
                        connection.header(api_key("Produce"), PRODUCE, flexible=True) + body
                    )
                    stored = outcome("Produce", PRODUCE, connection.receive_frame())
                assert "bytes" in stored, stored
        largest_timestamp = struct.unpack_from(">q", data, 35)[0] if timestamp is None else timestamp
        row = {"current_leader_epoch": -1, "timestamp": largest_timestamp}
        rows = [{**row, "partition_index": index} for index in range(SCANNED_ROWS)]
        values = {"replica_id": -1, "topics": [{"name": topic, "partitions": rows}]}
        return one_request(server, "ListOffsets", 7, encode("ListOffsetsRequest", 7, values))

    what = "by time" if timestamp is None else "for the largest timestamp"
    return Attack(f"ListOffsets {what}, {SCANNED_ROWS} batches: {name}", prepare)


def transactional_produce(server: Server) -> Sending:
    """`ROWS` partitions with 60 MiB of zeros each, in one transaction."""
    topic = new_topic(server, ROWS, max_message_bytes="100000000")
    data = one_large_record(60 << 20)
    transactional_id = f"hostile-{topic}"
    producers = itertools.count()

    def body(producer: tuple[int, int, int], transactional_id: str) -> bytes:
        return produced(topic, [data.batch(TRANSACTIONAL, producer)] * ROWS, transactional_id)

    def send() -> str:
        own_id = f"{transactional_id}-{next(producers)}"
        with connect(server) as connection:
            while True:
                found = connection.call("FindCoordinator", 3, {"key": own_id, "key_type": 1})
                asked = {"transactional_id": own_id, "transaction_timeout_ms": 60_000}
                begun = connection.call(
                    "InitProducerId", 4, {**asked, "producer_id": -1, "producer_epoch": -1}
                )
                if not found["error_code"] and not begun["error_code"]:
                    break
                time.sleep(0.1)
            owner = begun["producer_id"], begun["producer_epoch"], 0
            rows = [{"name": topic, "partitions": list(range(ROWS))}]
            values = {"v3_and_below_transactional_id": own_id, "v3_and_below_producer_id": owner[0],
                      "v3_and_below_producer_epoch": owner[1], "v3_and_below_topics": rows}  # fmt: skip
            connection.call("AddPartitionsToTxn", 3, values)
        return one_request(server, "Produce", PRODUCE, body(owner, own_id)).send()

    return Sending(len(body((1, 1, 0), transactional_id)), send)


# -- rows that are refused


DENIED: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("Metadata", 4, ("Topics",)),
    ("Metadata", 12, ("Topics",)),
    ("DeleteGroups", 2, ("GroupsNames",)),
    ("DescribeTopicPartitions", 0, ("Topics",)),
    ("Produce", 12, ("TopicData",)),
    ("CreateTopics", 7, ("Topics",)),
    ("ListOffsets", 10, ("Topics",)),
)


def denied_attack(api: str, version: int, path: tuple[str, ...]) -> Attack:
    """As many rows as fit, each about a name of its own, by a user without any right."""

    def prepare(server: Server) -> Sending:
        values = {**numbered(known_values(bytes(16))), "acks": 1}
        body, _ = largest(f"{api}Request", version, path, values, ELEMENTS_MAX, BYTES_MAX)
        return one_request(server, api, version, body, as_user=True)

    return Attack(f"{api} v{version}: as many names as fit, all denied", prepare)


def together(api: str, version: int, row: Callable[[str], Fields], partitions: int = 1) -> Attack:
    """Requests of `ROWS` rows, as many as may be handled at once, which arrive together."""

    def prepare(server: Server) -> Sending:
        topic = new_topic(server, partitions)
        body = encode(f"{api}Request", version, row(topic))

        def send() -> str:
            with connect(server) as connection:
                frames = b""
                for _ in range(TOGETHER):
                    head = connection.header(api_key(api), version, flexible=is_flexible(api, version))
                    frames += encode_frame(head + body)
                connection.socket.sendall(frames)
                found = {outcome(api, version, connection.receive_frame()) for _ in range(TOGETHER)}
            return ", ".join(sorted(found)[:2])

        return Sending(TOGETHER * len(body), send)

    return Attack(f"{api}: {TOGETHER} requests of {ROWS} rows at once", prepare)


# -- regular expressions


def pattern_attack(name: str, pattern: str) -> Attack:
    def prepare(server: Server) -> Sending:
        values = {"duration_filter": -1, "transactional_id_pattern": pattern}
        return one_request(
            server, "ListTransactions", 2, encode("ListTransactionsRequest", 2, values), as_user=True
        )

    return Attack(f"ListTransactions: {name}", prepare)


def subscribed_patterns(server: Server) -> Sending:
    """150 members of a consumer group, each with a costly pattern of 360 bytes."""
    members = 150
    groups = itertools.count()
    front = f"hostile-{next(_numbers)}"

    def bodies(group: str) -> list[bytes]:
        rows = []
        for at in range(members):
            pattern = f"{at:03}" + r"\pL" * 10 + "x" * 327
            member = base64.urlsafe_b64encode(at.to_bytes(16, "big")).decode().rstrip("=")
            values: Fields = {"group_id": group, "member_id": member, "member_epoch": 0}
            values |= {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
            values |= {"subscribed_topic_names": [], "subscribed_topic_regex": pattern}
            rows.append(encode("ConsumerGroupHeartbeatRequest", 1, values))
        return rows

    def send() -> str:
        group = f"{front}-{next(groups)}"
        with connect(server) as connection:
            while connection.call("FindCoordinator", 3, {"key": group, "key_type": 0})["error_code"]:
                time.sleep(0.1)
            for body in bodies(group):
                connection.send_frame(
                    connection.header(api_key("ConsumerGroupHeartbeat"), 1, flexible=True) + body
                )
            found = {outcome("ConsumerGroupHeartbeat", 1, connection.receive_frame()) for _ in range(members)}
            new_topic(server)  # its name is compared with all of them
            time.sleep(1)
        return ", ".join(sorted(found)[:2])

    return Sending(sum(map(len, bodies(f"{front}-0"))), send)


# -- metrics of clients


def field(number: int, *parts: bytes) -> bytes:
    """A field of Protocol Buffers with a length."""
    data = b"".join(parts)
    size, out = len(data), bytearray([number << 3 | 2])
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes(out) + bytes([size]) + data


def pushed_metrics(server: Server) -> Sending | None:
    """A mebibyte of data points without content, in a few bytes of zstd."""
    if not server.takes_metrics:
        return None
    points = field(1, b"a.b") + field(5, b"\x0a\x00" * (512 * 1024 - 50))
    data = compress(ZSTD, field(1, field(1), field(2, field(1, field(1, b"scope")), field(2, points))))
    wanted = {"metrics": "*", "interval.ms": "100"}
    configs = [{"name": key, "config_operation": 0, "value": text} for key, text in wanted.items()]
    with connect(server) as connection:
        resource = {"resource_type": 16, "resource_name": "hostile", "configs": configs}
        connection.call("IncrementalAlterConfigs", 1, {"resources": [resource]})

    def send() -> str:
        with connect(server) as connection:
            while True:
                asked = connection.call("GetTelemetrySubscriptions", 0, {"client_instance_id": bytes(16)})
                if not asked["error_code"] and asked["requested_metrics"]:
                    break
                time.sleep(0.2)
            values = {"client_instance_id": asked["client_instance_id"], "subscription_id": asked["subscription_id"],
                      "compression_type": ZSTD, "metrics": data}  # fmt: skip
            return outcome_of(connection, "PushTelemetry", 0, values)

    return Sending(len(data) + 40, send)


def outcome_of(connection: Connection, api: str, version: int, values: Fields) -> str:
    connection.send(api, version, values)
    try:
        return outcome(api, version, connection.receive_frame())
    except OSError as error:
        return type(error).__name__


# -- before the log-in


def many_tags(server: Server) -> Sending:
    """ApiVersions with 99,000 tagged fields, to a listener that waits for a log-in."""
    tags = b"".join(unsigned(at) + b"\0" for at in range(1, 99_001))
    body = b"\2a\2b" + unsigned(99_000) + tags
    before = Server(server.name, server.login, "", server.pid)
    return one_request(before, "ApiVersions", 3, body)


def unsigned(value: int) -> bytes:
    """A varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def long_scram_message(server: Server) -> Sending:
    """A first message of SCRAM with a nonce of 520 kB, or as much as Kafka takes from a client before its log-in."""
    message = b"n,,n=nobody,r=" + b"x" * 520_000

    def send() -> str:
        with Connection(server.login) as connection:
            connection.call("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"})
            return outcome_of(connection, "SaslAuthenticate", 2, {"auth_bytes": message})

    return Sending(len(message), send)


# -- memory


def unread_groups(server: Server) -> Sending:
    """DescribeGroups that names a large group 900 times, from a client that does not read."""
    group = f"hostile-{next(_numbers)}"
    front = {
        "group_id": group,
        "session_timeout_ms": 300_000,
        "rebalance_timeout_ms": 300_000,
        "member_id": "",
    }
    with connect(server) as connection:
        while connection.call("FindCoordinator", 3, {"key": group, "key_type": 0})["error_code"]:
            time.sleep(0.1)
        protocol = {"name": "range", "metadata": bytes(400_000)}
        asked = {**front, "protocol_type": "consumer", "protocols": [protocol]}
        while (joined := connection.call("JoinGroup", 3, asked))["error_code"]:  # it is loading
            time.sleep(0.1)
        member, generation = joined["member_id"], joined["generation_id"]
        assignments = [{"member_id": member, "assignment": bytes(500_000)}]
        values = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member,
            "assignments": assignments,
        }
        synced = connection.call("SyncGroup", 3, values)
        assert synced["error_code"] == 0, synced
    body = encode("DescribeGroupsRequest", 5, {"groups": [group] * 900})

    def send() -> str:
        with connect(server) as connection:
            connection.send_frame(connection.header(api_key("DescribeGroups"), 5, flexible=True) + body)
            time.sleep(4)  # this is how long it does not read
        return "not read"

    return Sending(len(body), send)


def half_frames(server: Server) -> Sending:
    """300 connections before their log-in, each with a frame of 520 kB but for its last byte."""
    size, count = 520_000, 300

    def send() -> str:
        connections: list[Connection] = []
        closed = 0
        for _ in range(count):
            connection = Connection(server.login)
            connections.append(connection)
            try:
                connection.socket.sendall(struct.pack(">i", size) + bytes(size - 1))
            except OSError:
                closed += 1
        time.sleep(2)
        for connection in connections:
            connection.socket.settimeout(0.0001)
            try:
                closed += connection.socket.recv(1) == b""
            except TimeoutError:
                pass
            except OSError:
                closed += 1
            connection.close()
        return f"{closed} of {count} were closed"

    return Sending(size * count, send)


GENERAL = 50
"""As many costly parts as an expression may have."""

ATTACKS: tuple[Attack, ...] = (
    *(batch_attack(name, "gzip") for name in LARGE_BATCHES),
    *(batch_attack(name, "producer") for name in LARGE_BATCHES),
    *(scan_attack(name, None) for name in SCANNED),
    scan_attack("200,000 records", -3),
    Attack(f"Produce in a transaction: {ROWS} partitions with 60 MiB each", transactional_produce),
    *(denied_attack(*row) for row in DENIED),
    together(
        "DescribeConfigs",
        4,
        lambda topic: {
            "resources": [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}] * ROWS
        },
    ),
    together(
        "Metadata",
        12,
        lambda topic: {"topics": [{"name": f"{topic}-{at}"} for at in range(ROWS)]},
    ),
    together(
        "Produce",
        9,
        lambda topic: {
            "acks": 1,
            "topic_data": [
                {"name": topic, "partition_data": [{"index": at, "records": b""} for at in range(ROWS)]}
            ],
        },
        ROWS,
    ),
    together(
        "Fetch",
        12,
        lambda topic: {
            "max_wait_ms": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [{"partition": at, "partition_max_bytes": 1} for at in range(ROWS)],
                }
            ],
        },
        ROWS,
    ),
    pattern_attack("30 kB of \\pL", r"\pL" * 10_000),
    pattern_attack(f"{GENERAL} \\pL and 8,000 bytes", r"\pL" * GENERAL + "x" * 8000),
    Attack("ConsumerGroupHeartbeat: 150 members with patterns of 360 bytes", subscribed_patterns),
    Attack("PushTelemetry: 1 MiB of empty data points", pushed_metrics),
    Attack("ApiVersions before the log-in: 99,000 tags", many_tags),
    Attack("SaslAuthenticate: a first message of SCRAM of 520 kB", long_scram_message),
)

THROUGH_A_PROXY: tuple[Attack, ...] = tuple(denied_attack(*row) for row in DENIED)
"""By a client without rights, to a proxy with ACLs."""

MEMORY: tuple[Attack, ...] = (
    Attack("DescribeGroups: a group of 1 MB named 900 times, not read", unread_groups),
    Attack("300 half frames of 520 kB before the log-in", half_frames),
)
