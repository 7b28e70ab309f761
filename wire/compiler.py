"""Compiles one flat decode and one flat encode function for each message and version.

Nested structs are inlined, adjacent fields of fixed size share one ``struct`` call, and every read is checked: those of
fixed size by ``struct`` and by indexing, those with a length by a comparison with the end. This module has what both
directions share; ``decode_source`` and ``encode_source`` generate the code.

Layouts: KIP-482 (flexible versions), ``org.apache.kafka.message.MessageDataGenerator``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from oncelog.wire.primitives import Buffer, SizedRange
    from oncelog.wire.schema import Field, Message, Struct

M = TypeVar("M", bound="Message")

Decoder: TypeAlias = "Callable[[Buffer, int], tuple[M, int]]"
StepDecoder: TypeAlias = "Callable[[Buffer, int], Generator[None, None, tuple[M, int]]]"
Encoder: TypeAlias = "Callable[[M, bytearray, list[tuple[int, SizedRange]]], None]"
StepEncoder: TypeAlias = "Callable[[M, bytearray, list[tuple[int, SizedRange]]], Iterator[None]]"

FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Kinds of fixed size: their ``struct`` format and their size in bytes."""

STRING_LENGTH_MAX = 32767
"""Bytes of UTF-8 in a string, in flexible versions too (``MessageDataGenerator`` refuses longer ones)."""

UNCHECKED_COUNT_MAX = 16
"""Arrays up to this size are read without first comparing their count with the bytes left: each read is checked
anyway."""

ARRAY_LENGTH_MAX = 1_000_000
"""Elements of one array. In memory an element may take a hundred times its bytes on the wire."""

REQUEST_ELEMENTS_MAX = 100_000
"""Elements of all arrays of one request, plus its tagged fields. Each costs the handler some microseconds, during which
all connections wait. A request for 10,000 partitions of as many topics has 20,000."""

AT_ONCE_ELEMENTS_MAX = 2_000
"""Elements, with tagged fields, of a request that a server decodes in one go: some milliseconds."""

TAGS_MAX = 10_000
"""Tagged fields of one struct, or of a header (Kafka 4.4 has the same limit)."""

LIMITED_KINDS = ("request", "data")
"""Kinds of message that come from clients (``data`` inside requests), to which `REQUEST_ELEMENTS_MAX` applies."""

VARINT_MAX = 0xFFFFFFFF


class _New:
    """The type of `NEW`: a default that is created for each object."""

    def __repr__(self) -> str:
        return "NEW"


NEW = _New()


class ManyElements(Exception):  # noqa: N818 - an instruction, not an error
    """A request has more than `AT_ONCE_ELEMENTS_MAX` elements: decode it in steps."""


def in_range(version: int, versions: tuple[int, int]) -> bool:
    return versions[0] <= version <= versions[1]


def tagged_fields(cls: type[Struct], version: int) -> list[Field]:
    """The fields in the struct's tag section in this version, in the order of their tags."""
    fields = [f for f in cls.FIELDS if in_range(version, f.versions) and in_range(version, f.tagged)]
    return sorted(fields, key=lambda field: field.tag or 0)


class FunctionSource:
    """The source of a function that is being generated, and the global names that it uses."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.label = f"{cls.__name__} v{version}"
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []
        self.indent = 1
        self._used = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def fresh(self, prefix: str) -> str:
        """A local name that is not used yet."""
        self._used += 1
        return f"{prefix}{self._used}"

    def struct_call(self, layout: str, method: str) -> str:
        """The global name of ``pack`` or ``unpack_from`` of a precompiled ``struct.Struct`` with a big-endian
        ``layout``.
        """
        name = method + "_" + layout.replace("?", "o")
        if name not in self.names:
            self.names[name] = getattr(_struct(layout), method)
        return name

    def type_name(self, cls: type[Struct]) -> str:
        """The global name of a struct class (two classes may have the same name)."""
        name = cls.__name__
        while self.names.setdefault(name, cls) is not cls:
            name += "_"
        return name


_STRUCTS: dict[str, struct.Struct] = {}


def _struct(layout: str) -> struct.Struct:
    found = _STRUCTS.get(layout)
    if found is None:
        found = _STRUCTS[layout] = struct.Struct(">" + layout)
    return found


def compile_function(name: str, where: str, lines: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    """Compiles one function. Tracebacks show its source as ``<oncelog WHERE NAME>``."""
    import linecache

    source = "\n".join(lines) + "\n"
    filename = f"<oncelog {where} {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec", dont_inherit=True), names)
    function: Callable[..., Any] = names[name]
    return function


def compile_decoder(cls: type[M], version: int) -> Decoder[M]:
    from oncelog.wire.decode_source import decode_lines

    lines, names = decode_lines(cls, version)
    return compile_function("decode", f"{cls.__module__}.{cls.__name__} v{version}", lines, names)


@cache
def compile_at_once_decoder(cls: type[M], version: int) -> Decoder[M]:
    """A decoder for requests that raises `ManyElements` for a large one, which is to be decoded in steps."""
    from oncelog.wire.decode_source import decode_lines

    lines, names = decode_lines(cls, version, at_once=True)
    return compile_function("decode", f"{cls.__module__}.{cls.__name__} v{version} at once", lines, names)


@cache
def compile_step_decoder(cls: type[M], version: int) -> StepDecoder[M]:
    """A decoder for large messages: a generator, which reads `decode_source.STEP_ELEMENTS` elements at each step, and
    returns the message and the end offset. Raises DecodeError.
    """
    from oncelog.wire.decode_source import decode_lines

    lines, names = decode_lines(cls, version, in_steps=True)
    return compile_function("decode", f"{cls.__module__}.{cls.__name__} v{version} in steps", lines, names)


def compile_encoder(cls: type[M], version: int) -> Encoder[M]:
    from oncelog.wire.encode_source import encode_lines

    lines, names = encode_lines(cls, version)
    return compile_function("encode", f"{cls.__module__}.{cls.__name__} v{version}", lines, names)


@cache
def compile_step_encoder(cls: type[M], version: int) -> StepEncoder[M]:
    """An encoder for long messages: a generator, each step of which writes some kilobytes (`STEP_BYTES`)."""
    from oncelog.wire.encode_source import encode_lines

    lines, names = encode_lines(cls, version, in_steps=True)
    return compile_function("encode", f"{cls.__module__}.{cls.__name__} v{version} in steps", lines, names)


# Helpers that the compiled functions call.


def long_uvarint(buffer: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Reads the rest of an unsigned varint, whose ``first`` byte (> 127) is just before ``pos``.

    Returns the value and the position after it.
    """
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise DecodeError("varint of more than five bytes")
    if value > VARINT_MAX:
        raise DecodeError("varint of more than 32 bits")
    return value, pos


def long_string_length(buffer: Buffer, pos: int, first: int) -> tuple[int, int]:
    """``long_uvarint`` for the length, plus one, of a compact string."""
    value, pos = long_uvarint(buffer, pos, first)
    if value > STRING_LENGTH_MAX + 1:
        raise DecodeError(f"string of {value - 1} bytes")
    return value, pos


def uvarint(buffer: Buffer, pos: int) -> tuple[int, int]:
    byte = buffer[pos]
    pos += 1
    return (byte, pos) if byte < 0x80 else long_uvarint(buffer, pos, byte)


def check_count(count: int, bytes_left: int, size_min: int, what: str, budget: int = 0) -> int:
    """Check an array's count: so many elements of at least ``size_min`` bytes must fit into the bytes left. Returns it.

    ``budget``: how many more elements and tags the message may have after these.
    """
    if count < 0:
        raise DecodeError(f"{what}: " + ("null" if count == -1 else f"count {count}"))
    if count * size_min > bytes_left:
        raise DecodeError(f"{what}: {count} elements in {bytes_left} bytes")
    if count > ARRAY_LENGTH_MAX:
        raise DecodeError(f"{what}: {count} elements, more than {ARRAY_LENGTH_MAX}")
    if budget < 0:
        raise too_many(what)
    return count


def too_many(what: str) -> DecodeError:
    return DecodeError(f"{what}: more than {REQUEST_ELEMENTS_MAX} elements and tags in one request")


def bad_length(length: int, bytes_left: int, what: str) -> DecodeError:
    if length < 0:
        return DecodeError(f"{what}: " + ("null" if length == -1 else f"length {length}"))
    return DecodeError(f"{what}: {length} bytes where {bytes_left} are left")


def many_elements(what: str) -> ManyElements:
    """In place of `too_many` where a request is to be decoded in one go."""
    return ManyElements(what)


def check_count_at_once(count: int, bytes_left: int, size_min: int, what: str, budget: int = 0) -> int:
    """`check_count` where a request is to be decoded in one go."""
    check_count(count, bytes_left, size_min, what)
    if budget < 0:
        raise many_elements(what)
    return count


def skip_tags_at_once(buffer: Buffer, pos: int, end: int, budget: int) -> tuple[int, int]:
    """`skip_tags` where a request is to be decoded in one go."""
    if uvarint(buffer, pos)[0] > budget:
        raise many_elements("tags")
    return skip_tags(buffer, pos, end, budget)


def check_tags(count: int) -> None:
    """Raises DecodeError for too many tags in one section."""
    if count > TAGS_MAX:
        raise DecodeError(f"{count} tags, more than {TAGS_MAX}")


def skip_tags(buffer: Buffer, pos: int, end: int, budget: int) -> tuple[int, int]:
    """Skips a tag section with unknown tags; ``pos`` is its start.

    Returns the position after it, and how many more elements and tags the message may have.
    """
    count, pos = uvarint(buffer, pos)
    budget -= count
    if budget < 0:
        raise too_many("tags")
    check_tags(count)
    previous = -1
    for _ in range(count):
        tag, size, pos = tag_header(buffer, pos, end, previous)
        previous = tag
        pos += size
    return pos, budget


def tag_header(buffer: Buffer, pos: int, end: int, previous: int) -> tuple[int, int, int]:
    """A tagged field's tag, its size in bytes and the position of its first byte."""
    tag, pos = uvarint(buffer, pos)
    size, pos = uvarint(buffer, pos)
    if tag <= previous:
        raise DecodeError(f"tag {tag} after tag {previous}")
    if size > end - pos:
        raise DecodeError(f"tag {tag}: {size} bytes where {end - pos} are left")
    return tag, size, pos


def put_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
