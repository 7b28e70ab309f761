"""Declarations: constructors, defaults, comparison, versions, uuids, and the cost of importing them."""

import pathlib
import subprocess
import sys
import uuid as standard_uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.wire.schema import (
    ALL_VERSIONS,
    NO_VERSIONS,
    ZERO_UUID,
    Message,
    Struct,
    Uuid,
    array,
    boolean,
    float64,
    int8,
    int32,
    parse_versions,
    records,
    string,
    struct,
    uuid,
    uuid_from_text,
    uuid_to_text,
)

ROOT = pathlib.Path(__file__).parents[2]


class Inner(Struct):
    number: int = int32(default=-1)
    text: str | None = string(nullable="0+", default=None)


class Outer(Message, api_key=7, kind="request", versions="1-4", flexible="3+", latest_version_unstable=True):
    flag: bool = boolean(default=True)
    ratio: float = float64()
    topic_id: Uuid = uuid()
    inner: Inner = struct(Inner)
    maybe: Inner | None = struct(Inner, nullable="0+", default=None)
    hint: Inner | None = struct(Inner, "3+", tag=0)
    many: list[Inner] = array(Inner)
    numbers: list[int] = array(int8)
    absent: list[str] | None = array(string, nullable="0+", default=None)
    records: object = records()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", (3, 3)),
        ("0-12", (0, 12)),
        ("7+", (7, 32767)),
        ("0+", ALL_VERSIONS),
        ("none", NO_VERSIONS),
        ("", NO_VERSIONS),
    ],
)
def test_version_ranges(text: str, expected: tuple[int, int]) -> None:
    assert parse_versions(text) == expected


def test_kafkas_defaults() -> None:
    message = Outer()
    assert (message.flag, message.ratio, message.topic_id) == (True, 0.0, ZERO_UUID)
    assert message.inner == Inner(-1, None)
    assert (message.maybe, message.hint, message.absent, message.records) == (None, None, None, None)
    assert (message.many, message.numbers) == ([], [])


def test_lists_and_structs_are_made_anew() -> None:
    first, second = Outer(), Outer()
    first.many.append(Inner())
    first.inner.number = 5
    assert second == Outer()
    assert first != second


def test_fields_by_position_and_by_keyword() -> None:
    assert Inner(3, "x") == Inner(text="x", number=3)
    assert Inner(3) == Inner(number=3)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        Inner(nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Inner().nonsense = 1  # type: ignore[attr-defined]


def test_structs_of_other_classes_are_not_equal() -> None:
    class Twin(Struct):
        number: int = int32(default=-1)
        text: str | None = string(nullable="0+", default=None)

    assert Twin() != Inner()
    assert (Inner() == 3) is False


def test_repr_shows_all_fields() -> None:
    assert repr(Inner(2, "b")) == "Inner(number=2, text='b')"


def test_facts_of_a_message() -> None:
    assert (Outer.API_KEY, Outer.KIND, Outer.MIN_VERSION, Outer.MAX_VERSION) == (7, "request", 1, 4)
    assert Outer.LATEST_VERSION_UNSTABLE
    assert [Outer.is_flexible(version) for version in (1, 2, 3, 4)] == [False, False, True, True]


@pytest.mark.parametrize("version", [-1, 0, 5])
def test_a_version_that_does_not_exist(version: int) -> None:
    with pytest.raises(ValueError, match="has no version"):
        Outer.decode(b"", version)
    with pytest.raises(ValueError, match="has no version"):
        Outer().encode(version)


def test_compiled_functions_are_kept() -> None:
    assert Outer.decoder(3) is Outer.decoder(3)
    assert Outer.decoder(3) is not Outer.decoder(4)
    assert Outer.encoder(3) is Outer.encoder(3)


@settings(deadline=None)
@given(st.binary(min_size=16, max_size=16))
def test_uuid_text_is_url_safe_base64(value: bytes) -> None:
    text = uuid_to_text(value)
    assert len(text) == 22
    assert not set(text) & set("+/=")
    assert uuid_from_text(text) == value


def test_uuid_text_as_kafka_writes_it() -> None:
    # the output of kafka-storage random-uuid and Uuid.toString for these 16 bytes
    assert (
        uuid_to_text(standard_uuid.UUID("fbff3eff-0000-4000-8000-0000000000ff").bytes)
        == "-_8-_wAAQACAAAAAAAAA_w"
    )
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 24, "A" * 21 + "+", "é" * 22, "A B" + "A" * 19])
def test_invalid_uuids(text: str) -> None:
    with pytest.raises(ValueError, match="not a UUID"):
        uuid_from_text(text)


def test_importing_declarations_imports_and_compiles_little() -> None:
    check = (
        "import sys; before = set(sys.modules); import oncelog.wire.messages.fetch, oncelog.wire.stored.metadata\n"
        "heavy = {'inspect', 'dataclasses', 'json', 'asyncio', 'base64', 'linecache', 'uuid'}\n"
        "print(sorted((set(sys.modules) - before) & heavy), 'oncelog.wire.decode_source' in sys.modules)"
    )
    shown = subprocess.run(
        [sys.executable, "-S", "-c", check], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert shown.stdout.split() == ["[]", "False"]
