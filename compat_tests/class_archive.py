"""Archives of loaded classes, from which a JVM starts with half the work (Java's class data sharing, JEP 350).

Hundreds of JVMs start in a run of these tests, each for a second or two of work, and most of that is to read, check
and link the same few thousand classes.
"""

import fcntl
import hashlib
import os
import pathlib
from collections.abc import Callable, Sequence

# What a JVM says of an archive that does not fit goes to standard output unless it is told otherwise.
_TOLD_ELSEWHERE = ("-Xlog:disable", "-Xlog:all=warning:stderr")
_found: dict[tuple[pathlib.Path, str], tuple[str, ...]] = {}


def archive_options(libs: pathlib.Path, java: str, train: Callable[[Sequence[str]], None]) -> tuple[str, ...]:
    """The options of a JVM whose class path begins with the jars in `libs`; none where this `java` makes no archive.

    The archive is kept beside `libs`. Where it is missing `train` makes it, once per machine: it runs a JVM with the
    options it is given to a clean end; at most what that JVM had loaded is in the archive.
    """
    if (libs, java) not in _found:
        _found[libs, java] = _find(libs, java, train)
    return _found[libs, java]


def _find(libs: pathlib.Path, java: str, train: Callable[[Sequence[str]], None]) -> tuple[str, ...]:
    # An archive is for one build of Java, and for jars that are as they were: the JVM takes no other.
    parts = [pathlib.Path(java).resolve(), *sorted(libs.iterdir())]
    states = "".join(f"{part} {part.stat().st_size} {part.stat().st_mtime_ns}\n" for part in parts)
    archive = libs.with_name(f"{libs.name}-{hashlib.sha256(states.encode()).hexdigest()[:12]}.jsa")
    if not archive.exists():
        with open(libs.with_name("archive.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _make(archive, train)
    # Empty: it was tried, and this JVM makes none.
    return (f"-XX:SharedArchiveFile={archive}", *_TOLD_ELSEWHERE) if archive.stat().st_size else ()


def _make(archive: pathlib.Path, train: Callable[[Sequence[str]], None]) -> None:
    made = archive.with_name(f"{archive.name}.{os.getpid()}")
    try:
        train((f"-XX:ArchiveClassesAtExit={made}", *_TOLD_ELSEWHERE))
        if not made.exists():
            made.touch()
        os.rename(made, archive)
    finally:
        made.unlink(missing_ok=True)
