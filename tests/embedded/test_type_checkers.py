"""What type checkers say of programs that use the package: of mistakes, and of right uses."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.common.oncelog_process import DEADLINE_S

MISTAKES = """
import oncelog
from oncelog import Brokr  # mistake
from oncelog.pytest_plugin import factories

kafka_of_the_project = factories.kafka(topic=["orders"])  # mistake


def test_names(kafka: oncelog.Broker) -> None:
    oncelog.Brokr()  # mistake
    oncelog.Broker(topic=["orders"])  # mistake
    oncelog.Acl("User:app", "Read", topics="orders")  # mistake
    kafka.topik("orders")  # mistake
    kafka.topic("orders").record()  # mistake


def test_values(kafka: oncelog.Broker) -> None:
    kafka.produce("orders", 5)  # mistake
    kafka.topic("orders").records(isolation="committed")  # mistake
    kafka.faults.on("Produce").delay("50")  # mistake
    kafka.faults.on("Produce").drop_response("hangs")  # mistake
    kafka.clock.advance("7 days")  # mistake


async def test_without_await(async_kafka: oncelog.AsyncBroker) -> None:
    len(async_kafka.topic("orders").records())  # mistake
    rule = async_kafka.faults.on("Produce").close()
    print(rule.fired)  # mistake
"""

RIGHT = """
import pathlib
from datetime import timedelta

import oncelog
from oncelog import ErrorCode, KafkaError, Record
from oncelog.pytest_plugin import factories

kafka_of_the_project = factories.kafka(topics=["orders"], faults={"on": "Fetch", "close": True})
staging = factories.kafka_proxy("staging:9092", upstream_config="client.properties")


class Stamp(oncelog.RecordFilter):
    def on_produced(self, record: oncelog.PassingRecord, context: oncelog.RequestContext) -> None:
        record.headers.append(("via", (context.client_id or "").encode()))


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_it(kafka: oncelog.Broker, kafka_proxy: oncelog.Proxy, tmp_path: pathlib.Path) -> None:
    kafka.produce("orders", "coffee", key="table 7", headers={"trace": "1"}, timestamp=1_700_000_000_000)
    kafka.produce_many("orders", [("table 8", "tea"), ("table 9", b"milk")])
    print(values(kafka.topic("orders").records(isolation="read_committed")))
    rule = kafka.faults.on("EndTxn", transactional_id="app").nth(2).error(ErrorCode.NOT_COORDINATOR)
    print(rule.fired, rule.wait_fired(timeout=5).matched, kafka.group("billing").lag["orders"][0])
    for occurrence in kafka.clock.advance(timedelta(days=7)):
        print(occurrence)
    kafka.snapshot(tmp_path / "seed.oncelog")
    kafka_proxy.faults.load("rules.toml")
    try:
        kafka.create_topic("orders")
    except KafkaError as error:
        print(error.code.name)
    with oncelog.Broker(topics={"orders": 3}, acls=[oncelog.Acl("User:app", "Read", topic="orders")]) as other:
        print(other.client_config()["bootstrap.servers"])


async def test_async(async_kafka: oncelog.AsyncBroker) -> None:
    records = await async_kafka.topic("orders").records()
    rule = await async_kafka.faults.on("Produce").close()
    print(values(records), await rule.fired)
"""


def mypy(program: pathlib.Path) -> set[int]:
    """Return the lines in which mypy finds an error."""
    options = ("--strict", "--config-file=", "--cache-dir=cache")
    shown = run("mypy", *options, program.name, folder=program.parent)
    return {int(found) for found in re.findall(rf"(?m)^{program.name}:(\d+): error", shown)}


def pyright(program: pathlib.Path) -> set[int]:
    """Return the lines in which pyright finds an error. basedpyright is pyright with the node that it needs."""
    settings = {"include": [program.name], "typeCheckingMode": "standard"}
    (program.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    shown = run("basedpyright", "--outputjson", "--pythonpath", sys.executable, folder=program.parent)
    found = json.loads(shown)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


def run(module: str, *options: str, folder: pathlib.Path) -> str:
    command = (sys.executable, "-m", module, *options)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_each_mistake_is_found_and_no_right_use_is_one(
    tmp_path: pathlib.Path, checker: Callable[[pathlib.Path], set[int]]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(MISTAKES)
    marked = {number for number, line in enumerate(MISTAKES.splitlines(), 1) if "# mistake" in line}
    assert checker(program) == marked
    program.write_text(RIGHT)
    assert checker(program) == set()
