"""The contents of the sdist and the wheel, and the wheel in a project with folders named like ours."""

import email
import pathlib
import re
import shutil
import signal
import sys
import tarfile
import zipfile

import pytest

import oncelog
from tests.common.archives import ROOT, UV, build, install, run
from tests.common.oncelog_process import Process

pytestmark = pytest.mark.slow

PRODUCE_AND_CONSUME = """
import sys
from confluent_kafka import Consumer, Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("greetings", b"hello")
assert producer.flush(60) == 0
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["greetings"])
print(consumer.poll(60).value())
consumer.close()
"""


def exported(folder: pathlib.Path) -> pathlib.Path:
    """The tracked files as `git archive` hands them out, changes that are not committed included; no git in it."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    tree = run("git", "stash", "create").strip() or "HEAD"
    run("git", "archive", "-o", folder / "tree.tar", tree)
    shutil.unpack_archive(folder / "tree.tar", folder / "tree", filter="tar")
    return folder / "tree"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path]:
    """The sdist of this checkout, as it is now, and its wheel."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def files_of(source: pathlib.Path, *, installed: bool) -> set[str]:
    """What stands under oncelog/ and behind its links, by the names of the wheel or of the sdist."""
    found = set()
    for entry in (source / "oncelog").iterdir():
        if entry.is_symlink():
            real = entry.resolve()
            place = pathlib.PurePath("oncelog", entry.name) if installed else real.relative_to(source)
            files = [file for file in real.rglob("*") if file.is_file()]
            below = [file.relative_to(real) for file in files if installed or not file.is_symlink()]
            found |= {str(place / file) for file in below if "__pycache__" not in file.parts}
        elif entry.is_dir() and entry.name != "__pycache__":
            found |= {f"oncelog/{entry.name}/{file.name}" for file in entry.iterdir() if file.is_file()}
        elif entry.is_file():
            found.add(f"oncelog/{entry.name}")
    return found


def check_contents(source: pathlib.Path, sdist: pathlib.Path, wheel: pathlib.Path) -> None:
    source = source.resolve()
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    packed = {member.name.partition("/")[2] for member in members if member.isfile()}
    docs = {str(file.relative_to(source)) for file in (source / "docs").rglob("*") if file.is_file()}
    beside = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert packed == files_of(source, installed=False) | docs | beside

    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    assert {"oncelog/py.typed", "oncelog/broker/command/cli.py", "oncelog/spark/once.py"} <= names
    about = {name for name in names if ".dist-info/" in name}
    assert names - about == files_of(source, installed=True)
    assert {name.partition("/")[2] for name in about} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }


def test_the_archives_hold_the_package_and_nothing_else(archives: tuple[pathlib.Path, pathlib.Path]) -> None:
    check_contents(ROOT, *archives)


def test_an_exported_tree_without_git_makes_the_same(tmp_path: pathlib.Path) -> None:
    source = exported(tmp_path)
    assert (source / "oncelog" / "broker").is_symlink()
    (source / "wire" / "__pycache__").mkdir()
    (source / "wire" / "__pycache__" / "crc.cpython-311.pyc").touch()
    sdist, _ = build(source, tmp_path / "dist")
    run(UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-q", source)
    (wheel,) = (source / "dist").glob("*.whl")  # made without an sdist, as `pip install .` does
    check_contents(source, sdist, wheel)


def test_the_metadata(archives: tuple[pathlib.Path, pathlib.Path]) -> None:
    with zipfile.ZipFile(archives[1]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["Version"] == oncelog.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    needed = metadata.get_all("Requires-Dist", [])
    assert {re.split(r"\W", line)[0] for line in needed} >= {"trio", "confluent", "pyarrow"}
    assert not [line for line in needed if re.search(r"==|<|pyspark", line.partition(";")[0])], (
        "a program's others"
    )
    shown = str(metadata.get_payload())
    assert "docs/reference/differences.md" in shown
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", shown), "links that lead nowhere on an index's page"


@pytest.fixture(scope="module")
def project(
    archives: tuple[pathlib.Path, pathlib.Path], tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """A project with packages of its own that must not be taken for ours, and the wheel in its clean .venv."""
    root = tmp_path_factory.mktemp("project")
    for package in ("wire", "broker", "coordinator", "tests", "spark", "client"):
        (root / package).mkdir()
        (root / package / "__init__.py").write_text(
            "raise RuntimeError('this is the project, not oncelog')\n"
        )
    install(archives[1], root / ".venv", "confluent-kafka", "pytest", lock="requirements.lock")
    return root


@pytest.mark.parametrize("command", ["oncelog", "python -m oncelog"])
def test_it_serves_in_a_project_with_such_names(
    project: pathlib.Path, tmp_path: pathlib.Path, command: str
) -> None:
    program, *arguments = command.split()
    binaries = project / ".venv" / "bin"
    process = Process(
        tmp_path,
        *("serve", "--ephemeral", "--listen", "127.0.0.1:0"),
        command=(str(binaries / program), *arguments),
        cwd=project,
        PYTHONPATH="",
    )
    try:
        address = process.wait_ready()["address"]
        assert run(binaries / "python", "-c", PRODUCE_AND_CONSUME, address, cwd=project) == "b'hello'\n"
        assert process.end(signal.SIGTERM) == 0
    finally:
        process.close()


def test_importing_it_is_cheap_there(project: pathlib.Path) -> None:
    code = "import sys; import oncelog; print(oncelog.__file__, *sys.modules)"
    file, *modules = run(project / ".venv" / "bin" / "python", "-c", code, cwd=project).split()
    assert pathlib.Path(file).is_relative_to(project / ".venv")
    assert not {"trio", "asyncio", "socket", "importlib.metadata", "oncelog.broker"} & set(modules)


def test_the_fixtures_need_no_extra_there(project: pathlib.Path) -> None:
    code = (
        "import oncelog.pytest_plugin.real_cluster, importlib.util as u; print(u.find_spec('cryptography'))"
    )
    assert run(project / ".venv" / "bin" / "python", "-c", code, cwd=project) == "None\n"


def test_uvx_runs_the_wheel_there(archives: tuple[pathlib.Path, pathlib.Path], project: pathlib.Path) -> None:
    locked = ("-q", "--python", sys.executable, "-c", ROOT / "requirements.lock")
    shown = run(UV.with_name("uvx"), *locked, "--from", archives[1], "oncelog", "--version", cwd=project)
    assert shown == f"oncelog {oncelog.__version__}\n"
