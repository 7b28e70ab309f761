"""The records of a consumer group (KIP-848) in ``__consumer_offsets`` are the same as Kafka's."""

from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.classic_consumers import ClassicConsumer
from compat_tests.group_requests.consumer_members import MEMBER_ID_LENGTH, Member, Topics, compare
from compat_tests.group_requests.offset_records import as_fields, batches_of
from oncelog.wire.stored.coordinator import decode_key, decode_value, encode_key, encode_value
from oncelog.wire.stored.groups import (
    KEY_TYPES,
    VALUE_TYPES,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
)

pytestmark = pytest.mark.slow


def test_stored_records(pair: Pair, name: str) -> None:
    """Records are compared without their batches: Kafka may write those of several steps as one batch."""

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 4)
        one = Member(topics, name, "one", [name], instance="i1")
        two = Member(topics, name, "two", [name], assignor="range")
        one.join()
        two.join("two joins")
        one.acknowledge("told to revoke")
        one.acknowledge("revoked")
        two.heartbeat("gets its share")
        one.leave("for a while", epoch=-2)
        Member(topics, name, "one-again", [name], instance="i1").join("returns")
        two.leave()
        old = ClassicConsumer(topics, name, "classic", [name])
        old.join_new()
        Member(topics, name, "one-again", [name], instance="i1").leave("for good")
        old.leave("for good")
        regex = Member(topics, name, "regex", regex=f"{name}|nothing")
        regex.join("by expression")
        regex.heartbeat_until(lambda response: bool(response["assignment"]), "resolved")
        regex.heartbeat("no expression", subscribed_topic_regex="", subscribed_topic_names=[name])
        regex.leave("the last")
        session.call_unobserved("DeleteGroups", 2, {"groups_names": [name]})
        replaced = {old.member_id: "a member id"}
        rows: list[Any] = []
        for _, found in batches_of(session, name):
            for record in found:
                assert record.key is not None
                key = decode_key(record.key, KEY_TYPES)
                assert key is not None
                if name not in (getattr(key, "group_id", ""), getattr(key, "group", "")):
                    continue
                assert encode_key(key) == record.key
                value = None
                if record.value is not None:
                    value = decode_value(record.value, VALUE_TYPES[key.API_KEY])
                    assert encode_value(value, int.from_bytes(record.value[:2], "big")) == record.value
                rows.append(
                    [
                        type(key).__name__,
                        replace_ids(as_fields(key), replaced),
                        replace_ids(as_fields(value), replaced),
                    ]
                )
                shown = rows[-1][2]
                if isinstance(key, ConsumerGroupMetadataKey) and shown:
                    shown["metadata_hash"] = shown["metadata_hash"] != 0
                if isinstance(key, ConsumerGroupRegularExpressionKey) and shown:
                    shown["version"] = shown["version"] > 0
        for row in sort_neighbours(rows):
            session.observe(f"stored: {row[0]}", row)

    compare(pair, name, scenario)


def replace_ids(value: Any, replaced: dict[str, str]) -> Any:
    """The fields with generated member ids, and the keys of `replaced`, replaced."""
    if isinstance(value, str):
        return "a member id" if len(value) == MEMBER_ID_LENGTH else replaced.get(value, value)
    if isinstance(value, dict):
        return {key: replace_ids(field, replaced) for key, field in value.items()}
    if isinstance(value, list):
        return [replace_ids(element, replaced) for element in value]
    return value


def sort_neighbours(rows: list[Any]) -> list[Any]:
    """Sort neighbours of the same type: Kafka writes them in the order of a hash map of members."""
    ordered: list[Any] = []
    for row in rows:
        at = len(ordered)
        while at and ordered[at - 1][0] == row[0] and str(ordered[at - 1][1]) > str(row[1]):
            at -= 1
        ordered.insert(at, row)
    return ordered
