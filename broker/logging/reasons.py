"""`Reason`: why somebody is refused, in words, of which some may be theirs."""

from __future__ import annotations

from typing import Self


class Reason(str):
    """``Reason("no topic {}", name)`` is a text like any other.

    Its ``kind`` is the text without what ``{}`` stands for. What a peer has sent belongs there: so there are few kinds,
    whatever peers send. A `LineLimiter` counts the lines of one kind together.
    """

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, kind: str, *sent: object) -> Self:
        return cls._made(kind.format(*sent) if sent else kind, kind)

    @classmethod
    def _made(cls, text: str, kind: str) -> Self:
        made = super().__new__(cls, text)
        made.kind = kind
        return made

    def after(self, words: str) -> Self:
        """Return the reason after ``words``, none of which a peer has sent."""
        return self._made(words + self, words + self.kind)


def kind_of(value: object) -> object:
    """Return the kind of a `Reason`, and any other value itself."""
    return value.kind if isinstance(value, Reason) else value
