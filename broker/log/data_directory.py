"""The data directory itself: its lock, the node that it belongs to, the mark of a clean stop, and the names in
it.

Layout and formats are Kafka's: ``MetaProperties`` and ``MetaPropertiesEnsemble`` (version 1),
``CleanShutdownFileHandler``, ``LocalLog.parseTopicPartitionName`` and ``logDeleteDirName``.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from oncelog.broker.config.definitions import StartError
from oncelog.broker.seams.files import FileSystem, Lock
from oncelog.broker.seams.scratch import SCRATCH_MARK
from oncelog.wire.schema import Uuid, uuid_from_text, uuid_to_text

LOCK_FILE = ".lock"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"

HARMLESS_NAMES = frozenset(
    (LOCK_FILE, META_PROPERTIES + ".tmp", SCRATCH_MARK, "lost+found", ".DS_Store", ".gitignore", ".gitkeep")
)
"""Names that a directory may hold when it becomes a data directory: left by an interrupted start, put there by
a new file system, or kept so that a repository has the empty folder."""
NAMES_SHOWN = 3
"""How many foreign files the error message names."""

DIRECTORY_NAME_MAX_CHARS = 255
"""The longest name that file systems allow; longer ones lose the end of the topic."""

PROXY_NODE_ID = -1
"""The ``node.id`` in the directory of a proxy, which is no node. No broker can have it, Kafka's neither."""

_RESERVED_IDS = 100
"""Kafka reserves the directory ids below this number (``DirectoryId``: UNASSIGNED, LOST, …)."""


class DataDirectoryError(StartError):
    """The data directory cannot be used; the message, which names it, is for the user."""

    @classmethod
    def of(cls, path: str, error: Exception) -> DataDirectoryError:
        """The error for the user that stands for ``error``, raised in the data directory ``path``."""
        reason = str(error)
        if isinstance(error, FileExistsError | NotADirectoryError):
            reason = "there is a file in its place"
        elif isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        file = error.filename if isinstance(error, OSError) else None
        return cls(
            f"cannot use the data directory {path}: {reason}"
            + (f": {file}" if file not in (None, path) else "")
        )


class DataDirectory:
    """A data directory. `open` fills in ``cluster_id``, ``node_id``, ``directory_id``, and ``was_clean``:
    whether the last stop was clean."""

    __slots__ = (
        "_files",
        "_lock",
        "clean_epoch",
        "cluster_id",
        "directory_id",
        "node_id",
        "path",
        "was_clean",
    )

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._lock: Lock | None = None
        self.path = path
        self.node_id = -1
        self.cluster_id = ""
        self.directory_id: Uuid = bytes(16)
        self.was_clean = False
        self.clean_epoch = -1
        """The broker epoch that ended with a clean stop; -1 if the last stop was not clean, or had none."""

    def open(self, node_id: int, cluster_id: str | None, random: Random) -> None:
        """Lock the directory for this process and node; it is created if it is missing.

        ``cluster_id`` None: the directory's own, or a new one. A proxy's (`PROXY_NODE_ID`) gets none but by
        `set_cluster_id`, and ``cluster_id`` is empty until then. When it returns, the mark of a clean stop is off
        the disk: a start without `mark_clean` will recover. Raises DataDirectoryError if another process uses the
        directory, it belongs to another node or cluster, it holds other files and was never a data directory, or
        the disk refuses.
        """
        try:
            self._files.makedirs(self.path, private=True)
            self._refuse_foreign()
            self._take_lock()
            self._identify(node_id, cluster_id, random)
            mark = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
            self.was_clean = self._files.exists(mark)
            if self.was_clean:
                self.clean_epoch = _broker_epoch(self._files.read_bytes(mark))
                self._files.remove(mark)
                self._files.sync_dir(self.path)
        except OSError as error:
            self.release()
            raise DataDirectoryError.of(self.path, error) from error
        except DataDirectoryError:
            self.release()
            raise

    def set_cluster_id(self, cluster_id: str) -> None:
        """Note, durably, to which cluster the directory belongs. Raises OSError."""
        path = f"{self.path}/{META_PROPERTIES}"
        found = parse_properties(self._files.read_bytes(path))
        self._write_identity(path, found, cluster_id)

    def mark_clean(self, broker_epoch: int) -> None:
        """Mark the stop as clean; this must be the last write. Raises OSError."""
        content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        self._files.replace(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", content.encode())

    def release(self) -> None:
        """Let other processes have the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _refuse_foreign(self) -> None:
        """Raise DataDirectoryError if there are files but no meta.properties, which a data directory gets first
        and durably."""
        names = self._files.listdir(self.path)
        foreign = [name for name in names if name not in HARMLESS_NAMES]
        if foreign and META_PROPERTIES not in names:
            shown = ", ".join(foreign[:NAMES_SHOWN])
            more = f" and {len(foreign) - NAMES_SHOWN} more" if len(foreign) > NAMES_SHOWN else ""
            raise DataDirectoryError(
                f"{self.path} is not empty and not a data directory: it holds {shown}{more}, but no {META_PROPERTIES}"
            )

    def _take_lock(self) -> None:
        try:
            self._lock = self._files.lock(f"{self.path}/{LOCK_FILE}")
        except BlockingIOError:
            raise DataDirectoryError(f"the data directory {self.path} is in use by another process") from None

    def _identify(self, node_id: int, cluster_id: str | None, random: Random) -> None:
        path = f"{self.path}/{META_PROPERTIES}"
        found = parse_properties(self._files.read_bytes(path)) if self._files.exists(path) else {}
        if found:
            _check_identity(found, path, node_id, cluster_id)
        self.node_id = node_id
        self.cluster_id = found.get("cluster.id") or cluster_id or ""
        if not self.cluster_id and node_id != PROXY_NODE_ID:
            self.cluster_id = uuid_to_text(random_uuid(random))
        try:
            given = found.get("directory.id")
            self.directory_id = uuid_from_text(given) if given else random_uuid(random)
        except ValueError as error:
            raise DataDirectoryError(f"directory.id in {path} is {error}") from None
        self._write_identity(path, found, self.cluster_id)

    def _write_identity(self, path: str, found: Mapping[str, str], cluster_id: str) -> None:
        """Write what ``path`` is to hold, if it holds something else."""
        wanted = {
            "cluster.id": cluster_id,
            "directory.id": uuid_to_text(self.directory_id),
            "node.id": str(self.node_id),
            "version": "1",
        }
        if found != wanted:
            text = "".join(f"{key}={value}\n" for key, value in {**found, **wanted}.items())
            self._files.replace(path, text.encode())
        self.cluster_id = cluster_id


def _broker_epoch(content: bytes) -> int:
    """Return the broker epoch in the mark of a clean stop, -1 if there is none (``CleanShutdownFileHandler``)."""
    digits = content.decode("utf-8", "replace").partition('"brokerEpoch":')[2].partition("}")[0].strip()
    return int(digits) if digits.isdecimal() else -1


def _check_identity(found: Mapping[str, str], path: str, node_id: int, cluster_id: str | None) -> None:
    version = found.get("version", "0")
    if version != "1":
        raise DataDirectoryError(f"{path} has version {version}; only version 1 (KRaft) can be used")
    for key in ("node.id", "cluster.id"):
        if key not in found:
            raise DataDirectoryError(f"{key} was not found in {path}")
    stored_by_proxy = found["node.id"] == str(PROXY_NODE_ID)
    if stored_by_proxy != (node_id == PROXY_NODE_ID):
        other, own = ("proxy", "broker") if stored_by_proxy else ("broker", "proxy")
        raise DataDirectoryError(f"{path} is of a {other}: a {own} needs a data directory of its own")
    if found["node.id"] != str(node_id):
        raise DataDirectoryError(
            f"stored node id {found['node.id']} is not the configured node.id {node_id} in {path}; "
            "if the data was moved, set node.id to what is stored; a new node needs an empty directory"
        )
    if cluster_id is not None and found["cluster.id"] != cluster_id:
        raise DataDirectoryError(
            f"invalid cluster.id in {path}: expected {cluster_id}, but read {found['cluster.id']}"
        )


def parse_properties(text: bytes) -> dict[str, str]:
    """Parse a Java properties file. Its rarer forms (continued lines, unicode escapes) are not understood."""
    found = {}
    for line in text.decode("utf-8", "replace").splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, _, value = line.partition("=")
            found[key.strip()] = value.strip().replace("\\", "")
    return found


def random_uuid(random: Random) -> Uuid:
    """A version 4 UUID as Kafka draws them: its text does not begin with ``-``, and it is not reserved."""
    while True:
        drawn = bytearray(random.randbytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        if drawn[0] >> 2 != 62 and int.from_bytes(drawn, "big") >= _RESERVED_IDS:
            return bytes(drawn)


def partition_of(name: str) -> tuple[str, int] | None:
    """The topic and partition in a directory's name, without its suffix; None if it is no partition's."""
    if name.endswith((DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX)):
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    topic, _, partition = name.rpartition("-")
    if not topic or not (partition.isascii() and partition.isdecimal()):
        return None
    return topic, int(partition)


def set_aside_name(topic: str, partition: int, suffix: str, random: Random) -> str:
    """``topic-partition.<32 hex digits>-delete`` (or ``-stray``). The topic is cut if the name would be too
    long."""
    end = f"-{partition}.{random_uuid(random).hex()}{suffix}"
    return topic[: DIRECTORY_NAME_MAX_CHARS - len(end)] + end
