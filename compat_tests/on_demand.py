"""What starts when a test first asks for it: beside an answer that is recorded, no Kafka has to run."""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from tests.common.jars import RealPartMissing, require

T = TypeVar("T")


class OnDemand(Mapping[str, T], Generic[T]):
    """By name, what `make(name)` gives when it is entered; all that was made is left with the context.

    A test that asks for what the machine lacks is skipped, or fails with CI=true.
    """

    _all: ClassVar["weakref.WeakSet[OnDemand[Any]]"] = weakref.WeakSet()

    def __init__(self, make: Callable[[str], contextlib.AbstractContextManager[T]]) -> None:
        self._all.add(self)
        self.made: dict[str, T] = {}
        self._make = make
        self._stack = contextlib.ExitStack()
        self._missing: dict[str, str] = {}

    def __getitem__(self, name: str) -> T:
        if name in self._missing:
            require(self._missing[name])
        if name not in self.made:
            try:
                self.made[name] = self._stack.enter_context(self._make(name))
            except RealPartMissing as missing:
                self._missing[name] = str(missing)
                require(str(missing))
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)

    def __hash__(self) -> int:
        return id(self)

    @classmethod
    def close_all(cls) -> None:
        """Leave all that runs; what is asked for then is made anew."""
        for one in list(cls._all):
            one.close()

    def close(self) -> None:
        self.made.clear()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
