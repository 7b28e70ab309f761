"""The bytes of every message and version, against kafka-python's encoder and kio's reader and writer.

Also: decoding truncated messages, and messages with huge lengths.
"""

import contextlib
import dataclasses
import datetime
import io
import itertools
import pathlib
import resource
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from oncelog.wire.compiler import compile_step_decoder
from oncelog.wire.errors import DecodeError
from oncelog.wire.messages.unregister_controller import UnregisterControllerRequest
from oncelog.wire.schema import Message, Struct
from oncelog.wire.steps import finish
from oncelog.wire.stored.groups import ConsumerGroupMemberMetadataValue
from tests.common.kafka_definitions import definitions
from tests.wire.kafka_json import NEWER_THAN_KIO, Json, all_messages, encode, snake
from tests.wire.values import build, in_version, sample, values, within

MESSAGES = all_messages()
# kafka-python uses the null in a definition as the field's default. Kafka's generated class has an empty struct and
# writes a null, which DumpLogSegments reads in compat_tests.
READ_BY_KAFKA = (ConsumerGroupMemberMetadataValue,)
NEW_IN_4_4 = UnregisterControllerRequest.API_KEY
"""kio does not know it."""
quick = settings(
    max_examples=12,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def check_bytes(cls: type[Message], definition: Json, drawn: Json) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        carried = in_version(cls, drawn, version)
        message = build(cls, carried)
        expected = encode(definition, cls, carried, version)
        assert message.encode(version) == expected, version
        assert cls.decode(expected, version) == message, version


@pytest.mark.parametrize("cls", [c for c in MESSAGES if c not in READ_BY_KAFKA], ids=lambda cls: cls.__name__)
def test_same_bytes_as_kafka_python(cls: type[Message]) -> None:
    @quick
    @given(values(cls))
    def check(drawn: Json) -> None:
        check_bytes(cls, definitions()[cls.__name__], drawn)

    check()


def kio_schema(cls: type[Message], version: int) -> Any:
    name = snake(cls.__name__).replace("kraft_", "k_raft_")
    if cls.KIND == "request":
        return load_entity_schema(name.removesuffix("_request"), version, EntityType.request)
    if cls.KIND == "response":
        return load_entity_schema(name.removesuffix("_response"), version, EntityType.response)
    return load_entity_schema(name, version, EntityType.data)


def leaves_of_kio(value: Any) -> Iterator[Any]:
    """A kio entity's values in declared order."""
    if isinstance(value, tuple):
        yield len(value)
        for one in value:
            yield from leaves_of_kio(one)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves_of_kio(getattr(value, field.name))
    elif isinstance(value, datetime.timedelta):
        yield value // datetime.timedelta(milliseconds=1)
    elif isinstance(value, datetime.datetime):
        yield round(value.timestamp() * 1000)
    elif isinstance(value, uuid.UUID):
        yield value.bytes
    elif isinstance(value, ErrorCode):
        yield value.value
    else:
        yield value


def leaves(cls: type[Struct], values: Json, version: int) -> Iterator[Any]:
    for field in cls.FIELDS:
        value = values[field.name]
        if not within(version, field.versions):
            continue
        if isinstance(value, list):
            yield len(value)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(field.element, type) and one is not None:
                yield from leaves(field.element, one, version)
            else:
                yield one


@pytest.mark.parametrize(
    "cls",
    [c for c in MESSAGES if c.KIND in ("request", "response", "data") and c.API_KEY != NEW_IN_4_4],
    ids=lambda cls: cls.__name__,
)
def test_kio_reads_the_same_values_and_writes_the_same_bytes(cls: type[Message]) -> None:
    api = cls.__name__.removesuffix("Request").removesuffix("Response")
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + (api not in NEWER_THAN_KIO)):
        carried = in_version(cls, sample(cls, itertools.count(1)), version)
        encoded = build(cls, carried).encode(version)
        schema = kio_schema(cls, version)
        entity, size = entity_reader(schema)(encoded, 0)
        assert size == len(encoded)
        assert list(leaves_of_kio(entity)) == list(leaves(cls, carried, version)), version
        written = io.BytesIO()
        entity_writer(schema)(written, entity)
        assert written.getvalue() == encoded, version


def full(cls: type[Message], version: int) -> bytes:
    encoded: bytes = build(cls, in_version(cls, sample(cls, itertools.count(1)), version)).encode(version)
    return encoded


def edge_versions(cls: type[Message]) -> list[int]:
    """The first and last version, and those on both sides of the first flexible one."""
    first = cls.FLEXIBLE_VERSIONS[0]
    found = {cls.MIN_VERSION, first - 1, first, cls.MAX_VERSION}
    return sorted(v for v in found if cls.MIN_VERSION <= v <= cls.MAX_VERSION)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_truncation_is_refused(cls: type[Message]) -> None:
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        encoded = full(cls, version)
        decode = cls.decoder(version)
        assert decode(encoded, 0)[1] == len(encoded)
        for size in range(len(encoded)):
            with pytest.raises(DecodeError):
                decode(encoded[:size], 0)


BLOWN_UP = (
    b"\x7f\xff\xff\xff",  # int32, largest
    b"\x80\x00\x00\x00",  # int32, smallest
    b"\xff\xff\xff\xfe",  # int32 -2
    b"\x7f\xff",  # int16, largest
    b"\xff\xff\xff\xff\x0f",  # varint, 2**32 - 1
    b"\x80\x80\x80\x80\x10",  # varint, 2**32
    b"\xff\xff\xff\xff\xff\xff",  # no end
    b"\xff\xff\x7f",  # varint, 2**21 - 1
)
MEMORY_MAX = 64 * 2**20
"""Limit of memory, in bytes, for decoding a message of some hundred bytes; huge lengths would need gigabytes."""


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Make allocations far above the present use raise MemoryError."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_MAX, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_message_is_decoded_in_steps_as_at_once(cls: type[Message]) -> None:
    version = cls.MAX_VERSION
    encoded = full(cls, version)
    steps = compile_step_decoder(cls, version)
    message, end = finish(steps(encoded, 0))
    assert (message, end) == cls.decoder(version)(encoded, 0)
    for size in range(0, len(encoded), 7):
        with pytest.raises(DecodeError):
            finish(steps(encoded[:size], 0))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_no_length_makes_a_decoder_fail_otherwise_or_allocate(cls: type[Message]) -> None:
    refused = 0
    for version in edge_versions(cls):
        encoded = full(cls, version)
        decode = cls.decoder(version)
        with limited_memory():
            for position in range(len(encoded)):
                for blown in BLOWN_UP:
                    damaged = encoded[:position] + blown + encoded[position + len(blown) :]
                    try:
                        decode(damaged, 0)
                    except DecodeError:
                        refused += 1
    has_length = any(field.kind in ("string", "bytes", "records", "array") for field in cls.FIELDS)
    assert refused > 0 or not has_length
