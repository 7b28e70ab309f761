"""The Java client's transactional producers, in a process of their own."""

import base64
import contextlib
import pathlib
import subprocess

from tests.common.jars import tool_command
from tests.common.process import Lines

JAVA_SOURCE = pathlib.Path(__file__).with_name("TransactionWorker.java")


class JavaWorker:
    """A JVM that executes the commands of TransactionWorker.java, one per line."""

    def __init__(self, classes: pathlib.Path) -> None:
        command = tool_command("TransactionWorker", class_path=[classes])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        self._stderr = Lines(self.process.stderr)

    def execute(self, *words: object) -> str:
        """Execute a command. Returns "ok", or "ok" and a result, or "error" and the exception's class."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline().split()
        assert reply, self._stderr.text()
        return " ".join(reply[:2])

    def tool(self, main_class: str, *arguments: object) -> str:
        """Run a tool of Kafka's in this JVM; its standard output. Asserts that its exit code is 0."""
        code, _, output = self.execute("tool", main_class, *arguments).removeprefix("ok ").partition(":")
        text = base64.b64decode(output).decode()
        assert code == "0", f"{code}\n{text}\n{self._stderr.text()}"
        return text

    def new_producer(self, name: str, bootstrap: str, transactional_id: str, **properties: object) -> None:
        """Create a producer, to be named in commands. Underscores in names of `properties` become dots."""
        rows = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "max.block.ms": 20_000}
        rows |= {key.replace("_", "."): value for key, value in properties.items()}
        assert self.execute("new", name, *(f"{key}={value}" for key, value in rows.items())) == "ok"

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
