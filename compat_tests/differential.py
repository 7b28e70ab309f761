"""The same requests to both targets; their responses are compared field by field.

A scenario is a function of a `Session`, which keeps what it observes. Values that must differ (ids, times, the port)
are replaced by names: the first topic id of a scenario is "uuid#1" on both targets.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from compat_tests.proxy.oncelog_proxy import NODES_MAX
from tests.common import facts
from tests.common.batches import WAIT_MS, now_ms, read_batches
from tests.common.definitions import ZERO_UUID, Fields
from tests.common.frames import CLOSED, Connection, address
from tests.common.recorded.recorder import Recorder

NOT_LEADER = 6
LOADING = (14, 15, 16)
HOUR_MS, HOURS_MAX = 3_600_000, 1000
"""A time that is so many hours away is observed as the number of hours."""
LONG = 300
"""Of so many bytes what is observed is their number and digest."""
ERROR_MESSAGES = ("error_message", "batch_index_error_message")
MEMBER_ID = re.compile("(.*)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Scenario = Callable[["Session"], None]
Observations = list[tuple[str, Any]]
"""Each with its label."""


class Session:
    """One target of a scenario. `call` uses one connection, from the address `source` if that is given, and opens it
    again after the broker closed it. It logs in by PLAIN as `user`, a name and a password, if that is given.
    """

    def __init__(
        self, bootstrap: str, source: str | None = None, user: tuple[str, str] | None = None
    ) -> None:
        self.bootstrap = bootstrap
        self.source = source
        self.user = user
        self.exact_error_messages = False
        """Whether error messages must be equal. Otherwise oncelog needs one wherever Kafka has one, and may have one
        with every error."""
        self.observations: Observations = []
        self._connection: Connection | None = None
        self._others: list[Connection] = []
        self._seen: dict[tuple[str, Any], str] = {}

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.bootstrap, source=self.source)
            if self.user is not None:
                self._connection.log_in(*self.user)
        return self._connection

    def close(self) -> None:
        """Close the connection of `call`, which opens another when needed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def connect(self, client_id: str | None) -> Connection:
        """Another connection, closed when the scenario ends."""
        self._others.append(Connection(self.bootstrap, client_id))
        return self._others[-1]

    def end(self) -> None:
        """Close all connections."""
        for one in self._others:
            one.close()
        self.close()

    def call(self, api: str, version: int, values: Fields | None = None, note: str = "") -> Any:
        """The response, which is observed; CLOSED if the broker closed the connection."""
        response = self.call_unobserved(api, version, values)
        self.observe(f"{api} v{version} {note}".strip(), response)
        return response

    def call_unobserved(self, api: str, version: int, values: Fields | None = None) -> Any:
        """The response, which is not observed; CLOSED if the broker closed the connection."""
        response = self.connection.call(api, version, values)
        if response == CLOSED:
            self.close()
        return response

    def observe(self, label: str, value: Any) -> None:
        """Keep a value, to be compared with the other target's value of the same label."""
        self.observations.append((label, self._normalize("", value)))

    def topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> bytes:
        """Create a topic, wait for its leaders, and return its id. Nothing is observed."""
        rows = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": -1, "configs": rows}
        response = self.call_unobserved("CreateTopics", 7, {"topics": [topic], "timeout_ms": 15000})
        assert response["topics"][0]["error_code"] == 0, response
        self.wait_for_leaders(name, partitions)
        return bytes(response["topics"][0]["topic_id"])

    def wait_for_leaders(self, name: str, partitions: int) -> None:
        """Wait until the broker leads the partitions: Kafka's learns of them a moment after the response."""
        deadline = now_ms() + WAIT_MS
        listed = {
            "topics": [{"name": name, "partitions": [{"partition_index": p} for p in range(partitions)]}]
        }
        # In a cluster some of them have another leader, which is known when Metadata names it.
        alone = len(self.call_unobserved("Metadata", 12, {"topics": []})["brokers"]) == 1
        while True:
            rows = self.call_unobserved("ListOffsets", 4, listed)["topics"][0]["partitions"]
            errors = {row["error_code"] for row in rows}
            if errors == {0} or (not alone and errors <= {0, NOT_LEADER} and self._all_led(name)):
                return
            assert now_ms() < deadline, rows

    def _all_led(self, name: str) -> bool:
        (topic,) = self.call_unobserved("Metadata", 12, {"topics": [{"name": name}]})["topics"]
        rows = topic["partitions"]
        return bool(rows) and all(row["error_code"] == 0 and row["leader_id"] >= 0 for row in rows)

    def wait_for_config(self, name: str, key: str, value: str) -> None:
        """Wait until the topic's key has the value: Kafka's broker learns of it a moment after the response."""
        deadline = now_ms() + WAIT_MS
        resource = {"resource_type": 2, "resource_name": name, "configuration_keys": [key]}
        while True:
            (row,) = self.call_unobserved("DescribeConfigs", 4, {"resources": [resource]})["results"][0][
                "configs"
            ]
            if row["value"] == value:
                return
            assert now_ms() < deadline, row

    def wait_for_producer_ids(self) -> None:
        """Wait until the broker has producer ids: a real Kafka gets its first block of ids after its start."""
        deadline = now_ms() + WAIT_MS
        while (response := self.call_unobserved("InitProducerId", 4, {"transactional_id": None}))[
            "error_code"
        ] == 14:
            assert now_ms() < deadline, response

    def wait_for_coordinator(self, group: str) -> None:
        """Wait until the group's coordinator serves; the first request has its topic created."""
        deadline = now_ms() + WAIT_MS
        self.call_unobserved("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["any"]})
        while True:
            error = self.call_unobserved("OffsetFetch", 7, {"group_id": group})["error_code"]
            if error not in LOADING:
                return
            assert now_ms() < deadline, error

    def delete_records(self, name: str, offset: int, partition: int = 0) -> Any:
        """Delete the partition's records before `offset`; the response, which is not observed."""
        row = {"partition_index": partition, "offset": offset}
        values = {"topics": [{"name": name, "partitions": [row]}], "timeout_ms": 15000}
        return self.call_unobserved("DeleteRecords", 2, values)

    def produce(
        self, name: str, records: bytes, *, partition: int = 0, version: int = 9, acks: int = -1
    ) -> Any:
        """Produce one batch; the partition's row of the response, which is not observed."""
        return self.call_unobserved("Produce", version, produce_request(name, records, partition, acks))[
            "responses"
        ][0]["partition_responses"][0]

    def _normalize(self, field: str, value: Any) -> Any:
        """`value` with everything that must differ replaced."""
        if isinstance(value, dict):
            shown = (key for key in value if key not in facts.LATER_KEYS)
            return {key: self._normalize(key, value[key]) for key in shown}
        if isinstance(value, list):
            return [self._normalize(field, one) for one in value if not _is_later_key(one)]
        if isinstance(value, bytes):
            return self._bytes(field, value)
        if isinstance(value, str) and field == "cluster_id":
            return "cluster" if re.fullmatch(r"[A-Za-z0-9_-]{22}", value) else value
        if isinstance(value, str) and value and field in ERROR_MESSAGES and not self.exact_error_messages:
            return "text"
        if isinstance(value, str) and (member_id := MEMBER_ID.fullmatch(value)):
            return self._seen.setdefault(("member", value), f"{member_id[1]}#{self._count('member')}")
        if isinstance(value, int) and not isinstance(value, bool):
            return self._number(field, value)
        return value

    def _number(self, field: str, value: int) -> int | str:
        # A proxy presents its nodes by the ports after its own.
        if field == "port" and 0 <= value - address(self.bootstrap)[1] <= NODES_MAX:
            return "port"
        if (field == "session_id" and value > 0) or (field == "producer_id" and value >= 0):
            return self._seen.setdefault((field, value), f"{field}#{self._count(field)}")
        if "timestamp" in field or field.endswith("_ms"):
            hours = round((value - now_ms()) / HOUR_MS)
            return value if abs(hours) > HOURS_MAX else f"now{hours:+d}h" if hours else "now"
        return value

    def _count(self, kind: str) -> int:
        return 1 + sum(1 for seen, _ in self._seen if seen == kind)

    def _bytes(self, field: str, value: bytes) -> Any:
        if field == "records":
            return [self._normalize("", one._asdict()) for one in self._batches(value)]
        if len(value) == 16 and value != ZERO_UUID:
            return self._seen.setdefault(("uuid", value), f"uuid#{self._count('uuid')}")
        if len(value) > LONG:
            return f"{len(value)} bytes, SHA-256 {hashlib.sha256(value).hexdigest()}"
        return value

    def _batches(self, value: bytes) -> Iterator[Any]:
        for one in read_batches(value):
            yield one._replace(crc=0)  # the CRC covers timestamps and the producer id


def _is_later_key(row: Any) -> bool:
    """Whether it is the row of a configuration key that Kafka does not have yet."""
    return isinstance(row, dict) and row.get("name") in facts.LATER_KEYS


class Pair:
    """A real Kafka, or what it has answered, and `ours`, which must answer as it does: oncelog, perhaps more targets.

    `bootstrap(target)` gives the address of a target, which may start then.
    """

    def __init__(
        self, answers: Recorder, bootstrap: Callable[[str], str], ours: Sequence[str] = ("oncelog",)
    ) -> None:
        self.answers = answers
        self.ours = tuple(ours)
        self.bootstrap = bootstrap

    def compare(self, scenario: Scenario, *, known: tuple[str, ...] = ()) -> None:
        """Run the scenario on all; assert that every difference matches a pattern of `known`."""
        self.compare_with(lambda target: observed(scenario, self.bootstrap(target)), known=known)

    def compare_with(self, observe: Callable[[str], Observations], *, known: tuple[str, ...] = ()) -> None:
        """Assert likewise of what `observe(target)` gives."""
        kafka = self.answers.of_kafka(lambda: observe("kafka"))
        if os.environ.get("ONCELOG_SHOW"):  # to write assertions from
            print("\n".join(f"{label}: {value!r}" for label, value in kafka))
        if self.answers.writes:
            return
        for target in self.ours:
            found = differences(kafka, observe(target))
            unknown = [one for one in found if not any(re.search(pattern, one) for pattern in known)]
            assert not unknown, f"kafka != {target}\n" + "\n".join(unknown[:60])


def observed(scenario: Scenario, bootstrap: str) -> Observations:
    """What the scenario observes there."""
    session = Session(bootstrap)
    try:
        scenario(session)
    finally:
        session.end()
    return session.observations


def differences(kafka: Observations, oncelog: Observations) -> Iterator[str]:
    """One line per difference: "label: path: Kafka's value != oncelog's value"."""
    for (label, theirs), (other, ours) in zip(kafka, oncelog, strict=False):
        if label != other:  # because of a difference before
            yield f"the scenario took different paths: {label} and {other}"
            return
        for path, left, right in _walk("", theirs, ours):
            yield f"{label}: {path or '.'}: {left!r} != {right!r}"
    if len(kafka) != len(oncelog):
        yield f"{len(kafka)} != {len(oncelog)} observations"


def _walk(path: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in {**left, **right}:
            theirs, ours = left.get(key, "absent"), right.get(key, "absent")
            if ours == "text" and theirs in (None, "") and left.get("error_code"):
                continue  # oncelog may add a message to an error for which Kafka has none
            yield from _walk(f"{path}.{key}", theirs, ours)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _walk(f"{path}[{index}]", one, other)
    elif left != right:
        yield path, left, right


def produce_request(name: str | bytes, records: bytes | None, partition: int = 0, acks: int = -1) -> Fields:
    """A Produce request of one batch; `name` is a topic name, or a topic id (16 bytes, v13)."""
    topic: Fields = {"topic_id": name} if isinstance(name, bytes) else {"name": name}
    topic["partition_data"] = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout_ms": 15000, "topic_data": [topic]}


def make_topic(bootstrap: str, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    """Create a topic and wait until its partitions have leaders."""
    session = Session(bootstrap)
    session.topic(name, partitions, configs)
    session.close()
