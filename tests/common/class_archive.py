"""Archives of loaded classes (Java's class data sharing, JEP 350), with which a JVM starts in half the time.

A run of these tests starts hundreds of JVMs, each for a second or two, and most of that time goes into reading,
verifying and linking the same few thousand classes.
"""

import fcntl
import hashlib
import os
import pathlib
from collections.abc import Callable, Sequence

# By default a JVM writes its warnings about an unusable archive to standard output.
_LOG_TO_STDERR = ("-Xlog:disable", "-Xlog:all=warning:stderr")
_found: dict[tuple[pathlib.Path, str], tuple[str, ...]] = {}


def archive_options(libs: pathlib.Path, java: str, train: Callable[[Sequence[str]], None]) -> tuple[str, ...]:
    """The options for a JVM whose class path begins with the jars in `libs`; empty if this `java` writes no archive.

    The archive stands beside `libs`. If it is missing, `train` is called once per machine with other options: it must
    run a JVM with them until that exits cleanly, and the archive then holds the classes which that JVM had loaded.
    """
    if (libs, java) not in _found:
        _found[libs, java] = _find(libs, java, train)
    return _found[libs, java]


def _find(libs: pathlib.Path, java: str, train: Callable[[Sequence[str]], None]) -> tuple[str, ...]:
    # A JVM accepts an archive only from the same build of Java and with unchanged jars.
    files = [pathlib.Path(java).resolve(), *sorted(libs.iterdir())]
    states = "".join(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}\n" for file in files)
    states += train.__qualname__  # another training gives another archive
    archive = libs.with_name(f"{libs.name}-{hashlib.sha256(states.encode()).hexdigest()[:12]}.jsa")
    if not archive.exists():
        with open(libs.with_name("archive.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _make(archive, train)
    # An empty file records that this JVM could not write an archive.
    return (f"-XX:SharedArchiveFile={archive}", *_LOG_TO_STDERR) if archive.stat().st_size else ()


def _make(archive: pathlib.Path, train: Callable[[Sequence[str]], None]) -> None:
    unfinished = archive.with_name(f"{archive.name}.{os.getpid()}")
    try:
        train((f"-XX:ArchiveClassesAtExit={unfinished}", *_LOG_TO_STDERR))
        if not unfinished.exists():
            unfinished.touch()
        os.rename(unfinished, archive)
    finally:
        unfinished.unlink(missing_ok=True)
