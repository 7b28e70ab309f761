"""docs/how-to/proxy.md: every recipe and every command on it, run as it stands there, before a broker and before
Kafka."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

import oncelog
from compat_tests.brokers import SharedBrokers
from compat_tests.pages.recipes import ROOT, Recipe, recipes
from tests.common.oncelog_process import Process

PAGE = ROOT / "docs" / "how-to" / "proxy.md"
RECIPES = recipes(PAGE)
TESTED = [
    title for title, recipe in RECIPES.items() if any(name.startswith("test_") for name in recipe.files)
]
UPSTREAM, LISTEN = "127.0.0.1:9092", "127.0.0.1:19092"
TIMEOUT_S = 120


def commands() -> list[str]:
    """The command lines without log-ins, in the order in which they stand there; for the others see
    `compat_tests/proxy/test_login_recipes.py`.
    """
    found: list[str] = re.findall(r"(?m)^    (oncelog proxy .*)$", PAGE.read_text())
    return [command for command in found if "--user" not in command and "--upstream-config" not in command]


def write_files(folder: pathlib.Path) -> None:
    """Write the files of all recipes that are no tests."""
    for recipe in RECIPES.values():
        for name, text in recipe.files.items():
            if not name.startswith("test_"):
                (folder / name).write_text(text)


def run_pytest(recipe: Recipe, folder: pathlib.Path, *arguments: str) -> str:
    """Run pytest in a project with the recipe's files; it must pass. Returns what it printed."""
    recipe.write(folder)
    options = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:trio", "-q", "--rootdir", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("title", TESTED)
def test_a_recipe(title: str, tmp_path: pathlib.Path) -> None:
    assert " skipped" not in run_pytest(RECIPES[title], tmp_path)


def test_the_fixture_before_a_cluster(tmp_path: pathlib.Path, brokers: SharedBrokers, upstream: str) -> None:
    servers = brokers[upstream].bootstrap
    shown = run_pytest(RECIPES["With pytest"], tmp_path, f"--kafka-bootstrap-servers={servers}")
    assert " skipped" not in shown


@pytest.fixture
def cluster() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["orders"]) as broker:
        yield broker


@pytest.mark.parametrize("command", commands())
def test_a_command(command: str, tmp_path: pathlib.Path, cluster: oncelog.Broker) -> None:
    write_files(tmp_path)
    words = shlex.split(command.replace(UPSTREAM, cluster.bootstrap_servers).replace(LISTEN, "127.0.0.1:0"))
    process = Process(tmp_path, *words[1:], cwd=tmp_path, command=(sys.executable, "-P", "-m", "oncelog"))
    try:
        servers = process.wait_ready()["address"]
        producer = Producer({"bootstrap.servers": servers, "retry.backoff.ms": 20, "client.id": "app"})
        producer.produce("orders", b"coffee")
        assert producer.flush(10) == 0
        settings = {"bootstrap.servers": servers, "group.id": "billing", "auto.offset.reset": "earliest"}
        consumer = Consumer(settings)
        consumer.subscribe(["orders"])
        message = consumer.poll(10)
        assert message is not None
        consumer.close()
        assert process.end(signal.SIGTERM) == 0
        if "--filter stamp:" in command:
            assert message.headers() == [("seen-by", b"app")]
        if "rename_groups" in command:
            assert cluster.group("tenant-a.billing").committed["orders"]
        if "--faults" in command:
            assert "a rule fired" in process.stderr
        if "--trace" in command:
            assert process.popen.stdout is not None
            assert "value=coffee]" in process.popen.stdout.read()
    finally:
        process.close()


def test_every_use_has_a_recipe() -> None:
    assert len(commands()) >= 5
    for title in ("In a test", "With pytest", "A header for each record", "A topic under another name"):
        assert title in TESTED


def test_every_block_with_a_test_names_its_file() -> None:
    blocks = re.findall(r"(?m)(?:^    .*\n|^\n)+", PAGE.read_text())
    unnamed = [block for block in blocks if "def test_" in block and not re.match(r"\s*# \w+\.py\n", block)]
    assert unnamed == []
