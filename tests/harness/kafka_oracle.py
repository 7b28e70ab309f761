"""Runs Kafka's own code as an oracle: a Java program beside a test, on Kafka's class path."""

from __future__ import annotations

import atexit
import pathlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable

from tests.common.jars import (
    TOOL_TIMEOUT_S,
    RealPartMissing,
    compile_java,
    require,
    run_tool,
    tool_command,
)
from tests.common.recorded.recorder import ASKED, Recorder

ERRORS_SHOWN = 4_000
"""Characters of a failed program's last output that the error shows."""

_compiled: dict[pathlib.Path, pathlib.Path] = {}


class Oracle:
    """The fixture `oracle`: what the program `source` answers to `given`, which may be recorded."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.is_asked = recorder.mode == ASKED
        """Whether this run asks all of Kafka: then it may ask for more than what is recorded."""

    def __call__(self, source: pathlib.Path, given: bytes = b"") -> bytes:
        made_of = source.read_bytes() + given
        return self._recorder.of_oracle(source.name, made_of, lambda: ask_oracle(source, given=given))

    def printed(self, main_class: str, facts_of: Callable[[str], bytes]) -> bytes:
        """The facts in what a main class of Kafka's prints; its texts are not kept."""
        return self._recorder.of_oracle(main_class, b"", lambda: facts_of(run_tool(main_class).stdout))


def ask_oracle(
    source: pathlib.Path, *arguments: str, given: bytes = b"", timeout_s: float = TOOL_TIMEOUT_S
) -> bytes:
    """What the program writes to its standard output, having read ``given``. It must end with exit code 0.

    Where Java, its compiler or Kafka's jars are missing, the test is skipped (or fails, see `require`).
    """
    try:
        classes = _compiled.get(source) or _compile(source)
        command = tool_command(_main_class(source), *arguments, class_path=[classes])
    except RealPartMissing as missing:
        require(str(missing))
    ran = subprocess.run(command, input=given, capture_output=True, timeout=timeout_s, check=False)
    assert ran.returncode == 0, ran.stderr.decode(errors="replace")[-ERRORS_SHOWN:]
    return ran.stdout


def _main_class(source: pathlib.Path) -> str:
    """The name of the program's class, in the package that the source names: there it sees what is not public."""
    package = re.search(r"^package ([\w.]+);", source.read_text(), re.MULTILINE)
    return f"{package[1]}.{source.stem}" if package else source.stem


def _compile(source: pathlib.Path) -> pathlib.Path:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="oracle-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _compiled[source] = compile_java([source], folder)
    return folder
