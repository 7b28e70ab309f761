"""What arguments and results are as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control_http.annotations import from_json, from_query, schema, to_json
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from oncelog.wire.messages.fetch import FetchRequest, FetchTopic

Level = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True)
class Point:
    """Where something is."""

    x: int
    """To the right."""
    label: bytes | None = None


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (str, "a", "a"),
        (int, 5, 5),
        (float, 5, 5.0),
        (float, 0.5, 0.5),
        (bool, True, True),
        (bytes, "ä", b"\xc3\xa4"),
        (bytes, {"base64": "/w=="}, b"\xff"),
        (bytes | None, None, None),
        (int | None, 3, 3),
        (str | list[str], ["a", "b"], ["a", "b"]),
        (Sequence[str], ["a"], ["a"]),
        (tuple[str, ...], ["a"], ("a",)),
        (tuple[tuple[str, bytes | None], ...], [["a", "b"], ["c", None]], (("a", b"b"), ("c", None))),
        (Mapping[str, Any], {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        (dict[int, int], {"0": 7}, {0: 7}),
        (Level, "read_committed", "read_committed"),
        (Any, {"a": 1.5}, {"a": 1.5}),
        (Point, {"x": 1, "label": "a"}, Point(1, b"a")),
    ],
)
def test_an_argument(annotation: Any, value: Any, expected: Any) -> None:
    found = from_json(annotation, value, "it")
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (str, 5, "it=5: expected text"),
        (int, "5", "it='5': expected a whole number"),
        (int, True, "it=True: expected a whole number"),
        (int, 1.5, "it=1.5: expected a whole number"),
        (float, float("nan"), "it=nan: expected a number"),
        (bool, 1, "it=1: expected true or false"),
        (bytes, 5, """it=5: expected text, or {"base64": "..."}"""),
        (bytes, {"base64": "?"}, """it={'base64': '?'}: expected text, or {"base64": "..."}"""),
        (int | None, "x", "it='x': expected a whole number or null"),
        (list[str], "abc", "it='abc': expected a list of text"),
        (list[str], [1], "it=[1]: expected a list of text"),
        (Mapping[str, int], {"a": "b"}, "it={'a': 'b'}: expected an object"),
        (dict[int, int], {"a": 1}, "it={'a': 1}: expected an object"),
        (Level, "committed", "it='committed': expected read_committed or read_uncommitted"),
        (Point, {"y": 1}, "it={'y': 1}: expected an object with x, label"),
        (Point, {}, "it={}: expected an object with x, label"),
    ],
)
def test_an_argument_of_another_type(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        from_json(annotation, value, "it")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("annotation", "texts", "expected"),
    [
        (str, ["5"], "5"),
        (int, ["-5"], -5),
        (int | None, ["5"], 5),
        (float, ["1.5"], 1.5),
        (float | None, ["10"], 10.0),
        (bool, ["true"], True),
        (bytes, ["a"], b"a"),
        (list[str], ["a", "b"], ["a", "b"]),
        (list[int] | None, ["1"], [1]),
        (Level | None, ["read_committed"], "read_committed"),
    ],
)
def test_a_query_parameter(annotation: Any, texts: list[str], expected: Any) -> None:
    assert from_query(annotation, texts, "it") == expected


@pytest.mark.parametrize(
    ("annotation", "texts", "message"),
    [
        (int, ["1_000"], "it='1_000': expected a whole number"),
        (int, ["1", "2"], "it is given 2 times: expected once"),
        (bool, ["yes"], "it='yes': expected true or false"),
        (float, ["inf"], "it='inf': expected a number"),
        (dict[str, int], ["a"], "it='a': expected an object"),
    ],
)
def test_a_query_parameter_of_another_type(annotation: Any, texts: list[str], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        from_query(annotation, texts, "it")
    assert str(caught.value) == message


def test_a_result() -> None:
    assert to_json(
        [Point(1, b"\xff\x00"), {0: (1.5, float("inf"))}, ErrorCode.NOT_COORDINATOR, {"a": memoryview(b"b")}]
    ) == [{"x": 1, "label": {"base64": "/wA="}}, {"0": [1.5, None]}, "NOT_COORDINATOR", {"a": "b"}]


@pytest.mark.parametrize("data", [b"", b"plain", "ä".encode(), b"\xff", bytes(range(256))])
def test_bytes_are_sent_without_loss(data: bytes) -> None:
    assert from_json(bytes, to_json(data), "it") == data


def test_a_message_of_kafkas() -> None:
    request = FetchRequest(topics=[FetchTopic(topic_id=bytes(15) + b"\x01", partitions=[])])
    found = to_json(request)
    assert found["topics"][0] == {"topic": "", "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": []}
    described = DescribeTopicPartitionsRequest()
    assert to_json(described)["cursor"] is None


def test_a_schema() -> None:
    components: dict[str, Any] = {}
    assert schema(list[Point] | None, components) == {
        "anyOf": [{"type": "array", "items": {"$ref": "#/components/schemas/Point"}}, {"type": "null"}]
    }
    point = components["Point"]
    assert point["description"] == "Where something is."
    assert point["properties"]["x"] == {"type": "integer", "description": "To the right."}
    assert point["required"] == ["x", "label"]
    with pytest.raises(TypeError, match="cannot be JSON"):
        schema(complex, components)
