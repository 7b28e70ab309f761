"""Kafka's DumpLogSegments reads every record type of consumer and share groups, and shows the same values."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from conftest import KafkaTool
from oncelog.coordinator.groups.admin import delete_groups
from oncelog.coordinator.groups.share import offsets
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.stored import groups as stored
from oncelog.wire.stored.coordinator import decode_key, decode_value
from tests.common import exchanges
from tests.harness.classic_consumers import ClassicConsumer
from tests.harness.consumer_clients import Consumer
from tests.harness.group_shard import GroupShardHarness
from tests.harness.share_clients import ShareConsumer, ShareStates

pytestmark = pytest.mark.slow


def a_long_life() -> GroupShardHarness:
    """A group with every type of record and every field set once."""
    harness = GroupShardHarness({"group.consumer.assignment.interval.ms": "0"})
    harness.topics.create("t", 4)
    one = Consumer(harness, "one", ["t"], instance="i1", assignor="range")
    one.join(rack_id="r1")
    classic = ClassicConsumer(harness, ["t"])
    for _ in range(3):
        classic.act()
    two = Consumer(harness, "two", None, regex="t.*")
    two.join()
    harness.advance(0)
    for _ in range(4):
        for consumer in (one, two):
            consumer.acknowledge()
        classic.act()
    one.leave(-2)
    two.leave()
    return harness


def a_share_groups_life() -> GroupShardHarness:
    """A share group with every type of record and every field set once."""
    harness = GroupShardHarness({"group.share.assignment.interval.ms": "0"})
    harness.topics.create("t", 4)
    harness.topics.create("u", 1)
    states = ShareStates(harness)
    one, two = ShareConsumer(states, "one", ["t"]), ShareConsumer(states, "two", ["t", "u"])
    one.join()
    one.beat(rack_id="r1")
    states.finish_all()
    two.join()
    for consumer in (one, two):
        consumer.beat()
    one.leave()
    two.leave()
    offsets.delete(harness.shard, "g", ["t"])
    offsets.delete_all(harness.shard, "g")
    delete_groups(harness.shard, ["g"])
    return harness


@exchanges.GROUPS
@pytest.mark.parametrize("life", [a_long_life, a_share_groups_life])
def test_dump_log_segments(
    life: Callable[[], GroupShardHarness], kafka_tool: KafkaTool, tmp_path: pathlib.Path
) -> None:
    harness = life()
    batch = BatchBuilder()
    for entry in harness.log.entries:
        batch.append(harness.now_ms(), entry[0], entry[1])
    directory = tmp_path / "__consumer_offsets-7"
    directory.mkdir()
    log = directory / "00000000000000000000.log"
    log.write_bytes(batch.build())
    ran = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(log))
    assert ran.returncode == 0, ran.stderr[-2000:]
    lines = [line.partition(" key: ")[2] for line in ran.stdout.splitlines() if " key: " in line]
    assert len(lines) == len(harness.log.entries)
    types = set()
    for line, (key_bytes, value_bytes, _) in zip(lines, harness.log.entries, strict=True):
        key_text, _, value_text = line.partition(" payload: ")
        key = decode_key(key_bytes, stored.KEY_TYPES)
        assert key is not None
        assert json.loads(key_text) == {"type": str(key.API_KEY), "data": plain(key)}
        types.add(type(key))
        if value_bytes is None:
            assert value_text == "<DELETE>"
        else:
            value = decode_value(value_bytes, stored.VALUE_TYPES[key.API_KEY])
            assert without_defaults(json.loads(value_text)["data"]) == without_defaults(plain(value))
    assert len(types) == 6


def plain(value: Any) -> Any:
    """The value as in Kafka's JSON: names in camel case, ids and bytes as text."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if hasattr(value, "__slots__"):
        return {camel(name): plain(getattr(value, name)) for name in value.__slots__}
    return "bytes" if isinstance(value, bytes) else int(value) if isinstance(value, int) else value


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def without_defaults(value: Any) -> Any:
    """Compare fields; Kafka omits tagged fields with default values, and ids and bytes are only checked for
    presence.
    """
    if isinstance(value, list):
        return [without_defaults(one) for one in value]
    if isinstance(value, dict):
        return {
            key: "bytes" if key in ("topicId", "metadata") else without_defaults(one)
            for key, one in value.items()
            if one not in (None, 0)
        }
    return value
