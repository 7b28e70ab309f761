"""`oncelog proxy` with several listeners, in a process of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

from compat_tests.oncelog_server import ROOT, START_TIMEOUT_S
from tests.common.process import Process, free_ports


class RunningProxy:
    """`oncelog proxy` with these arguments; a context manager. `addresses` are where its listeners are."""

    def __init__(self, upstream: str, listeners: Iterable[str], arguments: Sequence[str]) -> None:
        names = list(listeners)
        ports = free_ports(len(names))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        self._command = [sys.executable, "-m", "oncelog.broker.command.cli", "proxy", "--upstream", upstream]
        for name, address in self.addresses.items():
            self._command += ["--listen", f"{name}://{address}", "--node-ports", f"{name}=0"]
        self._command += arguments
        self._process: Process
        self.node = ""
        """The port of the first node, beside the first listener; "" if the proxy knew of none at its start."""

    def __enter__(self) -> RunningProxy:
        env = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self._process = Process(self._command, env, without=("KAFKA_", "ONCELOG_"))
        ready = self._process.stdout.wait_for("oncelog ready", START_TIMEOUT_S)
        if ready is None:
            self._process.end(kill=True)
            raise AssertionError(f"oncelog proxy did not start:\n{self._process.output()}")
        found = re.search(r"nodes=\d+@([\d.:]+)", ready)
        self.node = found[1] if found is not None else ""
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end(kill=False)
        assert not self._process.stderr.tracebacks, self._process.output()
