"""Field specifiers and base classes with which messages are declared.

A declaration lists a message's fields once for all versions, in Kafka's order and with Kafka's names in snake_case. A
specifier such as ``int32("7+", default=-1)`` gives a field's wire format and versions. ``wire.compiler`` compiles a
decode and an encode function for a version on its first use, so importing a module of messages compiles nothing.

The facts are those of Kafka's message definitions (``clients/src/main/resources/common/message/README.md``
explains them).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias, TypeVar, cast, dataclass_transform

from oncelog.wire.compiler import NEW, Decoder, Encoder, compile_decoder, compile_encoder, compile_function
from oncelog.wire.primitives import ZERO_UUID as ZERO_UUID
from oncelog.wire.primitives import Buffer as Buffer
from oncelog.wire.primitives import Records as Records
from oncelog.wire.primitives import SizedRange as SizedRange
from oncelog.wire.primitives import Uuid as Uuid
from oncelog.wire.primitives import uuid_from_text as uuid_from_text
from oncelog.wire.primitives import uuid_to_text as uuid_to_text

T = TypeVar("T")

VersionRange: TypeAlias = tuple[int, int]
"""First and last version, both included; an open end is ``LAST_VERSION``."""

LAST_VERSION = 32767
NO_VERSIONS: VersionRange = (0, -1)
ALL_VERSIONS: VersionRange = (0, LAST_VERSION)


def parse_versions(text: str) -> VersionRange:
    """``"3"``, ``"3-7"``, ``"3+"`` or ``"none"`` (also ``""``) as a range."""
    if text in ("", "none"):
        return NO_VERSIONS
    if text[-1] == "+":
        return int(text[:-1]), LAST_VERSION
    first, _, last = text.partition("-")
    return int(first), int(last or first)


class Field:
    """One field of a struct.

    ``kind``: Kafka's type name, or ``"array"`` or ``"struct"`` with the type of its content in ``element`` (a Field
    without a name, or a Struct class). ``versions``, ``nullable``, ``tagged``: the versions in which the field exists,
    may be null, is in the tag section. ``default``: its value if not set; ``NEW`` means a new list or struct.
    """

    __slots__ = ("default", "element", "ignorable", "kind", "name", "nullable", "tag", "tagged", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        nullable: str,
        default: object,
        tag: int | None,
        tagged: str | None,
        ignorable: bool,
        element: Field | type[Struct] | None = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.element = element
        self.versions = parse_versions(versions) if versions else ALL_VERSIONS
        self.nullable = parse_versions(nullable) if nullable else NO_VERSIONS
        self.default = default
        self.tag = tag
        self.tagged = NO_VERSIONS
        if tag is not None:
            self.tagged = self.versions if tagged is None else parse_versions(tagged)
        self.ignorable = ignorable

    def __repr__(self) -> str:
        return f"Field({self.name!r}, {self.kind}, {self.versions})"


def _number(kind: str, zero: T) -> Callable[..., T]:
    """A specifier for a field of fixed size: ``(versions, *, default, tag, tagged, ignorable)``."""

    def specifier(
        versions: str = "",
        *,
        default: T = zero,
        tag: int | None = None,
        tagged: str | None = None,
        ignorable: bool = False,
    ) -> T:
        return cast(T, Field(kind, versions, "", default, tag, tagged, ignorable))

    return specifier


boolean = _number("bool", False)
int8 = _number("int8", 0)
int16 = _number("int16", 0)
uint16 = _number("uint16", 0)
int32 = _number("int32", 0)
uint32 = _number("uint32", 0)
int64 = _number("int64", 0)
float64 = _number("float64", 0.0)
uuid = _number("uuid", ZERO_UUID)


def string(
    versions: str = "",
    *,
    nullable: str = "",
    default: str | None = "",
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> str:
    return cast(str, Field("string", versions, nullable, default, tag, tagged, ignorable))


def bytes_(
    versions: str = "",
    *,
    nullable: str = "",
    default: bytes | None = b"",
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> bytes:
    return cast(bytes, Field("bytes", versions, nullable, default, tag, tagged, ignorable))


def records(
    versions: str = "",
    *,
    nullable: str = "",
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> Any:
    """Record batches, default None. Decoded ones are a memoryview, without a copy; bytes or a ``SizedRange`` can be
    encoded.
    """
    return Field("records", versions, nullable, None, tag, tagged, ignorable)


def array(
    element: Callable[..., T],
    versions: str = "",
    *,
    nullable: str = "",
    default: tuple[()] | None = (),
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> list[T]:
    """A list of a struct class or specifier, as in ``array(Topic)``, ``array(int32)``. The default is a new list, or
    None.
    """
    inner = element if isinstance(element, StructMeta) else element()
    value = None if default is None else NEW
    return cast(
        "list[T]", Field("array", versions, nullable, value, tag, tagged, ignorable, cast(Any, inner))
    )


def struct(
    element: Callable[..., T],
    versions: str = "",
    *,
    nullable: str = "",
    default: tuple[()] | None = (),
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> T:
    """A struct in a struct.

    A tagged one that is not nullable defaults to None, which like Kafka's default struct is not sent. (There are many
    such fields, nearly always absent: to create a struct for each would cost more than the rest of a message.)
    """
    absent = default is None or (tag is not None and not nullable)
    value = None if absent else NEW
    return cast(T, Field("struct", versions, nullable, value, tag, tagged, ignorable, cast(Any, element)))


@dataclass_transform()
class StructMeta(type):
    """Converts the specifiers of a class body to ``FIELDS`` and ``__slots__``."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **header: Any) -> Any:
        fields = []
        for key, value in namespace.items():
            if type(value) is Field:
                value.name = key
                fields.append(value)
        for field in fields:
            del namespace[field.name]
        namespace["__slots__"] = tuple([field.name for field in fields])
        namespace["FIELDS"] = tuple(fields)
        if header:
            namespace.update(_message_facts(**header))
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **header: Any) -> None:
        super().__init__(name, bases, namespace)


def _message_facts(
    *, kind: str, versions: str, flexible: str, api_key: int = -1, latest_version_unstable: bool = False
) -> dict[str, Any]:
    first, last = parse_versions(versions)
    return {
        "API_KEY": api_key,
        "KIND": kind,
        "MIN_VERSION": first,
        "MAX_VERSION": last,
        "LATEST_VERSION_UNSTABLE": latest_version_unstable,
        "FLEXIBLE_VERSIONS": parse_versions(flexible),
        "_decoders": {},
        "_encoders": {},
    }


class Struct(metaclass=StructMeta):
    """A group of fields. Its constructor takes them by position, in declared order, or by keyword. Compared by
    value.
    """

    FIELDS: ClassVar[tuple[Field, ...]]

    if not TYPE_CHECKING:

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The first instance compiles the class's own __init__: to do so at import would slow down the start.
            cls = type(self)
            cls.__init__ = _compile_init(cls)
            cls.__init__(self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.FIELDS)
        return f"{type(self).__name__}({shown})"


def deep_copy(value: Any, copy_buffer: Callable[[Any], Any]) -> Any:
    """Return a copy of a message or of a field's value. ``copy_buffer`` copies its bytearrays and memoryviews."""
    if isinstance(value, Struct):
        copy = object.__new__(type(value))
        for field in value.FIELDS:
            setattr(copy, field.name, deep_copy(getattr(value, field.name), copy_buffer))
        return copy
    if isinstance(value, list):
        return [deep_copy(item, copy_buffer) for item in value]
    return copy_buffer(value) if isinstance(value, memoryview | bytearray) else value


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    names: dict[str, Any] = {"NEW": NEW}
    parameters = ["self"]
    body = []
    for index, field in enumerate(cls.FIELDS):
        value = field.name
        if field.default is NEW:
            made = "[]"
            if field.kind == "struct":
                made = f"T{index}()"
                names[f"T{index}"] = field.element
            value = f"{made} if {field.name} is NEW else {field.name}"
            parameters.append(f"{field.name}=NEW")
        else:
            parameters.append(f"{field.name}={field.default!r}")
        body.append(f"    self.{field.name} = {value}")
    lines = [f"def __init__({', '.join(parameters)}):", *(body or ["    pass"])]
    return compile_function("__init__", f"{cls.__module__}.{cls.__qualname__}", lines, names)


class Message(Struct):
    """A whole request, response or stored record, with its own versions.

    Declared as ``class X(Message, api_key=…, kind=…, versions=…, flexible=…, latest_version_unstable=…)``.
    ``kind`` is Kafka's word for the type of message: ``request``, ``response``, ``metadata`` (there
    ``api_key`` is the record type), ``data``. ``api_key`` is -1 where there is none.
    """

    API_KEY: ClassVar[int]
    KIND: ClassVar[str]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    LATEST_VERSION_UNSTABLE: ClassVar[bool]
    FLEXIBLE_VERSIONS: ClassVar[VersionRange]
    _decoders: ClassVar[dict[int, Any]]
    _encoders: ClassVar[dict[int, Any]]

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether this version has compact lengths and tag sections (KIP-482)."""
        first, last = cls.FLEXIBLE_VERSIONS
        return first <= version <= last

    @classmethod
    def decoder(cls, version: int) -> Decoder[Self]:
        """The compiled function ``(buffer, offset) -> (message, end offset)``, which raises DecodeError. Raises
        ValueError for an unknown version.
        """
        function: Decoder[Self] | None = cls._decoders.get(version)
        if function is None:
            function = cls._decoders[version] = compile_decoder(cls, cls._check_version(version))
        return function

    @classmethod
    def encoder(cls, version: int) -> Encoder[Self]:
        """The compiled function ``(message, out, ranges) -> None`` of ``encode_into``. Raises ValueError for an unknown
        version.
        """
        function: Encoder[Self] | None = cls._encoders.get(version)
        if function is None:
            function = cls._encoders[version] = compile_encoder(cls, cls._check_version(version))
        return function

    @classmethod
    def _check_version(cls, version: int) -> int:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ValueError(
                f"{cls.__name__} has no version {version}: {cls.MIN_VERSION} to {cls.MAX_VERSION}"
            )
        return version

    @classmethod
    def decode(cls, buffer: Buffer, version: int, offset: int = 0) -> Self:
        """Decode the message at ``offset``. Bytes after it and unknown tagged fields are ignored, as in Kafka.

        Raises DecodeError for malformed bytes, ValueError for an unknown version.
        """
        return cls.decoder(version)(buffer, offset)[0]

    def encode(self, version: int) -> bytes:
        """The encoded message. Raises ValueError as ``encode_into`` does, and for records that are not in memory."""
        out = bytearray()
        ranges: list[tuple[int, SizedRange]] = []
        type(self).encoder(version)(self, out, ranges)
        if ranges:
            raise ValueError(f"{type(self).__name__}: records that are not in memory need encode_into")
        return bytes(out)

    def encode_into(self, version: int, out: bytearray, ranges: list[tuple[int, SizedRange]]) -> None:
        """Append the encoded message to ``out``, without records that are not in memory.

        Each entry ``(position, range)`` that it adds to ``ranges`` means: the bytes of ``range`` belong before
        ``out[position]``. Raises ValueError for a value that this version cannot hold (a non-default field that is
        neither in this version nor ignorable, null in a field that is not nullable, a number or string out of bounds),
        and then leaves ``out`` and ``ranges`` unchanged.
        """
        type(self).encoder(version)(self, out, ranges)


ResponseT_co = TypeVar("ResponseT_co", bound=Message, covariant=True)


class Request(Message, Generic[ResponseT_co]):
    """A message that a client sends, with the type of its response: ``class XRequest(Request["XResponse"], …)``."""

    @classmethod
    def response_type(cls) -> type[ResponseT_co]:
        """The response's class, which is declared in the same module."""
        name = f"{cls.__name__.removesuffix('Request')}Response"
        found: type[ResponseT_co] = getattr(sys.modules[cls.__module__], name)
        return found
