"""After an unclean stop: which partitions are still to be recovered, and doing it.

One partition at a time, in slices of the loop, those first that were asked for, then those written last. Until
its turn has come a partition's requests get NOT_LEADER_OR_FOLLOWER: what a Kafka broker says of a replica that it
has not loaded yet, and what every client answers with new metadata and another try.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from oncelog.broker.log.environment import is_shortage
from oncelog.broker.log.recovery.partition_recovery import PartitionRecovery
from oncelog.broker.logs import get_logger
from oncelog.broker.seams.clock import real_time
from oncelog.broker.slices import SLICE_S, in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncelog.broker.line_limiter import LineLimiter
    from oncelog.broker.seams.files import FileSystem

Key = tuple[str, int]

RECOVER_AT_ONCE_BYTES = 128 * 1024
"""A partition with no more than this to check is recovered by the request that asks for it."""

STEP_BYTES_MIN = 32 * 1024
STEP_BYTES_MAX = 1024 * 1024
"""Bytes of log checked in one step: as many as a slice's time allows, but no less and no more."""

SHORTAGE_RETRY_S = 1.0
"""Seconds after which recovery goes on when there was no descriptor, memory or room for it."""

_log = get_logger(__name__)


class RecoveryQueue:
    """The partitions to recover.

    ``begin`` makes a partition's recovery; ``done`` takes its log into service; ``failed`` is told of one whose
    files cannot be read.
    """

    def __init__(
        self,
        files: FileSystem,
        lines: LineLimiter,
        begin: Callable[[Key], PartitionRecovery],
        done: Callable[[Key, PartitionRecovery], None],
        failed: Callable[[Key, Exception], None],
    ) -> None:
        self._files = files
        self._lines = lines
        self._begin = begin
        self._done = done
        self._failed = failed
        self._pending: dict[Key, str] = {}
        self._begun: dict[Key, PartitionRecovery] = {}
        self._asked: dict[Key, None] = {}
        self._step_bytes = RECOVER_AT_ONCE_BYTES
        self.finished = trio.Event()

    def __contains__(self, key: Key) -> bool:
        return key in self._pending

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, key: Key, directory: str) -> None:
        self._pending[key] = directory

    def forget(self, key: Key) -> None:
        """The partition is gone."""
        recovery = self._begun.get(key)
        if recovery is not None:
            recovery.close()
        self._drop(key)

    def _drop(self, key: Key) -> None:
        self._pending.pop(key, None)
        self._begun.pop(key, None)
        self._asked.pop(key, None)

    def attempt(self, key: Key) -> bool:
        """Somebody asks for it: recover it now if little is to be done, otherwise next. Whether it is done."""
        self._asked[key] = None
        begun = self._begun.get(key)
        if begun is not None and begun.cold is not None:
            return False  # it is being read ahead, or will be
        try:
            return self._step(key, RECOVER_AT_ONCE_BYTES)
        except OSError:
            return False

    def _step(self, key: Key, max_bytes: int) -> bool:
        """Whether nothing is left to do for it. Raises OSError for a shortage: it is begun anew next time."""
        try:
            recovery = self._begun.get(key)
            if recovery is None:
                recovery = self._begun[key] = self._begin(key)
            if not recovery.step(max_bytes):
                return False
            self._done(key, recovery)
        except Exception as error:
            if is_shortage(error):
                about = {"topic": key[0], "partition": key[1]}
                self._lines.write(_log.warning, "shortage, not recovered", about, error=error)
                raise
            # One partition that cannot be recovered, for whatever reason, must not take the others with it.
            self._failed(key, error)
        self._drop(key)
        return True

    async def run(self) -> None:
        """Recover all; returns when none is left."""
        if self._pending:
            started, count = real_time.monotonic(), len(self._pending)
            await in_slices(self._order_by_last_use())
            while self._pending:
                await self._recover(next(iter(self._asked), None) or next(iter(self._pending)))
            seconds = round(real_time.monotonic() - started, 3)
            _log.info("recovered after an unclean stop", partitions=count, seconds=seconds)
        self.finished.set()

    def _order_by_last_use(self) -> Iterator[None]:
        last_write: dict[Key, int] = {}
        for key, directory in list(self._pending.items()):
            try:
                last_write[key] = self._last_write_ms(directory)
            except OSError:
                last_write[key] = 0  # its recovery will say what is wrong
            yield
        newest_first = sorted(self._pending, key=lambda key: -last_write.get(key, 0))
        self._pending = {key: self._pending[key] for key in newest_first}

    def _last_write_ms(self, directory: str) -> int:
        logs = [name for name in self._files.listdir(directory) if name.endswith(".log")]
        return self._files.modified_ms(f"{directory}/{logs[-1]}") if logs else 0

    async def _read_ahead(self, recovery: PartitionRecovery | None) -> None:
        if recovery is not None and recovery.cold is not None:
            with suppress(OSError):  # the step meets it too
                await recovery.cold.read(self._files)

    async def _recover(self, key: Key) -> None:
        """One slice after the other, until it is done or another one is asked for."""
        while key in self._pending:
            await self._read_ahead(self._begun.get(key))
            if key not in self._pending:
                return
            began = real_time.monotonic()
            try:
                self._step(key, self._step_bytes)
            except OSError:
                self._asked.pop(key, None)
                self._pending[key] = self._pending.pop(key)  # the others first
                await real_time.sleep(SHORTAGE_RETRY_S)
                return
            took = real_time.monotonic() - began
            if took > SLICE_S:
                self._step_bytes = max(STEP_BYTES_MIN, self._step_bytes // 2)
            elif took < SLICE_S / 2:
                self._step_bytes = min(STEP_BYTES_MAX, self._step_bytes * 2)
            await trio.lowlevel.checkpoint()
            if self._asked and key not in self._asked:
                return
