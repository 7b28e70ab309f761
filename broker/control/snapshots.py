"""Snapshots: the data of a broker at one instant, in one file. Other brokers start from it.

The file is a zip archive: `MANIFEST` describes it, and under `DATA` is a data directory in Kafka's layout and formats,
as the death of the process at that instant would have left it; of several nodes, a directory for each of them and one
for their controller. A start from it is a start after such a death: it keeps topics, records, offsets, groups, open
transactions, ids and the cluster id.

While the data lies in the file, no broker time passes for it (docs/contributing/decisions/0009-time-in-a-snapshot.md):
`load` moves the stored times that deadlines follow from by as much as passed (`snapshot_times`), and leaves a note
beside the records, whose timestamps stay (`oncelog.broker.log.time_gaps`).
"""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple, Protocol
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import oncelog
from oncelog.broker.control.errors import SnapshotError
from oncelog.broker.control.nodes.configs import CONTROLLER_DIRECTORY, NODES_MAX
from oncelog.broker.control.options import SNAPSHOT_BYTES_MAX
from oncelog.broker.control.snapshot_times import move_times
from oncelog.broker.log.checkpoints import RECOVERY_POINTS
from oncelog.broker.log.data_directory import (
    CLEAN_SHUTDOWN_FILE,
    DELETE_SUFFIX,
    HARMLESS_NAMES,
    LOCK_FILE,
    META_PROPERTIES,
)
from oncelog.broker.log.time_gaps import TIME_GAPS_FILE, TimeGap, TimeGaps, parse_time_gaps
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.seams.files import without_extra_slashes
from oncelog.broker.seams.os_files import OsFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from oncelog.broker.seams.files import FileSystem
    from oncelog.broker.seams.mortal_files import MortalFileSystem

FORMAT_VERSION = 2
"""Rises with each change that an older oncelog cannot read: 2 is that of several nodes."""
OF_ONE_NODE = 1
"""The version of a snapshot of one node."""
MANIFEST = "oncelog-snapshot.json"
DATA = "data/"
COMPRESSION_LEVEL = 1

LEFT_OUT = (
    "listener",
    "advertised.listeners",
    "inter.broker.listener.name",
    "controller.listener.names",
    "security.inter.broker.protocol",
    "log.dir",
    "ssl.",
    "sasl.",
    "delegation.token.secret.key",
)
"""Beginnings of the configuration keys that belong to one broker and not to its data: brokers from one snapshot have
their own ports. The passwords of the configuration are among them. They are left out when a snapshot is taken, and
again when it is loaded: somebody may have changed the file.
"""
READ_METHODS = (ZIP_STORED, ZIP_DEFLATED)
"""Methods of compression that a snapshot's file may use: other decompressors give all that they have at once."""


@dataclass(frozen=True)
class Manifest:
    """The content of `MANIFEST`."""

    format_version: int
    oncelog_version: str
    taken_ms: int
    """Broker time at its instant."""
    clock_ahead_ms: float
    """How far broker time was ahead of the machine's."""
    clock_is_frozen: bool
    config: Mapping[str, str]
    """The configuration that the broker was started with, without `LEFT_OUT`, and without keys of single nodes."""
    nodes: int = 1

    def new_clock(self) -> MovableClock:
        """Return the clock of a broker that starts now: as far ahead of the machine's as it was; one that stood still
        stands at the same instant. Needs a running Trio.
        """
        if self.clock_is_frozen:
            return MovableClock.frozen_at(self.taken_ms)
        return MovableClock(ahead_ms=self.clock_ahead_ms)


@dataclass(frozen=True)
class Snapshot:
    """A snapshot in memory: its manifest and the files of its data directory, by their path in it."""

    manifest: Manifest
    files: Mapping[str, bytes]
    left_out: tuple[str, ...] = ()
    """Keys of `LEFT_OUT` that the file has nevertheless."""

    def inside(self, folder: str) -> Snapshot:
        """Return the snapshot of what is in a folder, one of `Place.folder`, alone."""
        files = {
            path.removeprefix(folder): data for path, data in self.files.items() if path.startswith(folder)
        }
        return Snapshot(self.manifest, files)


class Place(NamedTuple):
    """Where the data of a node, or of a controller, is."""

    folder: str
    """Where in the snapshot: empty for an only node, or the folder of one of several, with its slash."""
    files: MortalFileSystem
    data_dir: str
    is_running: bool


class Source(Protocol):
    """What a snapshot is taken of: a `ControlledBroker` or a `ControlledCluster`."""

    clock: MovableClock

    def check_started(self) -> None:
        """Raises NotRunningError before the first start."""

    def places(self) -> list[Place]:
        """Return where its data is."""

    @property
    def config_texts(self) -> Mapping[str, str]:
        """The configuration that it was started with, without defaults; of a snapshot, too."""


# -- taking one


def take(source: Source) -> Snapshot:
    """Return a snapshot of a broker, running or not, at this instant: nothing is awaited. Raises SnapshotError, and
    NotRunningError before the first start.
    """
    source.check_started()
    places = source.places()
    content: dict[str, bytes] = {}
    for place in places:
        content.update({place.folder + path: data for path, data in _read_place(place).items()})
    config, clock = _of_data(source.config_texts), source.clock
    manifest = Manifest(
        OF_ONE_NODE if len(places) == 1 else FORMAT_VERSION,
        oncelog.__version__,
        clock.now_ms(),
        clock.ahead_ms,
        clock.is_frozen,
        config,
        max(1, len(places) - 1),  # one of several is the controller's
    )
    return Snapshot(manifest, content)


def _read_place(place: Place) -> dict[str, bytes]:
    files, data_dir = place.files.inner, place.data_dir
    try:
        lock = None if place.is_running else files.lock(f"{data_dir}/{LOCK_FILE}")
        try:
            return _read_data(files, data_dir)
        finally:
            if lock is not None:
                lock.release()
    except BlockingIOError:
        raise SnapshotError(f"another process uses {data_dir}: stop it first") from None
    except OSError as error:
        raise SnapshotError(f"{data_dir} cannot be read: {error.strerror}: {error.filename}") from error


def _of_data(config: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration without `LEFT_OUT`."""
    return {key: text for key, text in config.items() if not key.startswith(LEFT_OUT)}


def _read_data(files: FileSystem, data_dir: str) -> dict[str, bytes]:
    """Return the content of all files of a data directory, by their path in it. Raises OSError.

    Threads of a broker may replace checkpoints meanwhile: log start offsets before recovery points, which are therefore
    read first.
    """
    paths = sorted(_paths(files, data_dir, ""), key=lambda path: (path != RECOVERY_POINTS, path))
    return {path: files.read_bytes(f"{data_dir}/{path}") for path in paths}


def _paths(files: FileSystem, directory: str, inside: str) -> Iterator[str]:
    for name in files.listdir(directory):
        path = f"{directory}/{name}"
        if name not in HARMLESS_NAMES:
            if files.is_dir(path):
                if not name.endswith(DELETE_SUFFIX):
                    yield from _paths(files, path, f"{inside}{name}/")
            elif not name.endswith((".tmp", ".deleted")):
                yield inside + name


def encode(snapshot: Snapshot) -> bytes:
    """Return the content of the file. The same snapshot gives the same bytes."""
    content = BytesIO()
    with ZipFile(content, "w") as archive:
        manifest = json.dumps(asdict(snapshot.manifest), indent=2, sort_keys=True)
        archive.writestr(_entry(MANIFEST), manifest + "\n", ZIP_DEFLATED, COMPRESSION_LEVEL)
        for path, data in snapshot.files.items():
            archive.writestr(_entry(DATA + path), data, ZIP_DEFLATED, COMPRESSION_LEVEL)
    return content.getvalue()


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name)  # with a date that is always the same
    entry.external_attr = 0o644 << 16
    return entry


def write_file(files: FileSystem, path: str, content: bytes) -> None:
    """Write a snapshot's file: afterwards it is the new one, or as before. It blocks. Raises SnapshotError."""
    try:
        if files.is_dir(path):
            raise SnapshotError(f"the snapshot {path} cannot be written: there is a directory in its place")
        files.replace(path, content)
    except OSError as error:
        with suppress(OSError):
            files.remove(path + ".tmp")
        raise SnapshotError(f"the snapshot {path} cannot be written: {error.strerror}") from error


# -- loading one


async def read(source: str | bytes, bytes_max: int, *, nodes: int) -> Snapshot:
    """Read and check a snapshot, in a thread: the path of its file, or its content. Raises SnapshotError, also where it
    unpacks to more than ``bytes_max`` bytes, or is of another number of ``nodes``.
    """
    disk = OsFileSystem()
    if isinstance(source, str):
        snapshot = await disk.offload(partial(read_file, disk, source, bytes_max))
    else:
        snapshot = await disk.offload(partial(decode, source, "given as bytes", bytes_max))
    if snapshot.manifest.nodes != nodes:
        found = snapshot.manifest.nodes
        raise SnapshotError(
            f"the snapshot is of {_nodes(found)}, not of {_nodes(nodes)}: start as many as it has (nodes={found})"
        )
    return snapshot


def _nodes(count: int) -> str:
    return "one node" if count == 1 else f"{count} nodes"


def read_file(files: FileSystem, path: str, bytes_max: int) -> Snapshot:
    """Read and check the snapshot in the file ``path``. It blocks. Errors: see `read`."""
    try:
        content = files.read_bytes(path)
    except OSError as error:
        raise SnapshotError(f"the snapshot {path} cannot be read: {error.strerror}") from error
    return decode(content, path, bytes_max)


def decode(content: bytes, name: str, bytes_max: int = SNAPSHOT_BYTES_MAX) -> Snapshot:
    """Check all of a snapshot's file and return it. ``name`` is for errors, which are those of `read`."""
    if not content.startswith(b"PK"):
        raise SnapshotError(f"{name} is not a snapshot of oncelog")
    try:
        with ZipFile(BytesIO(content)) as archive:
            _check_sizes(archive, name, bytes_max)
            manifest, left_out = _manifest(archive, name)
            files = {
                _checked_path(entry.filename.removeprefix(DATA), name): _content(archive, entry)
                for entry in archive.infolist()
                if entry.filename.startswith(DATA) and not entry.is_dir()
            }
    except (BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise SnapshotError(f"the snapshot {name} is damaged, or was cut: {error}") from error
    for folder in _folders(manifest.nodes):
        if folder + META_PROPERTIES not in files:
            raise SnapshotError(f"the snapshot {name} is damaged: it holds no {folder}{META_PROPERTIES}")
    return Snapshot(manifest, files, left_out)


def folder_of(name: int | str) -> str:
    """Return the `Place.folder` of one of several nodes, or of their controller, by the name of its directory."""
    return f"{name}/"


def _folders(nodes: int) -> list[str]:
    """Return the folder of each data directory in a snapshot."""
    if nodes == 1:
        return [""]
    return [folder_of(name) for name in (CONTROLLER_DIRECTORY, *range(1, nodes + 1))]


def _check_sizes(archive: ZipFile, name: str, bytes_max: int) -> None:
    """Raises SnapshotError for a file that unpacks to more than ``bytes_max`` bytes, as it says itself: `_content`
    reads no more than that.
    """
    for entry in archive.infolist():
        if entry.compress_type not in READ_METHODS:
            raise SnapshotError(
                f"the snapshot {name} holds {entry.filename!r} compressed in another way than by deflate: pack it anew"
            )
    size = sum(entry.file_size for entry in archive.infolist())
    if size > bytes_max:
        raise SnapshotError(
            f"the snapshot {name} unpacks to {size} bytes; the limit is {bytes_max} (snapshot_bytes_max, "
            "--snapshot-bytes-max)"
        )


def _content(archive: ZipFile, entry: ZipInfo) -> bytes:
    """Return the content of a file in the archive. Raises BadZipFile for one that is shorter or longer than it says."""
    with archive.open(entry) as file:
        content = file.read(entry.file_size)  # read() would decompress all before it looks at the size
        if len(content) != entry.file_size or file.read(1):
            raise BadZipFile(f"the size of {entry.filename!r} is another one than it says")
    return content


def _manifest(archive: ZipFile, name: str) -> tuple[Manifest, tuple[str, ...]]:
    """Return the manifest, and the keys that its configuration should not have."""
    try:
        fields = json.loads(_content(archive, archive.getinfo(MANIFEST)))
    except KeyError:
        raise SnapshotError(
            f"{name} is a zip file, but not a snapshot of oncelog: it holds no {MANIFEST}"
        ) from None
    except ValueError as error:
        raise SnapshotError(f"the snapshot {name} is damaged: {MANIFEST}: {error}") from None
    version = fields.get("format_version") if isinstance(fields, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise SnapshotError(
            f"the snapshot {name} has format {version}, which oncelog {fields.get('oncelog_version')} wrote; "
            f"this oncelog, {oncelog.__version__}, reads formats up to {FORMAT_VERSION}: install a newer one"
        )
    try:
        config = {str(key): str(text) for key, text in fields["config"].items()}
        manifest = Manifest(
            int(fields["format_version"]),
            str(fields["oncelog_version"]),
            int(fields["taken_ms"]),
            float(fields["clock_ahead_ms"]),
            bool(fields["clock_is_frozen"]),
            _of_data(config),
            int(fields.get("nodes", 1)),
        )
        if not 1 <= manifest.nodes <= NODES_MAX:
            raise ValueError(f"nodes={manifest.nodes}")
        return manifest, tuple(sorted(config.keys() - manifest.config.keys()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotError(f"the snapshot {name} is damaged: {MANIFEST}: {error!r}") from None


def _checked_path(path: str, name: str) -> str:
    """Return ``path``. Raises SnapshotError if it could lead out of the data directory."""
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise SnapshotError(f"the snapshot {name} holds a file with the path {path!r}")
    return path


def _check_target(files: FileSystem, data_dir: str) -> None:
    """Raises SnapshotError if a snapshot cannot be loaded into ``data_dir``: it must be missing or empty."""
    if files.exists(data_dir):
        if not files.is_dir(data_dir):
            raise SnapshotError(f"a snapshot cannot be loaded into {data_dir}: it is a file")
        found = [name for name in files.listdir(data_dir) if name not in HARMLESS_NAMES]
        if found:
            raise SnapshotError(
                f"a snapshot cannot be loaded into {data_dir}: the directory is not empty, it holds {found[0]}"
            )


async def load_place(snapshot: Snapshot, place: Place, now_ms: int) -> None:
    """`load` what a snapshot has for a place, in a thread."""
    part = snapshot.inside(place.folder)
    await place.files.offload(partial(load, part, place.files, place.data_dir, now_ms))


def load(snapshot: Snapshot, files: FileSystem, data_dir: str, now_ms: int) -> None:
    """Make ``data_dir`` the data directory of a broker that starts at ``now_ms`` (broker time). It blocks.

    Raises SnapshotError; the directory then holds what it held before.
    """
    _check_target(files, data_dir)
    content = _at(snapshot, now_ms)
    # A directory is a data directory from its meta.properties on: an interrupted load is none.
    paths = sorted(content, key=lambda path: (path == META_PROPERTIES, path))
    try:
        files.makedirs(data_dir, private=True)
        for parent in dict.fromkeys(path.rpartition("/")[0] for path in paths):
            files.makedirs(f"{data_dir}/{parent}")
        for path in paths:
            _write(files, f"{data_dir}/{path}", content[path])
        for parent in dict.fromkeys(path.rpartition("/")[0] for path in paths):
            files.sync_dir(without_extra_slashes(f"{data_dir}/{parent}"))
    except OSError as error:
        _remove_loaded(files, data_dir)
        raise SnapshotError(f"a snapshot cannot be loaded into {data_dir}: {error.strerror}") from error


def _at(snapshot: Snapshot, now_ms: int) -> dict[str, bytes]:
    """Return the files as a broker needs them that starts at ``now_ms`` (broker time)."""
    gap = TimeGap(snapshot.manifest.taken_ms, now_ms - snapshot.manifest.taken_ms)
    content = dict(snapshot.files)
    if gap.length_ms:
        if move_times(content, gap.length_ms):
            content.pop(CLEAN_SHUTDOWN_FILE, None)
        before = content.get(TIME_GAPS_FILE)
        gaps = TimeGaps() if before is None else parse_time_gaps(before, TIME_GAPS_FILE)
        content[TIME_GAPS_FILE] = gaps.and_then(gap).encode()
    return content


def _write(files: FileSystem, path: str, data: bytes) -> None:
    file = files.open(path, create=True)
    try:
        file.append(data)
        file.fsync()
    finally:
        file.close()


def _remove_loaded(files: FileSystem, data_dir: str) -> None:
    with suppress(OSError):
        for name in files.listdir(data_dir):
            path = f"{data_dir}/{name}"
            if files.is_dir(path):
                files.remove_tree(path)
            elif name != LOCK_FILE:
                files.remove(path)
