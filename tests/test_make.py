"""The Makefile's venv: a Python that is new enough creates it, and an unusable one is created again."""

import pathlib
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

MAKEFILE = pathlib.Path(__file__).parents[1] / "Makefile"
STAMP = ".venv/.serving"
MAKE_TIMEOUT_S = 600

PYTHON_3_10 = """#!/bin/sh
case "$*" in
--version) echo "Python 3.10.12";;
*) echo False;;
esac
"""
NO_PIP = """#!/bin/sh
echo "ModuleNotFoundError: No module named 'pip'" >&2
exit 1
"""


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with the Makefile and nothing to install."""
    shutil.copy(MAKEFILE, tmp_path)
    for name in ("requirements-serve.lock", "requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    return tmp_path


def make(folder: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["make", "-C", str(folder), "--no-print-directory", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=MAKE_TIMEOUT_S)


def write_program(path: pathlib.Path, text: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def is_made(folder: pathlib.Path) -> bool:
    return make(folder, "-q", STAMP, f"PYTHON={sys.executable}").returncode == 0


def test_an_old_python_is_told_so_in_one_line(checkout: pathlib.Path) -> None:
    old = write_program(checkout / "python3.10", PYTHON_3_10)
    for python, is_what in ((str(old), "Python 3.10.12"), ("no-such-python", "not there")):
        done = make(checkout, "serve", f"PYTHON={python}")
        assert done.returncode == 2
        (line,) = (done.stdout + done.stderr).splitlines()
        assert f"oncelog needs Python 3.11 or newer, and {python} is {is_what}" in line
    assert not (checkout / ".venv").exists()
    assert make(checkout, "help", "PYTHON=no-such-python").returncode == 0


@pytest.mark.parametrize(
    "program", [PYTHON_3_10, NO_PIP, None], ids=["old", "half made", "its Python is gone"]
)
def test_a_venv_that_cannot_be_used_is_made_anew(checkout: pathlib.Path, program: str | None) -> None:
    python = checkout / ".venv" / "bin" / "python"
    if program is None:
        python.parent.mkdir(parents=True)
        python.symlink_to("/no/such/python3.11")
    else:
        write_program(python, program)
    leftover = checkout / ".venv" / "lib" / "python3.10"
    leftover.mkdir(parents=True)
    for name in (".serving", ".synced"):  # newer than what they were made from
        (checkout / ".venv" / name).touch()
    assert not is_made(checkout)
    done = make(checkout, STAMP, f"PYTHON={sys.executable}")
    assert done.returncode == 0, done.stdout + done.stderr
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.split()[1] == sys.version.split()[0]
    assert not leftover.exists()
    assert is_made(checkout)
    assert not (checkout / ".venv" / ".synced").exists()


def test_serving_installs_what_the_tests_run_with_and_no_test_tools() -> None:
    def pins(name: str) -> set[str]:
        lines = MAKEFILE.with_name(name).read_text().splitlines()
        return {line.split()[0] for line in lines if line[:1].isalpha()}

    assert pins("requirements-serve.lock") < pins("requirements.lock")
    names = {pin.partition("==")[0] for pin in pins("requirements-serve.lock")}
    assert "trio" in names
    assert not names & {"pytest", "mypy", "uv", "confluent-kafka"}


def test_one_test_runs_in_the_venv_of_its_suite(checkout: pathlib.Path) -> None:
    (checkout / "requirements-spark.lock").touch()

    def last_line(*arguments: str) -> str:
        return make(checkout, "-n", "test-one", *arguments).stdout.splitlines()[-1]

    assert (
        last_line("T=tests/log/test_x.py::test_y[3]") == '.venv/bin/pytest "tests/log/test_x.py::test_y[3]" '
    )
    assert last_line("T=compat_tests/nodes", "ARGS=-x") == '.venv/bin/pytest "compat_tests/nodes" -x'
    assert (
        last_line("T=spark_it/tests", "SEED=7") == 'ONCELOG_SEED=7 .venv-spark/bin/pytest "spark_it/tests" '
    )
    done = make(checkout, "-n", "test-one")
    assert done.returncode == 2
    assert "make test-one T=tests/log" in done.stderr
