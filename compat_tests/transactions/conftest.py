"""The Java client's transactional producers, in a process of their own; brokers that these tests may change."""

import base64
import contextlib
import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from compat_tests.brokers import Broker, make_broker
from compat_tests.differential import Pair
from compat_tests.process import Lines
from compat_tests.real_kafka import (
    TOOL_TIMEOUT_S,
    RealPartMissing,
    java,
    kafka_libs,
    require,
    tool_command,
)

OWN_PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
JAVA_SOURCE = pathlib.Path(__file__).with_name("TransactionWorker.java")


class JavaWorker:
    """One JVM that obeys lines (see TransactionWorker.java)."""

    def __init__(self, classes: pathlib.Path) -> None:
        command = tool_command("TransactionWorker", class_path=[classes])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self._stderr = Lines(self.process.stderr)

    def do(self, *words: object) -> str:
        """Obey and answer: "ok", or "ok" and a result, or "error" and the exception's class."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        response = self.process.stdout.readline().split()
        assert response, self._stderr.text()
        return " ".join(response[:2])

    def tool(self, main_class: str, *arguments: object) -> str:
        """Run one of Kafka's tools in this JVM; what it wrote to standard output. It must not fail."""
        code, _, written = self.do("tool", main_class, *arguments).removeprefix("ok ").partition(":")
        text = base64.b64decode(written).decode()
        assert code == "0", f"{code}\n{text}\n{self._stderr.text()}"
        return text

    def producer(self, name: str, bootstrap: str, transactional_id: str, **properties: object) -> None:
        rows = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "max.block.ms": 20_000}
        rows |= {key.replace("_", "."): value for key, value in properties.items()}
        assert self.do("new", name, *(f"{key}={value}" for key, value in rows.items())) == "ok"

    def output(self) -> str:
        return self._stderr.text()

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._stderr.close()


@pytest.fixture(scope="session")
def java_transactions(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder with the compiled worker."""
    folder = tmp_path_factory.mktemp("transaction-classes")
    try:
        compiler = pathlib.Path(java()).resolve().with_name("javac")
        if not compiler.exists():
            raise RealPartMissing("no javac beside java (a JDK, not only its runtime)")
        command = [str(compiler), "-nowarn", "-d", str(folder), "-cp", f"{kafka_libs()}/*", str(JAVA_SOURCE)]
    except RealPartMissing as missing:
        require(str(missing))
    run = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture
def java_worker(java_transactions: pathlib.Path) -> Iterator[Callable[[], JavaWorker]]:
    """Start workers for this test."""
    started: list[JavaWorker] = []

    def start() -> JavaWorker:
        started.append(JavaWorker(java_transactions))
        return started[-1]

    yield start
    for worker in started:
        worker.end()


@pytest.fixture(scope="package")
def own_brokers() -> Iterator[dict[str, Broker]]:
    """A broker per target for tests that restart it, or change its features and settings and change them back."""
    ours = "kafka" if os.environ.get("ONCELOG_SELF_CHECK") else "oncelog"
    with contextlib.ExitStack() as stack:
        try:
            yield {
                "kafka": stack.enter_context(make_broker("kafka", OWN_PROPERTIES)),
                "oncelog": stack.enter_context(make_broker(ours, OWN_PROPERTIES)),
            }
        except RealPartMissing as missing:
            require(str(missing))


@pytest.fixture
def own_bootstrap(own_brokers: dict[str, Broker], target: str) -> str:
    return own_brokers[target].bootstrap


@pytest.fixture(scope="package")
def own_pair(own_brokers: dict[str, Broker]) -> Pair:
    return Pair(own_brokers["kafka"].bootstrap, own_brokers["oncelog"].bootstrap)
