"""Generates the source of encode functions (see ``wire.compiler``)."""

from __future__ import annotations

import struct
from typing import Any, cast

from oncelog.wire import compiler
from oncelog.wire.compiler import FIXED, NEW, STRING_LENGTH_MAX, FunctionSource, in_range, tagged_fields
from oncelog.wire.schema import Field, Message, Struct

_HELPERS: dict[str, Any] = {
    "pack": struct.pack,
    "struct_error": struct.error,
    "put_uvarint": compiler.put_uvarint,
    "IN_MEMORY": frozenset((bytes, bytearray, memoryview)),
}


STEP_BYTES = 4 * 1024
"""Approximate bytes that a step of a step encoder writes: a fraction of a millisecond."""


def encode_lines(
    cls: type[Message], version: int, *, in_steps: bool = False
) -> tuple[list[str], dict[str, Any]]:
    """The lines of ``encode(m, out, ranges)`` and their global names. ``in_steps``: makes it a generator."""
    source = _EncodeSource(cls, version, in_steps=in_steps)
    source.names.update(_HELPERS)
    source.indent = 2
    source.fields("m", cls, "")
    source.flush()
    head = [
        "def encode(m, out, ranges):",
        "    start = len(out); noted = len(ranges)"
        + (f"; step_end = start + {STEP_BYTES}" if in_steps else ""),
        "    try:",
        "        yield" if in_steps else "        pass",
    ]
    tail = [
        "    except BaseException as error:",
        "        del out[start:]; del ranges[noted:]",
        "        if isinstance(error, (struct_error, TypeError, AttributeError, ValueError)):",
        f"            raise ValueError(f'{source.label}: {{error}}') from error",
        "        raise",
    ]
    return [*head, *source.lines, *tail], source.names


class _EncodeSource(FunctionSource):
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool) -> None:
        super().__init__(cls, version)
        self.in_steps = in_steps
        self.out = "out"
        self._layout = ""
        self._values: list[str] = []

    def fixed(self, layout: str, value: str = "") -> None:
        """Queues a write of fixed size (``x``: a zero byte); ``flush`` emits it together with its neighbours."""
        self._layout += layout
        if value:
            self._values.append(value)

    def flush(self) -> None:
        if not self._layout:
            return
        if not self._values:
            self.emit(f"{self.out} += {bytes(len(self._layout))!r}")
        else:
            self.emit(f"{self.out} += {self.struct_call(self._layout, 'pack')}({', '.join(self._values)})")
        self._layout, self._values = "", []

    def uvarint(self, name: str) -> None:
        self.flush()
        self.emit(f"if {name} < 128: {self.out}.append({name})")
        self.emit(f"else: put_uvarint({self.out}, {name})")

    def fields(self, name: str, cls: type[Struct], path: str) -> None:
        tagged = tagged_fields(cls, self.version)
        for field in cls.FIELDS:
            value, where = f"{name}.{field.name}", path + field.name
            if not in_range(self.version, field.versions):
                if not field.ignorable:
                    self.emit(
                        f"if {self.is_set(field, value)}: raise ValueError('{where} is not in this version')"
                    )
            elif field not in tagged:
                self.value(field, value, where)
        if tagged:
            self.tag_section(name, tagged, path)
        elif self.flexible:
            self.fixed("x")

    def is_set(self, field: Field, value: str) -> str:
        """An expression that is true if the value is not the default, and so must be sent."""
        if field.kind == "array":
            if field.default is None:
                return f"{value} is not None"
            return f"({value} is None or {value})" if field.nullable != (0, -1) else value
        if field.kind == "struct":
            made = f"{self.type_name(cast('type[Struct]', field.element))}()"
            if field.default is NEW:
                return f"{value} != {made}"
            if field.nullable != (0, -1):
                return f"{value} is not None"
            return f"({value} is not None and {value} != {made})"
        if field.default is None:
            return f"{value} is not None"
        return value if field.default is False else f"{value} != {field.default!r}"

    def tag_section(self, name: str, tagged: list[Field], path: str) -> None:
        self.flush()
        conditions = [self.is_set(field, f"{name}.{field.name}") for field in tagged]
        self.emit(f"if {' or '.join(conditions)}:")
        self.indent += 1
        counted = " + ".join(f"(1 if {condition} else 0)" for condition in conditions)
        self.emit(f"{self.out}.append({counted})")
        for field, condition in zip(tagged, conditions, strict=True):
            self.emit(f"if {condition}:")
            self.indent += 1
            outer, self.out = self.out, self.fresh("out")
            self.emit(f"{self.out} = bytearray()")
            self.tagged_value(field, f"{name}.{field.name}", path + field.name)
            self.flush()
            inner, self.out = self.out, outer
            self.emit(
                f"put_uvarint({outer}, {field.tag}); put_uvarint({outer}, len({inner})); {outer} += {inner}"
            )
            self.indent -= 1
        self.indent -= 1
        self.emit(f"else: {self.out}.append(0)")

    def tagged_value(self, field: Field, value: str, path: str) -> None:
        if field.kind != "struct" or not in_range(self.version, field.nullable):
            self.value(field, value, path)
            return
        self.emit(f"if {value} is None: {self.out}.append(0)")
        self.emit("else:")
        self.indent += 1
        self.emit(f"{self.out}.append(1)")
        self.fields(self.local(value), cast("type[Struct]", field.element), path + ".")
        self.flush()
        self.indent -= 1

    def local(self, value: str) -> str:
        name = self.fresh("v")
        self.emit(f"{name} = {value}")
        return name

    def value(self, field: Field, value: str, path: str) -> None:
        kind = field.kind
        if kind in FIXED:
            if kind == "uuid":
                # struct would pad or truncate any other size
                value = self.local(value)
                self.emit(f"if len({value}) != 16: raise ValueError('{path}: a uuid has 16 bytes')")
            self.fixed(FIXED[kind][0], value)
        elif kind == "struct":
            self.plain_struct(field, value, path)
        elif kind == "array":
            self.array(field, value, path)
        else:
            self.byte_run(field, value, path)

    def plain_struct(self, field: Field, value: str, path: str) -> None:
        cls = cast("type[Struct]", field.element)
        name = self.local(value)
        if not in_range(self.version, field.nullable):
            self.fields(name, cls, path + ".")
            return
        self.flush()
        self.emit(f"if {name} is None: {self.out}.append(255)")
        self.emit("else:")
        self.indent += 1
        self.emit(f"{self.out}.append(1)")
        self.fields(name, cls, path + ".")
        self.flush()
        self.indent -= 1

    def length(self, n: str, layout: str) -> None:
        """Emits the write of a length or count; ``n`` is -1 for null."""
        if self.flexible:
            self.emit(f"{n} += 1")
            self.uvarint(n)
        else:
            self.fixed(layout, n)
            self.flush()

    def null_is_empty(self, field: Field, name: str, n: str, empty: str, path: str) -> None:
        """Emits: ``n`` = -1 for null, with ``empty`` as its content. Begins the ``else`` block for a value that
        is not null.
        """
        if in_range(self.version, field.nullable):
            self.emit(f"if {name} is None: {n} = -1; {name} = {empty}")
        else:
            self.emit(f"if {name} is None: raise ValueError('{path} may not be null')")
        self.emit("else:")
        self.indent += 1

    def byte_run(self, field: Field, value: str, path: str) -> None:
        n, name = self.fresh("n"), self.local(value)
        self.null_is_empty(field, name, n, "b''", path)
        if field.kind == "string":
            self.emit(f"{name} = {name}.encode(); {n} = len({name})")
            if self.flexible:
                self.emit(
                    f"if {n} > {STRING_LENGTH_MAX}: raise ValueError('{path}: string of %d bytes' % {n})"
                )
        elif field.kind == "records":
            self.emit(f"{n} = len({name}) if type({name}) in IN_MEMORY else {name}.size")
        else:
            self.emit(f"{n} = len({name})")
        self.indent -= 1
        self.length(n, "h" if field.kind == "string" else "i")
        if field.kind == "records":
            self.emit(f"if type({name}) in IN_MEMORY: {self.out} += {name}")
            self.emit(f"elif {name}.size: ranges.append((len({self.out}), {name}))")
        else:
            self.emit(f"{self.out} += {name}")

    def array(self, field: Field, value: str, path: str) -> None:
        element = field.element
        assert element is not None
        n, items = self.fresh("n"), self.local(value)
        self.null_is_empty(field, items, n, "()", path)
        self.emit(f"{n} = len({items})")
        self.indent -= 1
        self.length(n, "i")
        if not isinstance(element, type) and element.kind in FIXED and element.kind != "uuid":
            layout = FIXED[element.kind][0]
            self.emit(f"if {items}: {self.out} += pack('>%d{layout}' % len({items}), *{items})")
            return
        item = self.fresh("s")
        self.emit(f"for {item} in {items}:")
        self.indent += 1
        if isinstance(element, type):
            self.fields(item, element, path + ".")
        else:
            self.value(element, item, path)
        self.flush()
        if self.in_steps and self.out == "out":
            # Its caller may have taken out what was written so far.
            self.emit(f"if len(out) > step_end: yield; step_end = len(out) + {STEP_BYTES}")
        self.indent -= 1
