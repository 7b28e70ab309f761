"""Transactional requests made by hand, for scenarios that compare both targets.

Kafka responds to EndTxn before its markers are written, and its coordinators need a moment to load. Requests are
repeated until such errors are over; only the final response is observed.
"""

import time
from collections.abc import Iterable
from typing import Any

from compat_tests.differential import Session
from tests.common.batches import CONTROL, TRANSACTIONAL, batch, now_ms, read_batches
from tests.common.definitions import Fields

RETRIED = (14, 15, 16, 51)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS."""
NOT_ENOUGH_REPLICAS = 19
"""Kafka's error for a transactional Produce while it cannot ask the coordinator, as after a restart
(``ReplicaManager.handleProduceAppend``)."""
GROUP, TRANSACTION = 0, 1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
V2_PRODUCE, V2_END, V2_OFFSETS = 12, 5, 5
TIMEOUT_S = 60
RETRY_S = 0.01


def until_settled(call: Any, code_of: Any) -> Any:
    """Call until the response's error code is none of `RETRIED`; that response."""
    deadline = time.monotonic() + TIMEOUT_S
    while code_of(response := call()) in RETRIED:
        assert time.monotonic() < deadline, response
        time.sleep(RETRY_S)
    return response


def find_coordinator(session: Session, key: str, key_type: int = TRANSACTION) -> None:
    values: Fields = {"key_type": key_type, "coordinator_keys": [key]}
    until_settled(
        lambda: session.call_unobserved("FindCoordinator", 4, values),
        lambda response: response["coordinators"][0]["error_code"],
    )


class Producer:
    """A producer with a transactional id on one target. Its methods observe every response."""

    def __init__(self, session: Session, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        self.session = session
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        find_coordinator(session, transactional_id)

    def init(
        self, version: int = 4, *, expected: tuple[int, int] = (-1, -1), timeout_ms: int | None = None
    ) -> int:
        """InitProducerId; the error code. The producer uses the producer id and epoch of the response."""
        values: Fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms if timeout_ms is None else timeout_ms,
        }
        if version >= 3:
            values |= {"producer_id": expected[0], "producer_epoch": expected[1]}
        response = until_settled(
            lambda: self.session.call_unobserved("InitProducerId", version, values),
            lambda response: response["error_code"],
        )
        self.session.observe(f"InitProducerId v{version} {expected[1]}", response)
        if not response["error_code"]:
            self.producer_id, self.epoch = response["producer_id"], response["producer_epoch"]
            self.sequences.clear()
        return int(response["error_code"])

    def add(
        self,
        partitions: Iterable[tuple[str, int]],
        version: int = 3,
        *,
        epoch: int | None = None,
        producer_id: int | None = None,
        verify_only: bool = False,
        settle: bool = True,
    ) -> Any:
        """AddPartitionsToTxn; the response. Without `settle` it is not repeated."""
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        rows = [{"name": topic, "partitions": ids} for topic, ids in topics.items()]
        producer_id = self.producer_id if producer_id is None else producer_id
        epoch = self.epoch if epoch is None else epoch
        if version < 4:
            values: Fields = {
                "v3_and_below_transactional_id": self.transactional_id,
                "v3_and_below_producer_id": producer_id,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": rows,
            }
        else:
            transaction = {
                "transactional_id": self.transactional_id,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "verify_only": verify_only,
                "topics": rows,
            }
            values = {"transactions": [transaction]}

        def code(response: Any) -> int:
            found = (
                response["results_by_topic_v3_and_below"]
                if version < 4
                else (response["results_by_transaction"][0]["topic_results"])
            )
            return int(found[0]["results_by_partition"][0]["partition_error_code"]) if settle else 0

        response = until_settled(
            lambda: self.session.call_unobserved("AddPartitionsToTxn", version, values), code
        )
        for row in [response, *response["results_by_transaction"]] if version >= 4 else [response]:
            found = row.get("results_by_topic_v3_and_below") or row.get("topic_results") or []
            found.sort(key=lambda topic: topic["name"])  # Kafka's order is a hash map's
            for topic_row in found:
                topic_row["results_by_partition"].sort(key=lambda one: one["partition_index"])
        self.session.observe(f"AddPartitionsToTxn v{version}", response)
        return response

    def send(
        self,
        topic: str,
        partition: int = 0,
        count: int = 1,
        version: int = 9,
        *,
        epoch: int | None = None,
        producer_id: int | None = None,
        sequence: int | None = None,
        transactional: bool = True,
        transactional_id: str | None = "",
        topic_id: bytes | None = None,
    ) -> Any:
        """Produce one batch; the partition's row of the response."""
        place = (topic, partition)
        first = self.sequences.get(place, 0) if sequence is None else sequence
        producer = (
            self.producer_id if producer_id is None else producer_id,
            self.epoch if epoch is None else epoch,
            first,
        )
        records = batch(
            count,
            producer=producer,
            attributes=TRANSACTIONAL if transactional else 0,
            base_timestamp=now_ms(),
        )
        row: Fields = {"topic_id": topic_id} if topic_id is not None else {"name": topic}
        row["partition_data"] = [{"index": partition, "records": records}]
        values: Fields = {
            "transactional_id": self.transactional_id if transactional_id == "" else transactional_id,
            "acks": -1,
            "timeout_ms": 15_000,
            "topic_data": [row],
        }

        def code(response: Any) -> int:
            found = response["responses"][0]["partition_responses"][0]["error_code"]
            return RETRIED[0] if found == NOT_ENOUGH_REPLICAS else 0

        response = until_settled(lambda: self.session.call_unobserved("Produce", version, values), code)
        self.session.observe(f"Produce v{version} {producer[1:]} {topic[-2:]}-{partition}", response)
        found = response["responses"][0]["partition_responses"][0]
        if not found["error_code"] and sequence is None:
            self.sequences[place] = first + count
        return found

    def end(
        self,
        commit: bool,
        version: int = 3,
        *,
        epoch: int | None = None,
        producer_id: int | None = None,
        adopt_epoch: bool = True,
    ) -> Any:
        """EndTxn, and the wait for its markers; the response.

        With `adopt_epoch` the producer uses the producer id and epoch of a response of transactions v2.
        """
        values: Fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id if producer_id is None else producer_id,
            "producer_epoch": self.epoch if epoch is None else epoch,
            "committed": commit,
        }
        response = until_settled(
            lambda: self.session.call_unobserved("EndTxn", version, values),
            lambda response: response["error_code"],
        )
        self.session.observe(f"EndTxn v{version} {'commit' if commit else 'abort'}", response)
        if adopt_epoch and version >= V2_END and not response["error_code"]:
            if (self.producer_id, self.epoch) != (response["producer_id"], response["producer_epoch"]):
                self.sequences.clear()
            self.producer_id, self.epoch = response["producer_id"], response["producer_epoch"]
        self.wait_ended()
        return response

    def wait_ended(self) -> None:
        """Wait until all markers are written."""
        until_settled(self._describe, lambda row: 51 if row["transaction_state"].startswith("Prepare") else 0)

    def wait_for(self, state: str) -> None:
        """Wait until the transaction is in this state."""
        until_settled(self._describe, lambda row: 51 if row["transaction_state"] != state else 0)

    def _describe(self) -> Any:
        values: Fields = {"transactional_ids": [self.transactional_id]}
        response = until_settled(
            lambda: self.session.call_unobserved("DescribeTransactions", 0, values),
            lambda response: response["transaction_states"][0]["error_code"],
        )
        return response["transaction_states"][0]

    def describe(self) -> Any:
        """DescribeTransactions; the transaction's row, sorted."""
        row = self._describe()
        for topic in row["topics"]:
            topic["partitions"].sort()
        row["topics"].sort(key=lambda topic: topic["topic"])
        self.session.observe("DescribeTransactions", row)
        return row

    def add_offsets(self, group: str, version: int = 3) -> int:
        """AddOffsetsToTxn; the error code."""
        values: Fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "group_id": group,
        }
        response = until_settled(
            lambda: self.session.call_unobserved("AddOffsetsToTxn", version, values),
            lambda response: response["error_code"],
        )
        self.session.observe(f"AddOffsetsToTxn v{version}", response)
        return int(response["error_code"])

    def commit_offset(
        self,
        group: str,
        topic: str | bytes,
        offset: int,
        version: int = 3,
        partition: int = 0,
        *,
        epoch: int | None = None,
        generation: int = -1,
        member: str = "",
    ) -> int:
        """TxnOffsetCommit for a topic, by its name or its id; the error code."""
        named: Fields = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
        values: Fields = {
            "transactional_id": self.transactional_id,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch if epoch is None else epoch,
            "topics": [
                {
                    **named,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "committed_offset": offset,
                            "committed_metadata": f"at {offset}",
                        }
                    ],
                }
            ],
        }
        if version >= 3:
            values |= {"generation_id_or_member_epoch": generation, "member_id": member}
        response = until_settled(
            lambda: self.session.call_unobserved("TxnOffsetCommit", version, values),
            lambda response: response["topics"][0]["partitions"][0]["error_code"],
        )
        self.session.observe(f"TxnOffsetCommit v{version}", response)
        return int(response["topics"][0]["partitions"][0]["error_code"])


def observe_partition(session: Session, topic: str, partition: int = 0, start: int = 0) -> None:
    """Observe a partition's records and end offset with both isolation levels."""
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        values: Fields = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 24,
            "isolation_level": isolation,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": partition, "fetch_offset": start, "partition_max_bytes": 1 << 24}
                    ],
                }
            ],
        }
        response = session.call_unobserved("Fetch", 12, values)
        row = response["responses"][0]["partitions"][0]
        batches = list(read_batches(bytes(row["records"] or b"")))
        end = batches[-1].base_offset + batches[-1].last_offset_delta if batches else start
        if row["aborted_transactions"]:
            # Kafka lists aborted transactions up to the log end offset, even if it returns records only up to the last
            # stable offset. A reader does not need those after its records.
            row["aborted_transactions"] = [
                one for one in row["aborted_transactions"] if one["first_offset"] <= end
            ]
        session.observe(f"Fetch isolation {isolation} from {start}", response)
        rows = [{"partition_index": partition, "timestamp": -1}]
        session.call(
            "ListOffsets",
            7,
            {"isolation_level": isolation, "topics": [{"name": topic, "partitions": rows}]},
            f"isolation {isolation}",
        )


def observe_topic(session: Session, name: str, partitions: int = 2) -> None:
    """Observe a topic's batches and producers, without leader and coordinator epochs, which rise with restarts."""
    for partition in range(partitions):
        for isolation in (0, 1):
            row: Fields = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 24}
            values: Fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 24}
            values |= {"isolation_level": isolation, "topics": [{"topic": name, "partitions": [row]}]}
            found = session.call_unobserved("Fetch", 12, values)["responses"][0]["partitions"][0]
            ends = {
                key: found[key] for key in ("high_watermark", "last_stable_offset", "aborted_transactions")
            }
            session.observe(f"ends of {partition}, isolation {isolation}", ends)
            for one in read_batches(bytes(found["records"] or b"")):
                kind = one.payload[6:8].hex() if one.attributes & CONTROL else one.base_sequence
                fields = {"producer_id": one.producer_id, "epoch": one.producer_epoch, "kind": kind}
                session.observe(f"batch at {one.base_offset}, attributes {one.attributes}", fields)
        rows = [{"name": name, "partition_indexes": [partition]}]
        response = session.call_unobserved("DescribeProducers", 0, {"topics": rows})
        active = response["topics"][0]["partitions"][0]["active_producers"]
        for one in sorted(active, key=lambda row: row["producer_id"]):  # Kafka's order is a hash map's
            session.observe("producer", {key: one[key] for key in one if key != "coordinator_epoch"})


def observe_producers(session: Session, topic: str, partition: int = 0) -> list[Any]:
    """Observe DescribeProducers; its rows."""
    values: Fields = {"topics": [{"name": topic, "partition_indexes": [partition]}]}
    response = session.call_unobserved("DescribeProducers", 0, values)
    rows = response["topics"][0]["partitions"][0]["active_producers"]
    rows.sort(key=lambda row: row["producer_id"])
    session.observe("DescribeProducers", response)
    return list(rows)


def observe_committed(
    session: Session, group: str, topic: str, partitions: int = 1, *, stable: bool = False
) -> Any:
    """Observe a group's committed offsets. With `stable` pending offsets are errors, as require_stable says."""
    rows = [{"name": topic, "partition_indexes": list(range(partitions))}]
    values: Fields = {"groups": [{"group_id": group, "topics": rows}], "require_stable": stable}
    response = until_settled(
        lambda: session.call_unobserved("OffsetFetch", 8, values),
        lambda response: response["groups"][0]["error_code"],
    )
    session.observe(f"OffsetFetch stable {stable}", response)
    return response
