"""Builds the sdist and the wheel, and installs the wheel as a user does."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
INSTALL_TIMEOUT_S = 600  # it may download
UV = pathlib.Path(sys.executable).with_name("uv")


def run(*command: str | pathlib.Path, cwd: pathlib.Path = ROOT) -> str:
    """Run a command without the environment of the tests' venv. Returns its output; the command must not fail."""
    ours = {name: text for name, text in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    ours.setdefault("UV_HTTP_RETRIES", "10")  # an index may be out of reach for a moment
    done = subprocess.run(
        command, cwd=cwd, env=ours, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(source: pathlib.Path, folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """The sdist, and the wheel that is made from the sdist alone."""
    offline = ("--no-build-isolation", "--python", sys.executable, "-q", "--out-dir", folder)
    run(UV, "build", "--sdist", *offline, source)
    (sdist,) = folder.glob("*.tar.gz")
    run(UV, "build", "--wheel", *offline, sdist)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def install(wheel: pathlib.Path, venv: pathlib.Path, *others: str, extra: str = "", lock: str) -> None:
    """Make a clean venv with the wheel and `others`, in the versions of one of our lock files."""
    run(UV, "venv", "-q", "--python", sys.executable, venv)
    locked = ("--python", venv / "bin" / "python", "-c", ROOT / lock)
    run(UV, "pip", "install", "-q", *locked, f"{wheel}{extra}", *others)
