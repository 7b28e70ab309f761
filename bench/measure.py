"""Measurements of processes and files by the operating system (Linux's /proc)."""

import contextlib
import os
import pathlib
import resource
import statistics
import time
from collections.abc import Iterator, Sequence

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1_000_000
PROBE_BYTES = 4096
RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


def _stat_fields(pid: int) -> list[str]:
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return text.rpartition(")")[2].split()  # from field 3 on: the name before it may contain any character


def process_tree(pid: int) -> list[int]:
    """`pid` and all its running descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                children.setdefault(int(_stat_fields(int(entry))[1]), []).append(int(entry))
    found = [pid]
    for one in found:  # grows while it is walked
        found += children.get(one, [])
    return found


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of the process tree so far, with those of children that have exited."""
    ticks = 0
    for one in process_tree(pid):
        with contextlib.suppress(OSError):
            ticks += sum(int(field) for field in _stat_fields(one)[11:15])
    return ticks / TICKS_PER_S


def own_cpu_s() -> float:
    """User and system CPU seconds of this process, which is the client."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class OtherLoad:
    """The load of all other processes since this object was created. Servers must have stopped before `cores`.

    On a busy machine a server with many threads gets a larger share of the cores than a single thread does: CPU seconds
    are still right then, but ratios are not.
    """

    def __init__(self) -> None:
        self._start = self._others_s(), time.monotonic()

    @staticmethod
    def _others_s() -> float:
        fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        busy = sum(int(fields[at]) for at in (0, 1, 2, 5, 6, 7)) / TICKS_PER_S  # all but idle and iowait
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return busy - own_cpu_s() - children.ru_utime - children.ru_stime

    def cores(self) -> float:
        others_s, began = self._start
        return (self._others_s() - others_s) / (time.monotonic() - began)


def _status_mb(pid: int, key: str) -> float:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024 / MEGABYTE
    return 0.0


def resident_mb(pid: int) -> float:
    """Resident memory of the process tree, in megabytes of 10**6 bytes."""
    return sum(_status_mb(one, "VmRSS") for one in process_tree(pid))


def resident_peak_mb(pid: int) -> float:
    """The highest resident memory of the process itself so far, in megabytes."""
    return _status_mb(pid, "VmHWM")


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of `values`."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def log_files(data_dir: pathlib.Path, topic: str) -> Iterator[pathlib.Path]:
    """The segment files of a topic's partitions; both servers have the same directory layout."""
    for partition in data_dir.glob(f"{topic}-*"):
        yield from partition.glob("*.log")


def log_bytes(data_dir: pathlib.Path, topic: str) -> int:
    total = 0
    for path in log_files(data_dir, topic):
        with contextlib.suppress(FileNotFoundError):  # a cleaner may remove segments meanwhile
            total += path.stat().st_size
    return total


def drop_page_cache(data_dir: pathlib.Path, topic: str) -> float:
    """Write a topic's segments to disk and drop them from the page cache; the share that is no longer cached."""
    cold = probed = 0
    for path in log_files(data_dir, topic):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # dirty pages cannot be dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            size = os.fstat(descriptor).st_size
            for offset in range(0, size, max(PROBE_BYTES, size // 16)):
                probed += 1
                try:
                    os.preadv(descriptor, [bytearray(1)], offset, RWF_NOWAIT)
                except BlockingIOError:
                    cold += 1
        finally:
            os.close(descriptor)
    return cold / probed if probed else 0.0


def raise_open_files_limit() -> None:
    """Raise this process's descriptor limit as far as allowed; the servers inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
