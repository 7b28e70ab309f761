"""The contents and names on a disk in memory, as they are and as a loss of power would leave them."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.broker.seams.files import Buffer


class _Node:
    """A file or a directory, and the name that it has or had last."""

    __slots__ = ("name", "parent")

    def __init__(self) -> None:
        self.name = ""
        self.parent: Directory | None = None

    @property
    def path(self) -> str:
        return "" if self.parent is None else f"{self.parent.path}/{self.name}"


class Inode(_Node):
    """The content of a file. Its first ``clean_bytes`` bytes are the same on the disk."""

    __slots__ = ("_durable", "clean_bytes", "content", "modified_ms")

    def __init__(self) -> None:
        super().__init__()
        self.content = bytearray()
        self.clean_bytes = 0
        self._durable: bytes | None = None
        """What is on the disk, if that is not just the clean bytes."""
        self.modified_ms = 0

    @property
    def durable(self) -> bytes:
        """What is on the disk."""
        return bytes(self.content[: self.clean_bytes]) if self._durable is None else self._durable

    @property
    def is_dirty(self) -> bool:
        return self._durable is not None or len(self.content) != self.clean_bytes

    def write(self, data: Buffer, offset: int, now_ms: int) -> None:
        if offset == len(self.content):
            self.content += data
        else:
            self._change_from(offset)
            self.content[offset : offset + len(data)] = data
        self.modified_ms = now_ms

    def truncate(self, size: int) -> None:
        """Cut to ``size`` bytes, or fill up with zero bytes."""
        self._change_from(min(size, len(self.content)))
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def _change_from(self, offset: int) -> None:
        if offset < self.clean_bytes:
            self._durable = self.durable
            self.clean_bytes = offset

    def sync(self) -> None:
        self._durable = None
        self.clean_bytes = len(self.content)

    def restore(self, content: Buffer) -> None:
        """Take what a loss of power has left on the disk."""
        self.content = bytearray(content)
        self.sync()


class Directory(_Node):
    """Names now, and names on the disk; ``unsynced`` are the changes between them, oldest first."""

    __slots__ = ("durable", "entries", "unsynced")

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.unsynced: dict[NameChange, None] = {}


class NameChange:
    """A name that was added (``source`` is None), removed (``target`` is None) or changed, and is not on the
    disk yet."""

    __slots__ = ("node", "source", "target")

    def __init__(
        self,
        node: Inode | Directory,
        source: tuple[Directory, str] | None,
        target: tuple[Directory, str] | None,
    ) -> None:
        self.node = node
        self.source = source
        self.target = target

    def directories(self) -> Iterator[Directory]:
        """Yield the directories whose names it changes, one of them perhaps twice."""
        for side in (self.source, self.target):
            if side is not None:
                yield side[0]

    def persist(self) -> None:
        if self.source is not None:
            directory, name = self.source
            if directory.durable.get(name) is not self.node:
                return  # what made the name was lost
            del directory.durable[name]
        if self.target is not None:
            self.target[0].durable[self.target[1]] = self.node
