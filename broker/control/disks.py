"""The disk of a broker under control: in memory, or a directory of the machine's."""

from __future__ import annotations

from oncelog.broker.config.broker_config import BrokerConfig
from oncelog.broker.control.options import BrokerOptions
from oncelog.broker.log.data_directory import META_PROPERTIES
from oncelog.broker.seams.clock import Clock
from oncelog.broker.seams.files import FileSystem
from oncelog.broker.seams.memory_files import MemoryFileSystem
from oncelog.broker.seams.mortal_files import MortalFileSystem
from oncelog.broker.seams.os_files import OPEN_FILES_DEFAULT, OsFileSystem


def new_disk(options: BrokerOptions, config: BrokerConfig, clock: Clock) -> MortalFileSystem:
    """Return the disk that the options ask for; one in memory is empty, with the data directory."""
    if options.data_dir is not None:
        open_files_max = config.oncelog_open_files_max or OPEN_FILES_DEFAULT
        return MortalFileSystem(OsFileSystem(open_files_max, durable=options.is_durable))
    files = MemoryFileSystem(clock.now_ms)
    files.makedirs(config.data_dir)
    path = config.data_dir
    while path != "/":  # a loss of power takes no data directory away
        path = path.rpartition("/")[0] or "/"
        files.sync_dir(path)
    return MortalFileSystem(files)


def emptied_disk(
    files: MortalFileSystem, options: BrokerOptions, config: BrokerConfig, clock: Clock
) -> MortalFileSystem:
    """Return a disk in place of ``files``, with nothing but the identity of the data directory. Nobody uses it."""
    path = f"{config.data_dir}/{META_PROPERTIES}"
    identity = files.inner.read_bytes(path)
    emptied = fresh_disk(files, options, config, clock)
    emptied.replace(path, identity)
    return emptied


def fresh_disk(
    files: MortalFileSystem, options: BrokerOptions, config: BrokerConfig, clock: Clock
) -> MortalFileSystem:
    """Return a disk in place of ``files``, with an empty data directory. Nobody uses it."""
    if options.data_dir is not None:
        _remove_content(files.inner, config.data_dir)
    return new_disk(options, config, clock)


def _remove_content(files: FileSystem, path: str) -> None:
    """Remove all that is in a directory."""
    for name in files.listdir(path):
        inside = f"{path}/{name}"
        if files.is_dir(inside):
            files.remove_tree(inside)
        else:
            files.remove(inside)
