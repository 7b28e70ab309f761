"""Programs in other languages than Python: built with what the machine has, or RealPartMissing says what it lacks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

from tests.common.jars import RealPartMissing, compile_java, tool_command

HERE = pathlib.Path(__file__).parent
JAVA_SOURCE = HERE / "LostCommit.java"
GO_FOLDER = HERE / "go"
JS_FOLDER = HERE / "js"
JS_SOURCE = JS_FOLDER / "lost_commit.mjs"
BUILD_TIMEOUT_S = 300


def java_program(folder: pathlib.Path, source: pathlib.Path = JAVA_SOURCE) -> list[str]:
    """Compile a Java program of one file into `folder`; returns its command line."""
    return tool_command(source.stem, class_path=[compile_java([source], folder)])


def go_program(folder: pathlib.Path, source: pathlib.Path = GO_FOLDER) -> list[str]:
    """Build the Go program in the folder `source` into `folder`; returns its command line.

    The modules are in Go's own cache, or fetched.
    """
    program, go = folder / "program", _found("go")
    _fetch([go, "mod", "download"], source)
    build = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=source,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert build.returncode == 0, build.stderr
    return [str(program)]


def javascript_program(folder: pathlib.Path, source: pathlib.Path = JS_SOURCE) -> list[str]:
    """Copy a JavaScript program into `folder`, beside its packages; returns its command line.

    The packages are fetched once, and kept under the user's cache directory.
    """
    node = _found("node")
    lock = (JS_FOLDER / "package-lock.json").read_bytes()
    caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "oncelog"
    kept = caches / f"npm-{hashlib.sha256(lock).hexdigest()[:12]}"
    caches.mkdir(parents=True, exist_ok=True)
    with open(caches / "npm.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not kept.is_dir():
            with tempfile.TemporaryDirectory(prefix="npm-", dir=caches) as fetched:
                for name in ("package.json", "package-lock.json"):
                    shutil.copy(JS_FOLDER / name, fetched)
                _fetch([_found("npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts"], fetched)
                os.rename(f"{fetched}/node_modules", kept)
    (folder / "node_modules").symlink_to(kept)
    return [node, str(shutil.copy(source, folder))]


def _found(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RealPartMissing(f"no {name} on the PATH")
    return found


def _fetch(command: list[str], folder: pathlib.Path | str) -> None:
    """Fetch packages. Raises RealPartMissing if that fails, as it does without a network the first time."""
    run = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if run.returncode != 0:
        raise RealPartMissing(f"{' '.join(command[:2])} failed:\n{run.stdout[-2000:]}")
