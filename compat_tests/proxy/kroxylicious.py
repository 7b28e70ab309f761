"""Kroxylicious, a proxy on the JVM to compare with: its jars from Maven, its process before a Kafka cluster."""

import json
import pathlib
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from compat_tests.proxy.ports import adjacent_ports
from tests.common.jars import compile_java, java, maven_jars
from tests.common.process import Process

HERE = pathlib.Path(__file__).parent
NAME = "kroxylicious-0.12.0"
START_TIMEOUT_S = 60
NODE_IDS = (1, 3)
"""The first and the last node id; each has a port."""


def kroxylicious_libs() -> pathlib.Path:
    """The folder with its jars. Raises RealPartMissing as `maven_jars`."""
    return maven_jars(HERE / "kroxylicious.xml", NAME)


class Kroxylicious:
    """A proxy before the cluster at `upstream`, on a free port, with a further port for each node id of `NODE_IDS`.

    A context manager. By default there are no `jvm_options`: Java's own heap and collector.
    """

    def __init__(self, upstream: str, jvm_options: Sequence[str] = ()) -> None:
        self._upstream = upstream
        self._jvm_options = tuple(jvm_options)
        self._folder = tempfile.TemporaryDirectory(prefix="kroxylicious-")
        self._process: Process | None = None
        self.bootstrap = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start, and return when it listens. Raises RealPartMissing, or AssertionError with its output."""
        folder = pathlib.Path(self._folder.name)
        libs = kroxylicious_libs()
        compile_java([HERE / "RunKroxylicious.java"], folder, libs)
        first, last = NODE_IDS
        self.bootstrap = f"127.0.0.1:{adjacent_ports(last - first + 2)}"
        gateway = {
            "name": "default",
            "portIdentifiesNode": {
                "bootstrapAddress": self.bootstrap,
                "nodeIdRanges": [{"name": "nodes", "start": first, "end": last}],
            },
        }
        cluster = {
            "name": "cluster",
            "targetCluster": {"bootstrapServers": self._upstream},
            "gateways": [gateway],
        }
        configuration = folder / "configuration.yaml"
        configuration.write_text(json.dumps({"virtualClusters": [cluster]}))  # JSON is YAML
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        path = f"{libs}/*:{folder}"
        command = [java(), quiet, *self._jvm_options, "-cp", path, "RunKroxylicious", str(configuration)]
        self._process = Process(command)
        if self._process.stdout.wait_for("started", START_TIMEOUT_S) is None:
            self._process.end(kill=True)
            shown, self._process = self._process.output(), None
            raise AssertionError(f"Kroxylicious did not start:\n{shown}")
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.end(kill=False)
            self._process = None

    def output(self) -> str:
        """The last lines that the running proxy wrote."""
        return "" if self._process is None else self._process.output()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()
