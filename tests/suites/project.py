"""A project with tests beside a Kafka that is a file: what its test reads there is what Kafka answers."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

from tests.common.archives import ROOT

TIMEOUT_S = 120
JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"
FILES = {
    "conftest.py": 'pytest_plugins = ["tests.common.recorded.plugin", "tests.common.scheduling"]\n',
    "requirements.lock": "confluent-kafka==2.16.1 \\\n    --hash=sha256:0\n",
    "compat_tests/__init__.py": "",
    "compat_tests/conftest.py": """
import pathlib
import shutil
import pytest

@pytest.fixture
def kafka():
    return pathlib.Path(__file__).parent.parent / "kafka"
""",
    "compat_tests/helpers.py": """
import confluent_kafka
GREETING = "hello"

def greet(answer):
    assert confluent_kafka
    return f"{GREETING} {answer}"

def of_nobody():
    return 1
""",
    "compat_tests/test_kafka.py": """
import pytest
from compat_tests.helpers import greet

@pytest.mark.parametrize("name", ["a", "b"])
def test_comparison(answers, kafka, name):
    both = answers.both(lambda target: greet(kafka.read_text() if target == "kafka" else "world"))
    assert both["kafka"] == both["oncelog"]

@pytest.mark.parametrize("target", ["oncelog", "kafka"])
def test_fact(target, kafka):
    if target == "kafka":
        assert greet(kafka.read_text()) == "hello world"

@pytest.mark.whole_run("it is said so")
def test_rest():
    pass
""",
}
RECORDED = "compat_tests/recorded/test_kafka.txt"


class Project:
    """Its files, and its runs; the files are new ones, or those of another project."""

    def __init__(self, folder: pathlib.Path, other: Project | None = None) -> None:
        self.folder = folder / "project"
        self._bin = folder / "bin"
        self._bin.mkdir()
        if other is not None:
            shutil.copytree(other.folder, self.folder)
        else:
            for name, text in {**FILES, "kafka": "world"}.items():
                self.write(name, text)
        self.has_java(True)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def recorded(self) -> str:
        return (self.folder / RECORDED).read_text()

    def has_java(self, there: bool) -> None:
        java = self._bin / "java"
        java.write_text(JAVA if there else "#!/bin/sh\nexit 1\n")
        java.chmod(0o755)

    def run(self, *arguments: str, ci: bool = False) -> str:
        """What pytest prints, without the progress."""
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:asyncio"]
        command += ["-p", "no:oncelog", "-W", "error", "--rootdir", str(self.folder), *arguments]
        left_out = ("PYTEST", "ONCELOG", "JAVA_HOME", "CI")
        env = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
        env |= {"PATH": f"{self._bin}{os.pathsep}{env['PATH']}", "PYTHONPATH": str(ROOT)}
        env |= {"CI": "true"} if ci else {}
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        return done.stdout + done.stderr
