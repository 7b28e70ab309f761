"""`CoordinatorLoader`: loads a shard by replaying its log. Source: ``CoordinatorLoaderImpl``."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from oncelog.broker.log.partition_log import PartitionLog
from oncelog.broker.log.results import FileRange
from oncelog.broker.logging.logs import get_logger
from oncelog.wire.batch import HEADER_SIZE, BatchHeader, crc_matches, read_header
from oncelog.wire.control import ABORT_MARKER, COMMIT_MARKER, read_control_type
from oncelog.wire.errors import DecodeError
from oncelog.wire.records import iterate_records
from oncelog.wire.schema import Message
from oncelog.wire.stored.coordinator import decode_key, decode_value, is_known_version

READ_BYTES = 64 * 1024
"""A load reads this many bytes of the log at a time, or more if a single batch is larger."""

_log = get_logger(__name__)


class Replayable(Protocol):
    """State that can be rebuilt by replaying a log."""

    def replay(self, key: Message, value: Message | None, offset: int, producer_id: int = -1) -> None: ...

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None: ...


class CoordinatorLoader:
    """Replays a log from its start to its end into ``target``, or only ``up_to`` an offset, one record at each step of
    `steps`.

    It skips records of unknown types (KIP-915). With ``skips_versions`` it also skips values of unknown versions, as
    Kafka's transaction coordinator does; otherwise it raises DecodeError, as Kafka's group coordinator does.
    """

    __slots__ = (
        "_key_types",
        "_log",
        "_skipped",
        "_skips_versions",
        "_target",
        "_up_to",
        "_value_types",
        "records",
    )

    def __init__(
        self,
        log: PartitionLog,
        key_types: Mapping[int, type[Message]],
        value_types: Mapping[int, type[Message]],
        target: Replayable,
        *,
        skips_versions: bool = False,
        up_to: int | None = None,
    ) -> None:
        self._log = log
        self._up_to = up_to
        self._key_types = key_types
        self._value_types = value_types
        self._target = target
        self._skips_versions = skips_versions
        self._skipped: set[tuple[str, int]] = set()
        self.records = 0
        """The number of records replayed so far."""

    def steps(self) -> Generator[FileRange | None, None, None]:
        """Yields None after each record. Yields a file range before reading it if it is not in the page cache: the
        caller may read it ahead in a thread.

        Raises KafkaError if the log cannot be read, DecodeError if a record in it cannot be decoded.
        """
        log = self._log
        offset = log.log_start_offset
        while offset < (end_offset := log.log_end_offset if self._up_to is None else self._up_to):
            offset = max(offset, log.log_start_offset)
            found = log.read(offset, READ_BYTES, minimum_one=True, up_to=end_offset)
            data = b""
            if isinstance(found.records, FileRange):
                with closing_range(found.records) as file_range:
                    if not file_range.file.is_cached(file_range.position, file_range.size):
                        yield file_range
                    data = self._read(file_range)
            position = 0
            while position + HEADER_SIZE <= len(data):
                header = read_header(data, position)
                if position + header.size > len(data):
                    break
                for _ in self._replay_batch(data, position, header):
                    yield None
                position += header.size
                offset = header.next_offset
            if not position:
                offset = max(offset, found.next_offset)  # compaction removed everything before it
                yield None

    def _read(self, found: FileRange) -> bytes:
        try:
            return found.read()
        except OSError as error:
            raise self._log.storage_error(error) from error

    def _replay_batch(self, data: bytes, position: int, header: BatchHeader) -> Iterator[None]:
        log, producer_id = self._log, header.producer_id
        if not crc_matches(data, position, header):
            raise DecodeError(
                f"{log.topic}-{log.partition} has a damaged batch at offset {header.base_offset}"
            )
        for record in iterate_records(data, header, offset=position):
            if record.key is None:
                raise DecodeError(f"{log.topic}-{log.partition} has no key at offset {record.offset}")
            if header.is_control:
                kind = read_control_type(record.key)
                if kind in (COMMIT_MARKER, ABORT_MARKER):
                    self._target.replay_end_transaction(producer_id, committed=kind == COMMIT_MARKER)
            else:
                self._replay(record.key, record.value, record.offset, producer_id)
            self.records += 1
            yield

    def _replay(self, key_data: bytes, value_data: bytes | None, offset: int, producer_id: int) -> None:
        key = decode_key(key_data, self._key_types)
        if key is None:
            self._skip("type", key_data)
            return
        value_type = self._value_types[key.API_KEY]
        if value_data is not None and self._skips_versions and not is_known_version(value_data, value_type):
            self._skip("version", value_data)
            return
        value = None if value_data is None else decode_value(value_data, value_type)
        self._target.replay(key, value, offset, producer_id)

    def _skip(self, what: str, data: bytes) -> None:
        """Log each unknown type or version once."""
        number = int.from_bytes(data[:2], "big", signed=True)
        if (what, number) not in self._skipped:
            self._skipped.add((what, number))
            log = self._log
            _log.warning(
                f"records of an unknown {what}", topic=log.topic, partition=log.partition, number=number
            )


@contextmanager
def closing_range(file_range: FileRange) -> Iterator[FileRange]:
    try:
        yield file_range
    finally:
        file_range.release()
