"""Messages that tests of the compiler share: a struct, and an array of it."""

from oncelog.wire.schema import Message, Struct, array, int8


class Point(Struct):
    x: int = int8()
    y: int = int8()


class Rows(Message, kind="data", versions="0-1", flexible="1+"):
    rows: list[Point] = array(Point)
