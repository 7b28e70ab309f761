"""What runs the programs of the zoo, by language: each maker takes the folder with the text, and the file's name.

What a maker needs is found on the machine, or fetched and kept; RealPartMissing says what is not there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping

from compat_tests.control.programs import go_program, java_program, javascript_program
from tests.common.jars import RealPartMissing, compile_java, maven_jars, tool_command

ROOT = pathlib.Path(__file__).parents[2]
STREAMS_POM = ROOT / "compat_tests" / "streams" / "pom.xml"
SPARK_PYTHON = ROOT / ".venv-spark" / "bin" / "python"
FAUST = ("faust-streaming==0.15.3", "aiokafka==0.14.0")
INSTALL_TIMEOUT_S = 300


def language_of(file: pathlib.Path) -> str:
    """The key of `MAKERS` for a program."""
    for name in ("quix", "faust", "spark"):
        if file.name.startswith(name):
            return name
    if file.name.startswith("Streams"):
        return "streams"
    return {"": "go", ".java": "java", ".mjs": "javascript", ".py": "python"}[file.suffix]


def _python(folder: pathlib.Path, name: str) -> list[str]:
    return [sys.executable, str(folder / name)]


def _java(folder: pathlib.Path, name: str) -> list[str]:
    return java_program(folder, folder / name)


def _streams(folder: pathlib.Path, name: str) -> list[str]:
    libs = maven_jars(STREAMS_POM, "kafka-streams", of_release=True)
    compile_java([folder / name], folder, libs)
    return tool_command(pathlib.Path(name).stem, class_path=[libs / "*", folder])


def _go(folder: pathlib.Path, name: str) -> list[str]:
    return go_program(folder, folder)


def _javascript(folder: pathlib.Path, name: str) -> list[str]:
    built = folder / "built"
    shutil.rmtree(built, ignore_errors=True)
    built.mkdir()
    return javascript_program(built, folder / name)


def _quix(folder: pathlib.Path, name: str) -> list[str]:
    lock = ROOT / "requirements-quix.lock"
    return [_venv("quix", "--require-hashes", "-r", str(lock)), str(folder / name)]


def _faust(folder: pathlib.Path, name: str) -> list[str]:
    return [_venv("faust", *FAUST), str(folder / name)]


def _spark(folder: pathlib.Path, name: str) -> list[str]:
    if not SPARK_PYTHON.exists():
        raise RealPartMissing("no .venv-spark (make .venv-spark/.synced)")
    return ["env", f"PYTHONPATH={ROOT}", str(SPARK_PYTHON), str(folder / name)]


MAKERS: Mapping[str, Callable[[pathlib.Path, str], list[str]]] = {
    "python": _python,
    "java": _java,
    "streams": _streams,
    "go": _go,
    "javascript": _javascript,
    "quix": _quix,
    "faust": _faust,
    "spark": _spark,
}


def _venv(name: str, *what: str) -> str:
    """The Python of a venv with these packages, which is made once and kept under the user's cache directory."""
    caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oncelog"
    digest = hashlib.sha256(" ".join([sys.version, *map(_content, what)]).encode()).hexdigest()
    kept = caches / f"venv-{name}-{digest[:12]}"
    python = kept / "bin" / "python"
    caches.mkdir(parents=True, exist_ok=True)
    with open(caches / f"venv-{name}.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (kept / "made").exists():
            shutil.rmtree(kept, ignore_errors=True)
            _run("venv", "-q", "--no-python-downloads", "--python", sys.executable, str(kept))
            _run("pip", "install", "-q", "--python", str(python), *what)
            (kept / "made").touch()
    return str(python)


def _content(word: str) -> str:
    return pathlib.Path(word).read_text() if word.endswith(".lock") else word


def _run(*words: str) -> None:
    uv = pathlib.Path(sys.executable).with_name("uv")
    run = subprocess.run(
        [str(uv), *words], capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if run.returncode != 0:
        raise RealPartMissing(f"uv {words[0]} failed:\n{run.stderr[-2000:]}")
