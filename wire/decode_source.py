"""Generates the source of decode functions (see ``wire.compiler``)."""

from __future__ import annotations

import struct
from typing import Any, cast

from oncelog.wire import compiler
from oncelog.wire.compiler import (
    AT_ONCE_ELEMENTS_MAX,
    FIXED,
    LIMITED_KINDS,
    NEW,
    REQUEST_ELEMENTS_MAX,
    UNCHECKED_COUNT_MAX,
    FunctionSource,
    in_range,
    tagged_fields,
)
from oncelog.wire.errors import DecodeError
from oncelog.wire.schema import Field, Message, Struct

_HELPERS: dict[str, Any] = {
    "new": object.__new__,
    "DecodeError": DecodeError,
    "struct_error": struct.error,
    "unpack_from": struct.unpack_from,
    "long_uvarint": compiler.long_uvarint,
    "long_string_length": compiler.long_string_length,
    "check_count": compiler.check_count,
    "bad_length": compiler.bad_length,
    "skip_tags": compiler.skip_tags,
    "tag_header": compiler.tag_header,
    "too_many": compiler.too_many,
    "check_tags": compiler.check_tags,
}
_AT_ONCE_HELPERS: dict[str, Any] = {
    "check_count": compiler.check_count_at_once,
    "skip_tags": compiler.skip_tags_at_once,
    "too_many": compiler.many_elements,
}

STEP_ELEMENTS = 100
"""Elements that a step of a step decoder reads: a fraction of a millisecond. Numbers in an array are read together."""


def decode_lines(
    cls: type[Message], version: int, *, at_once: bool = False, in_steps: bool = False
) -> tuple[list[str], dict[str, Any]]:
    """The lines of ``decode(buf, pos)`` and their global names. See `compile_decoder`, `compile_step_decoder`."""
    source = _DecodeSource(cls, version, in_steps=in_steps)
    source.names.update(_HELPERS)
    if at_once:
        source.names.update(_AT_ONCE_HELPERS)
    source.indent = 2
    source.struct("m", cls, "")
    source.flush()
    head = ["def decode(buf, pos):", "    try:"]
    if _has_records(cls):
        head.append("        buf = memoryview(buf)")
    tail = [
        "        return m, pos",
        "    except (IndexError, struct_error):",
        f"        raise DecodeError(f'{source.label}: cut short at {{len(buf)}} bytes (read {{pos}})') from None",
        "    except UnicodeDecodeError as error:",
        f"        raise DecodeError(f'{source.label}: at byte {{pos}}: {{error}}') from None",
        "    except DecodeError as error:",
        f"        raise DecodeError(f'{source.label}: {{error}}') from error",
    ]
    budget = REQUEST_ELEMENTS_MAX if source.limited else compiler.VARINT_MAX
    if at_once:
        budget = AT_ONCE_ELEMENTS_MAX
    head += ["        end = len(buf)", f"        budget = {budget}"]
    if in_steps:
        head += [f"        left = {STEP_ELEMENTS}", "        yield"]
    return [*head, *source.lines, *tail], source.names


def _has_records(cls: type[Struct]) -> bool:
    for field in cls.FIELDS:
        element = field.element
        if field.kind == "records" or (isinstance(element, type) and _has_records(element)):
            return True
    return False


def size_min(cls: type[Struct], version: int, flexible: bool) -> int:
    """The minimum size in bytes of a struct in this version."""
    size = 1 if flexible else 0
    for field in cls.FIELDS:
        if in_range(version, field.versions) and not in_range(version, field.tagged):
            size += _field_size_min(field, version, flexible)
    return size


def _field_size_min(field: Field, version: int, flexible: bool) -> int:
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct":
        nullable = in_range(version, field.nullable)
        return 1 if nullable else size_min(cast("type[Struct]", field.element), version, flexible)
    if flexible:
        return 1
    return 2 if field.kind == "string" else 4


class _DecodeSource(FunctionSource):
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool) -> None:
        super().__init__(cls, version)
        self.in_steps = in_steps
        self.limited = cls.KIND in LIMITED_KINDS
        self._layout = ""
        self._size = 0
        self._targets: list[str] = []

    def fixed(self, layout: str, size: int, target: str) -> None:
        """Queues a read of fixed size; ``flush`` emits it together with its neighbours."""
        self._layout += layout
        self._size += size
        self._targets.append(target)

    def flush(self) -> None:
        if not self._targets:
            return
        if self._layout == "B":
            self.emit(f"{self._targets[0]} = buf[pos]; pos += 1")
        else:
            call = self.struct_call(self._layout, "unpack_from")
            self.emit(f"{', '.join(self._targets)}, = {call}(buf, pos); pos += {self._size}")
        self._layout, self._size, self._targets = "", 0, []

    def uvarint(self, name: str, slow: str = "long_uvarint") -> None:
        """Emits the read of an unsigned varint; its first byte is read with the fixed fields before it."""
        self.fixed("B", 1, name)
        self.flush()
        self.emit(f"if {name} > 127: {name}, pos = {slow}(buf, pos, {name})")

    def struct(self, target: str, cls: type[Struct], path: str) -> None:
        """Emits code that creates an object, assigns it to ``target`` and reads its fields."""
        name = target if target.isidentifier() else self.fresh("s")
        made = f"new({self.type_name(cls)})"
        self.emit(f"{name} = {made}" if name == target else f"{name} = {target} = {made}")
        self.fields(name, cls, path)

    def fields(self, name: str, cls: type[Struct], path: str) -> None:
        tagged = tagged_fields(cls, self.version)
        for field in cls.FIELDS:
            target = f"{name}.{field.name}"
            if not in_range(self.version, field.versions) or field in tagged:
                self.emit(f"{target} = {self.default(field)}")
            else:
                self.value(field, target, path + field.name)
        if tagged:
            self.tag_section(name, tagged, path)
        elif self.flexible:
            count = self.fresh("t")
            self.fixed("B", 1, count)
            self.flush()
            self.emit(f"if {count}: pos, budget = skip_tags(buf, pos - 1, end, budget)")

    def default(self, field: Field) -> str:
        if field.default is not NEW:
            return repr(field.default)
        return "[]" if field.kind == "array" else f"{self.type_name(cast('type[Struct]', field.element))}()"

    def tag_section(self, name: str, tagged: list[Field], path: str) -> None:
        count, tag, size, stop = self.fresh("t"), self.fresh("tag"), self.fresh("size"), self.fresh("stop")
        self.uvarint(count)
        self.emit(f"if {count}:")
        self.indent += 1
        self.emit(f"budget -= {count}; {tag} = -1")
        self.emit("if budget < 0: raise too_many('tags')")
        self.emit(f"check_tags({count})")
        self.emit(f"for _ in range({count}):")
        self.indent += 1
        self.emit(f"{tag}, {size}, pos = tag_header(buf, pos, end, {tag}); {stop} = pos + {size}")
        for index, field in enumerate(tagged):
            self.emit(f"{'elif' if index else 'if'} {tag} == {field.tag}:")
            self.indent += 1
            self.tagged_value(field, f"{name}.{field.name}", path + field.name)
            self.flush()
            self.emit(
                f"if pos != {stop}: raise DecodeError('{path}{field.name}: not as long as its tag says')"
            )
            self.indent -= 1
        self.emit(f"else: pos = {stop}")
        self.indent -= 2

    def tagged_value(self, field: Field, target: str, path: str) -> None:
        if field.kind != "struct" or not in_range(self.version, field.nullable):
            self.value(field, target, path)
            return
        present = self.fresh("n")  # a varint in the tag section, elsewhere a signed byte
        self.uvarint(present)
        self.null_or(f"{present} == 0", target)
        self.struct(target, cast("type[Struct]", field.element), path + ".")
        self.flush()
        self.indent -= 1

    def null_or(self, condition: str, target: str) -> None:
        """Begins the ``else`` block for a value that is not null; the caller ends it."""
        self.emit(f"if {condition}: {target} = None")
        self.emit("else:")
        self.indent += 1

    def value(self, field: Field, target: str, path: str) -> None:
        kind = field.kind
        if kind in FIXED:
            self.fixed(*FIXED[kind], target)
        elif kind == "struct":
            self.plain_struct(field, target, path)
        else:
            self.sized(field, target, path)

    def plain_struct(self, field: Field, target: str, path: str) -> None:
        cls = cast("type[Struct]", field.element)
        if not in_range(self.version, field.nullable):
            self.struct(target, cls, path + ".")
            return
        present = self.fresh("n")
        self.fixed("b", 1, present)
        self.flush()
        self.null_or(f"{present} < 0", target)
        self.struct(target, cls, path + ".")
        self.flush()
        self.indent -= 1

    def sized(self, field: Field, target: str, path: str) -> None:
        """A string, bytes, records or array: a length or count (-1: null), then the content."""
        n = self.fresh("n")
        if self.flexible:
            self.uvarint(n, "long_string_length" if field.kind == "string" else "long_uvarint")
            self.emit(f"{n} -= 1")
        else:
            self.fixed(*(("h", 2) if field.kind == "string" else ("i", 4)), n)
            self.flush()
        nullable = in_range(self.version, field.nullable)
        if nullable:
            self.null_or(f"{n} == -1", target)
        if field.kind == "array":
            self.array(field, target, n, path)
        else:
            self.byte_run(field.kind, target, n, path)
        if nullable:
            self.flush()
            self.indent -= 1

    def byte_run(self, kind: str, target: str, n: str, path: str) -> None:
        stop = self.fresh("e")
        self.emit(f"{stop} = pos + {n}")
        self.emit(f"if not pos <= {stop} <= end: raise bad_length({n}, end - pos, {path!r})")
        read = {"string": "str({}, 'utf-8')", "bytes": "bytes({})", "records": "{}"}[kind]
        self.emit(f"{target} = {read.format(f'buf[pos:{stop}]')}; pos = {stop}")

    def array(self, field: Field, target: str, n: str, path: str) -> None:
        element = field.element
        assert element is not None
        kind = "struct" if isinstance(element, type) else element.kind
        if isinstance(element, type):
            least = size_min(element, self.version, self.flexible)
        else:
            least = _field_size_min(element, self.version, self.flexible)
        counted = ", budget" if self.limited else ""
        check = f"{n} = check_count({n}, end - pos, {max(least, 1)}, {path!r}{counted})"
        if counted:
            self.emit(f"budget -= {n}")
        if kind in FIXED and kind != "uuid":
            layout, size = FIXED[kind]
            self.emit(check)
            self.emit(f"{target} = list(unpack_from('>%d{layout}' % {n}, buf, pos)); pos += {n} * {size}")
            return
        full = "budget < 0 or " if counted else ""
        self.emit(f"if {full}not 0 <= {n} <= {UNCHECKED_COUNT_MAX}: {check}")
        items = self.fresh("a")
        self.emit(f"{items} = {target} = []")
        self.emit(f"for _ in range({n}):")
        self.indent += 1
        item = self.fresh("s")
        if isinstance(element, type):
            self.struct(item, element, path + ".")
        else:
            self.value(element, item, path)
        self.flush()
        self.emit(f"{items}.append({item})")
        if self.in_steps:
            self.emit("left -= 1")
            self.emit(f"if not left: left = {STEP_ELEMENTS}; yield")
        self.indent -= 1
