"""Messages in a line: every message of every version, without secrets and without what breaks a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.broker.control.messages import SECRETS
from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS
from oncelog.broker.trace.rendering import LINE_CHARS_MAX, Shown, content, message_text
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from oncelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.schema import Struct, deep_copy
from tests.common.batches import CONTROL, GZIP, batch, record
from tests.faults.filled_requests import CASES, Filling

SECRET = "hunter2"
TOPIC_ID = bytes(range(16))
PLAIN = Shown({TOPIC_ID: "orders"}.get, with_records=False)
RECORDS = Shown({TOPIC_ID: "orders"}.get, with_records=True)


def spoil(message: Any) -> None:
    """Put the secret into every field that holds one."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name in SECRETS:
            setattr(message, field.name, SECRET.encode())
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Struct):
                spoil(inner)


@pytest.mark.parametrize(("name", "version"), CASES)
def test_every_message_is_shown_without_its_secrets(name: str, version: int) -> None:
    handler = next(one for one in HANDLERS.values() if one.name == name)
    api = Api(handler, is_handled=False)
    for kind in (api.request, api.response):
        message = Filling(version).fill(kind)
        spoil(message)
        before = deep_copy(message, bytes)
        for shown in (PLAIN, RECORDS):
            text = message_text(message, version, shown)
            assert SECRET not in text
            assert text.isprintable()
            assert len(text) <= LINE_CHARS_MAX + 1
        assert message == before, "the message goes on as it was"


def test_passwords_in_configurations_are_hidden() -> None:
    configs = [AlterableConfig("ssl.key.password", 0, SECRET), AlterableConfig("retention.ms", 0, "1000")]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", configs)])
    assert message_text(request, 1, PLAIN) == (
        "resources=[{resource_type=4 resource_name=1 configs=[{name=ssl.key.password config_operation=0 "
        "value='[hidden]'}, {name=retention.ms config_operation=0 value=1000}]}]"
    )


def test_a_token_is_hidden() -> None:
    assert message_text(SaslAuthenticateRequest(b"\0user\0hunter2"), 2, PLAIN) == "auth_bytes=[hidden]"


def produce(records: bytes) -> ProduceRequest:
    rows = [PartitionProduceData(3, memoryview(records))]
    return ProduceRequest(None, -1, 1000, [TopicProduceData("", TOPIC_ID, rows)])


def test_a_produce() -> None:
    data = batch(3, codec=GZIP)
    text = message_text(produce(data), 13, PLAIN)
    assert text.startswith("acks=-1 timeout_ms=1000 topic_data=[{")
    assert text.endswith(
        f"partition_data=[{{index=3 records=<1 batch, 3 records, gzip, {len(data)} bytes>}}]}}]"
    )


def test_records() -> None:
    data = batch(
        [
            record(b"table 7", b"coffee", [("trace", b"1"), ("none", None)]),
            record(None, b"\x00\xff", offset_delta=1),
        ],
        base_offset=40,
    )
    shown = message_text(produce(data), 13, RECORDS).partition("bytes>")[2]
    assert shown == (
        "[@40 key='table 7' value=coffee headers={trace=1 none=null}, @41 key=null value=0x00ff]}]}]"
    )


def test_records_that_cannot_be_read() -> None:
    for data in (
        batch(2)[:-1],
        batch([record(extra=b"x")]),
        batch(1, magic=1),
        batch(1, length=-5),
        b"x" * 70,
    ):
        assert message_text(produce(data), 13, RECORDS)
    assert "unreadable: " in message_text(produce(batch([record(extra=b"x")])), 13, RECORDS)
    marker = batch([record(b"\0\0\0\1", b"")], attributes=CONTROL)
    assert "[control @0" in message_text(produce(marker), 13, RECORDS)


def test_errors_have_their_names() -> None:
    rows = [
        PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        PartitionProduceResponse(1, 999, 0),
    ]
    response = ProduceResponse([TopicProduceResponse("t", partition_responses=rows)])
    text = message_text(response, 9, PLAIN)
    assert "error_code=NOT_LEADER_OR_FOLLOWER" in text
    assert "error_code=999" in text


def test_what_says_nothing_is_left_out() -> None:
    assert message_text(ListGroupsRequest(), 5, PLAIN) == ""


def test_rights_that_nobody_asked_for_are_left_out() -> None:
    topic = MetadataResponseTopic(name="orders")
    assert message_text(MetadataResponse(topics=[topic]), 9, PLAIN).endswith("topics=[{name=orders}]")
    topic.topic_authorized_operations = 8
    assert "topic_authorized_operations=8" in message_text(MetadataResponse(topics=[topic]), 9, PLAIN)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "null"),
        (b"", "''"),
        (b"plain", "plain"),
        (b"two words", "'two words'"),
        ("é€".encode(), "é€"),
        (b"a\x1b[31m", "0x611b5b33316d"),
        (b"line\nbreak", "'line\\nbreak'"),
        (b"\xff\xfe", "0xfffe"),
        (b"x" * 500, "x" * 100 + "…"),
        (b"\xff" * 500, "0x" + "ff" * 50 + "…"),
        ("é".encode() * 300 + b"", "é" * 100 + "…"),
        (b"a" + "é".encode() * 300, "a" + "é" * 99 + "…"),
    ],
)
def test_keys_and_values(data: bytes | None, text: str) -> None:
    assert content(data) == text
