"""The docs about tests: every recipe in a project that has only the wheel, with its pytest plugin."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from compat_tests.brokers import SharedBrokers
from compat_tests.pages.recipes import PAGES, Recipe, all_recipes
from oncelog.pytest_plugin.real_cluster import Cluster
from tests.common.archives import ROOT, UV, build, install, run

RECIPES = all_recipes()
QUIX = "Quix Streams"
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "FastStream", QUIX)
SECURITY = ("cryptography", "pyjwt")
"""The packages of the extra."""
PACKAGES = ("confluent-kafka", "kafka-python", "aiokafka", "faststream[kafka,confluent]", *SECURITY)
PYTEST = ("pytest", "pytest-xdist", "pytest-asyncio", "pytest-trio")
TIMEOUT_S = 120
WORKERS = 4

RunPytest = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))[1]


@pytest.fixture(scope="module")
def venv(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel, the clients and pytest with its usual plugins."""
    folder = tmp_path_factory.mktemp("venv")
    install(wheel, folder, *PACKAGES, *PYTEST, lock="requirements.lock")
    return folder


@pytest.fixture(scope="module")
def quix_venv(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Quix Streams wants an older confluent-kafka than the others have."""
    folder = tmp_path_factory.mktemp("quix")
    install(wheel, folder, "quixstreams", "pytest", "pytest-xdist", lock="requirements-quix.lock")
    return folder


@pytest.fixture
def run_pytest(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> RunPytest:
    """Run pytest in a project with the recipe's files; it must pass. Returns what it printed."""

    def run_pytest(recipe: Recipe, *arguments: str) -> str:
        folder = request.getfixturevalue("quix_venv" if recipe.title == QUIX else "venv")
        environment = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("VIRTUAL_ENV", "PYTHON", "PYTEST"))
        }
        done = subprocess.run(
            [folder / "bin" / "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    return run_pytest


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe(title: str, tmp_path: pathlib.Path, run_pytest: RunPytest) -> None:
    RECIPES[title].write(tmp_path)
    shown = run_pytest(RECIPES[title])
    assert " skipped" not in shown


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("title", CLIENTS)
def test_a_client_on_several_workers(title: str, tmp_path: pathlib.Path, run_pytest: RunPytest) -> None:
    """Side by side: the same test, with the same topics and groups, in each worker."""
    [(name, text)] = RECIPES[title].files.items()
    for number in range(WORKERS):
        (tmp_path / name.replace(".py", f"_{number}.py")).write_text(text)
    shown = run_pytest(RECIPES[title], "-n", str(WORKERS))
    assert f"created: {WORKERS}/{WORKERS} workers" in shown
    passed = re.search(r"(\d+) passed", shown)
    assert passed
    assert int(passed[1]) >= WORKERS


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("title", ["Quick start", *CLIENTS])
def test_a_recipe_on_a_cluster(
    title: str, tmp_path: pathlib.Path, run_pytest: RunPytest, brokers: SharedBrokers, upstream: str
) -> None:
    RECIPES[title].write(tmp_path)
    servers = brokers[upstream].bootstrap
    # The clients of the recipe before may have asked for a deleted topic, which then exists again.
    with contextlib.closing(Cluster(servers, {})) as cluster:
        cluster.start()
        for topic in {"orders", "receipts"}.intersection(cluster.topics):
            cluster.topic(topic).delete()
    shown = run_pytest(RECIPES[title], f"--kafka-bootstrap-servers={servers}")
    assert " skipped" not in shown


def test_the_oldest_pytest(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Whoever installs oncelog has the plugin, also with a pytest of 2021."""
    python = tmp_path / "venv" / "bin" / "python"
    run(UV, "venv", "-q", "--python", sys.executable, tmp_path / "venv")
    packages = (wheel, "confluent-kafka", "pytest==6.2.5", "pluggy<1.1")
    run(UV, "pip", "install", "-q", "--python", python, *packages)
    RECIPES["Quick start"].write(tmp_path)
    assert " 1 passed" in run(python, "-m", "pytest", "test_orders.py", cwd=tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_with_a_test_names_its_file(page: pathlib.Path) -> None:
    blocks = re.findall(r"(?m)(?:^    .*\n|^\n)+", page.read_text())
    unnamed = [block for block in blocks if "def test_" in block and not re.match(r"\s*# \w+\.py\n", block)]
    assert unnamed == []
