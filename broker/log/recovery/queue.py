"""`RecoveryQueue`: recovers partitions after an unclean stop.

It recovers one partition at a time, in slices of the loop: first those that requests asked for, then those that
were written last. Until then requests for a partition get NOT_LEADER_OR_FOLLOWER, as from a Kafka broker that
has not loaded the replica yet; every client then refreshes its metadata and retries.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from oncelog.broker.log.environment import shortage_of
from oncelog.broker.log.file_names import LOG_SUFFIX
from oncelog.broker.logging.logs import get_logger
from oncelog.broker.scheduling.slices import SLICE_S, in_slices
from oncelog.broker.seams.clock import real_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from oncelog.broker.log.recovery.partition_recovery import PartitionRecovery
    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.seams.files import FileSystem

PartitionKey = tuple[str, int]

RECOVER_AT_ONCE_BYTES = 128 * 1024
"""A partition with at most this much to check is recovered by the first request for it."""

STEP_BYTES_MIN = 32 * 1024
STEP_BYTES_MAX = 1024 * 1024
"""Least and most bytes of log that one step checks; in between, as many as fit into a slice's time."""

SHORTAGE_RETRY_S = 1.0
"""Seconds after which recovery is tried again after a shortage of descriptors, memory or disk space."""

_log = get_logger(__name__)


class RecoveryQueue:
    """The partitions to recover.

    ``begin`` makes a partition's recovery. ``done`` is called with a finished recovery, ``failed`` with a
    partition that cannot be recovered.
    """

    def __init__(
        self,
        files: FileSystem,
        lines: LineLimiter,
        begin: Callable[[PartitionKey], PartitionRecovery],
        done: Callable[[PartitionKey, PartitionRecovery], None],
        failed: Callable[[PartitionKey, Exception], None],
    ) -> None:
        self._files = files
        self._lines = lines
        self._begin = begin
        self._done = done
        self._failed = failed
        self._pending: dict[PartitionKey, str] = {}
        self._begun: dict[PartitionKey, PartitionRecovery] = {}
        self._asked: dict[PartitionKey, None] = {}
        self._step_bytes = RECOVER_AT_ONCE_BYTES
        self.finished = trio.Event()

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._pending

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, key: PartitionKey, directory: str) -> None:
        self._pending[key] = directory

    def forget(self, key: PartitionKey) -> None:
        """Drop a partition that was deleted."""
        recovery = self._begun.get(key)
        if recovery is not None:
            recovery.close()
        self._drop(key)

    def _drop(self, key: PartitionKey) -> None:
        self._pending.pop(key, None)
        self._begun.pop(key, None)
        self._asked.pop(key, None)

    def attempt(self, key: PartitionKey) -> bool:
        """A request asks for a partition: recover it now if that is little work, otherwise next. Returns
        whether it is recovered."""
        self._asked[key] = None
        begun = self._begun.get(key)
        if begun is not None and begun.cold is not None:
            return False  # a thread reads ahead for it, or will
        try:
            return self._step(key, RECOVER_AT_ONCE_BYTES)
        except OSError:
            return False

    def _step(self, key: PartitionKey, max_bytes: int) -> bool:
        """Do one step. Returns whether the partition is recovered, or has failed. Raises OSError for a
        shortage; the next step begins anew."""
        try:
            recovery = self._begun.get(key)
            if recovery is None:
                recovery = self._begun[key] = self._begin(key)
            if not recovery.step(max_bytes):
                return False
            self._done(key, recovery)
        except Exception as error:
            if shortage := shortage_of(error):
                about = {"topic": key[0], "partition": key[1]}
                self._lines.write(_log.warning, f"{shortage}, partition not recovered", about, error=error)
                raise
            # A partition that cannot be recovered must not keep the others from it, whatever the reason.
            self._failed(key, error)
        self._drop(key)
        return True

    async def run(self) -> None:
        """Recover all partitions."""
        if self._pending:
            started, count = real_time.monotonic(), len(self._pending)
            await in_slices(self._order_by_last_use())
            while self._pending:
                await self._recover(next(iter(self._asked), None) or next(iter(self._pending)))
            seconds = round(real_time.monotonic() - started, 3)
            _log.info("recovered after an unclean stop", partitions=count, seconds=seconds)
        self.finished.set()

    def _order_by_last_use(self) -> Iterator[None]:
        last_write: dict[PartitionKey, int] = {}
        for key, directory in list(self._pending.items()):
            try:
                last_write[key] = self._last_write_ms(directory)
            except OSError:
                last_write[key] = 0  # its recovery will report the error
            yield
        newest_first = sorted(self._pending, key=lambda key: -last_write.get(key, 0))
        self._pending = {key: self._pending[key] for key in newest_first}

    def _last_write_ms(self, directory: str) -> int:
        logs = [name for name in self._files.listdir(directory) if name.endswith(LOG_SUFFIX)]
        return self._files.modified_ms(f"{directory}/{logs[-1]}") if logs else 0

    async def _read_ahead(self, recovery: PartitionRecovery | None) -> None:
        if recovery is not None and recovery.cold is not None:
            with suppress(OSError):  # the step will raise it, too
                await recovery.cold.read(self._files)

    async def _recover(self, key: PartitionKey) -> None:
        """Recover one partition, a slice at a time, until it is done or a request asks for another one."""
        while key in self._pending:
            await self._read_ahead(self._begun.get(key))
            if key not in self._pending:
                return
            began = real_time.monotonic()
            try:
                self._step(key, self._step_bytes)
            except OSError:
                self._asked.pop(key, None)
                self._pending[key] = self._pending.pop(key)  # after all others
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
