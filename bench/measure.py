"""What the operating system says about a process and its files; Linux's /proc."""

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
    return text.rpartition(")")[2].split()  # from field 3 on: the name before may hold anything


def process_tree(pid: int) -> list[int]:
    """`pid` and all its living descendants."""
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
    """User and system CPU seconds of the process tree so far, children that ended included."""
    ticks = 0
    for one in process_tree(pid):
        with contextlib.suppress(OSError):
            ticks += sum(int(field) for field in _stat_fields(one)[11:15])
    return ticks / TICKS_PER_S


def own_cpu_s() -> float:
    """User and system CPU seconds of this process: the client's."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class OtherLoad:
    """How busy everything else kept the machine since this was made. Servers must have ended by the time of asking.

    One thread among many that want the cores gets less of them than a server with many threads does: on a busy
    machine the ratios are wrong, though CPU seconds are not.
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
    """The highest resident memory the process itself ever had."""
    return _status_mb(pid, "VmHWM")


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` percent of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def log_files(data_dir: pathlib.Path, topic: str) -> Iterator[pathlib.Path]:
    """The segment files of a topic's partitions, which both servers keep in the same places."""
    for partition in data_dir.glob(f"{topic}-*"):
        yield from partition.glob("*.log")


def log_bytes(data_dir: pathlib.Path, topic: str) -> int:
    total = 0
    for path in log_files(data_dir, topic):
        with contextlib.suppress(FileNotFoundError):  # a cleaner removes segments while we look
            total += path.stat().st_size
    return total


def drop_page_cache(data_dir: pathlib.Path, topic: str) -> float:
    """Write a topic's segments back and take them out of the page cache; the share that then really is cold."""
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
    """As many descriptors as this process may have; the servers it starts inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
