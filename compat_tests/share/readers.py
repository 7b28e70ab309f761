"""Members of share groups that send ShareFetch and ShareAcknowledge by hand, in scenarios that both targets run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from compat_tests.differential import Session
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from tests.common.batches import batch, now_ms
from tests.common.definitions import Fields
from tests.common.frames import Connection

VERSION = 2
GROUP_RESOURCE = 32
UPGRADE, SAFE_DOWNGRADE = 1, 2
DEADLINE_MS = 30_000

Said = tuple[int, int, Sequence[int]]
"""First offset, last offset, types."""
Acquired = tuple[int, int, int]
"""First offset, last offset, delivery count."""


def set_group_config(session: Session, group: str, **values: str) -> None:
    """Set keys of a group, with ``_`` for ``.``, and wait until the broker knows them."""
    rows = [
        {"name": key.replace("_", "."), "config_operation": 0, "value": value}
        for key, value in values.items()
    ]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": rows}
    response = session.call_unobserved("IncrementalAlterConfigs", 1, {"resources": [resource]})
    assert response["responses"][0]["error_code"] == 0, response
    asked = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": [rows[0]["name"]]}
    deadline = now_ms() + DEADLINE_MS
    while True:
        [result] = session.call_unobserved("DescribeConfigs", 4, {"resources": [asked]})["results"]
        if result["configs"] and result["configs"][0]["value"] == rows[0]["value"]:
            return
        assert now_ms() < deadline, result


@contextmanager
def share_version(session: Session, level: int) -> Iterator[None]:
    """Have the cluster another level of ``share.version`` meanwhile."""
    before = _share_version(session)
    try:
        _update_share_version(session, level)
        yield
    finally:
        _update_share_version(session, before)


def _update_share_version(session: Session, level: int) -> None:
    upgrade_type = UPGRADE if level > _share_version(session) else SAFE_DOWNGRADE
    update = {"feature": "share.version", "max_version_level": level, "upgrade_type": upgrade_type}
    body = {"timeout_ms": 15_000, "feature_updates": [update], "validate_only": False}
    response = session.call_unobserved("UpdateFeatures", 1, body)
    assert response["error_code"] == 0, response
    # Kafka's broker learns of it a moment after the response.
    deadline = now_ms() + DEADLINE_MS
    while _share_version(session) != level:
        assert now_ms() < deadline, level


def _share_version(session: Session) -> int:
    software = {"client_software_name": "compat", "client_software_version": "1"}
    rows = session.call_unobserved("ApiVersions", 4, software)["finalized_features"]
    return int({row["name"]: row["max_version_level"] for row in rows}.get("share.version", 0))


def share_topic(session: Session, name: str, *sizes: int, partitions: int = 1, **configs: str) -> bytes:
    """Create a topic, and batches with so many records each in partition 0; have a group of the topic's name read it
    from its beginning. Returns the topic's id.
    """
    topic_id = session.topic(name, partitions)
    for size in sizes:
        assert session.produce(name, batch(size))["error_code"] == 0
    set_group_config(session, name, share_auto_offset_reset="earliest", **configs)
    wait_for_coordinator(session, name)
    join(session, name, topic_id, partitions)
    return topic_id


def join(session: Session, group: str, topic_id: bytes, partitions: int) -> None:
    """Let a member join the group by heartbeats, until the state of all partitions is initialized."""
    body: Fields = {
        "group_id": group, "member_id": "initializing-member", "member_epoch": 0, "rack_id": None,
        "subscribed_topic_names": [group],
    }  # fmt: skip
    deadline = now_ms() + DEADLINE_MS
    while True:
        response = session.call_unobserved("ShareGroupHeartbeat", 1, body)
        assert now_ms() < deadline, response
        if response["error_code"]:
            continue
        body = {**body, "member_epoch": response["member_epoch"], "subscribed_topic_names": None}
        found = (response["assignment"] or {}).get("topic_partitions") or []
        if sum(len(row["partitions"]) for row in found if row["topic_id"] == topic_id) == partitions:
            return


class Reader:
    """A member with a share session on a connection of its own. ``epoch`` is that of its next request."""

    def __init__(
        self, session: Session, topic_id: bytes, member_id: str, group: str, partitions: int = 1
    ) -> None:
        self.session = session
        self.connection: Connection = session.connect(member_id)
        self.topic_id = topic_id
        self.member_id = member_id
        self.group = group
        self.partitions = partitions
        self.epoch = 0
        self.held: set[int] = set()
        """The offsets of partition 0 that it has acquired and not acknowledged."""

    def body(
        self,
        *said: Said,
        most: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        renew: bool = False,
    ) -> Fields:
        """A ShareFetch; acknowledgements are about partition 0."""
        rows: list[Fields] = []
        if self.epoch == 0:
            rows = [
                {"partition_index": index, "acknowledgement_batches": []} for index in range(self.partitions)
            ]
        if said:
            rows = [{"partition_index": 0, "acknowledgement_batches": batches(said)}]
        return {
            "group_id": self.group, "member_id": self.member_id, "share_session_epoch": self.epoch,
            "max_wait_ms": 0 if renew else wait_ms, "min_bytes": 0 if renew else 1,
            "max_bytes": 0 if renew else max_bytes, "max_records": 0 if renew else most,
            "batch_size": batch_size, "share_acquire_mode": mode, "is_renew_ack": renew,
            "topics": [{"topic_id": self.topic_id, "partitions": rows}] if rows else [],
            "forgotten_topics_data": [],
        }  # fmt: skip

    def send(self, body: Fields, api: str = "ShareFetch", note: str = "") -> Any:
        """Send a request whose response is observed."""
        response = self.connection.call(api, VERSION, body)
        self.session.observe(f"{api} {self.member_id} {note}".strip(), _ordered(response))
        if isinstance(response, dict) and not response["error_code"] and body["share_session_epoch"] >= 0:
            self.epoch = body["share_session_epoch"] + 1
        return response

    def fetch(self, *said: Said, note: str = "", **how: Any) -> list[Acquired]:
        """Fetch; return what was acquired of partition 0."""
        response = self.send(self.body(*said, **how), note=note)
        acquired = [found for partition, found in _acquired(response) if partition == 0]
        for first, last, _ in acquired:
            self.held.update(range(first, last + 1))
        return acquired

    def begin(self, **how: Any) -> list[Acquired]:
        """Begin the session, and wait until the share partition is loaded. Nothing is observed."""
        deadline = now_ms() + DEADLINE_MS
        while True:
            body = self.body(**{"wait_ms": 500, **how})
            response = self.connection.call("ShareFetch", VERSION, body)
            assert now_ms() < deadline, response
            if response["error_code"] == 0:
                self.epoch += 1
                rows = [row for topic in response["responses"] for row in topic["partitions"]]
                if not any(row["error_code"] for row in rows) and (
                    any(row["acquired_records"] for row in rows) or how.get("most") == 0
                ):
                    break
        acquired = [found for _, found in _acquired(response)]
        for first, last, _ in acquired:
            self.held.update(range(first, last + 1))
        return acquired

    def acquire(self) -> list[tuple[int, Acquired]]:
        """Fetch; return what was acquired, with its partition. Nothing is observed."""
        response = self.connection.call("ShareFetch", VERSION, self.body(wait_ms=500))
        self.epoch += response["error_code"] == 0
        return _acquired(response)

    def say(self, *said: Said, note: str = "", epoch: int | None = None, renew: bool = False) -> Any:
        """Acknowledge by ShareAcknowledge."""
        rows = [{"partition_index": 0, "acknowledgement_batches": batches(said)}]
        body = {
            "group_id": self.group, "member_id": self.member_id,
            "share_session_epoch": self.epoch if epoch is None else epoch, "is_renew_ack": renew,
            "topics": [{"topic_id": self.topic_id, "partitions": rows}],
        }  # fmt: skip
        return self.send(body, "ShareAcknowledge", note)

    def leave(self) -> None:
        """End the session."""
        epoch, self.epoch = self.epoch, -1
        self.send(self.body(), note="leaves")
        self.epoch = 0 if epoch else epoch
        self.held.clear()


def batches(said: Sequence[Said]) -> list[Fields]:
    return [
        {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
        for first, last, types in said
    ]


def _acquired(response: Any) -> list[tuple[int, Acquired]]:
    return [
        (row["partition_index"], (one["first_offset"], one["last_offset"], one["delivery_count"]))
        for topic in response["responses"]
        for row in topic["partitions"]
        for one in row["acquired_records"]
    ]


def _ordered(response: Any) -> Any:
    """The response with its rows in order: Kafka's is that of a hash table. Errors of acknowledgements have a text."""
    if isinstance(response, dict):
        for topic in response.get("responses", ()):
            topic["partitions"].sort(key=lambda row: row["partition_index"])
        response.get("responses", []).sort(key=lambda topic: topic["topic_id"])
    return response
