"""``oncelog proxy`` with rules, filters, a trace and the control API."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

import oncelog
from oncelog.broker.command import cli
from tests.common.oncelog_process import Process

RULES = """
[[rules]]
on = "Produce"
topic = "orders"
nth = 1
error = "NOT_LEADER_OR_FOLLOWER"

[[rules]]
on = "Produce"
topic = "ordes"
delay_ms = 1
"""
STAMP = """
import oncelog

class Stamp(oncelog.RecordFilter):
    def on_produced(self, record, context):
        record.headers.append(("via", b"proxy"))
"""


@pytest.fixture
def cluster() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["orders"]) as broker:
        yield broker


@pytest.fixture
def proxy(tmp_path: pathlib.Path) -> Iterator[Callable[..., Process]]:
    """Start ``oncelog proxy`` with these arguments."""
    started: list[Process] = []

    def start(*arguments: str, **more: Any) -> Process:
        started.append(
            Process(tmp_path, "proxy", "--listen", "127.0.0.1:0", *arguments, cwd=tmp_path, **more)
        )
        return started[-1]

    yield start
    for process in started:
        process.close()


def produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "retry.backoff.ms": 20, "client.id": "app"})
    producer.produce("orders", b"coffee")
    assert producer.flush(60) == 0


@pytest.mark.slow
def test_rules_and_a_filter(
    cluster: oncelog.Broker, proxy: Callable[..., Process], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "stamp.py").write_text(STAMP)
    command = (sys.executable, "-P", "-m", "oncelog")
    process = proxy(
        *("--upstream", cluster.bootstrap_servers, "--faults", "rules.toml", "--filter", "stamp:Stamp"),
        command=command,
    )
    produce(process.wait_ready()["address"])
    [record] = cluster.topic("orders").records()
    assert record.header("via") == b"proxy"
    assert process.end(signal.SIGTERM) == 0
    assert "a rule fired" in process.stderr
    [warning] = [line for line in process.stderr.splitlines() if "a rule matches nothing yet" in line]
    assert " does not exist: did you mean orders?" in warning


@pytest.mark.slow
def test_a_trace(cluster: oncelog.Broker, proxy: Callable[..., Process]) -> None:
    process = proxy("--upstream", cluster.bootstrap_servers, "--trace-records", "--trace-client", "app")
    produce(process.wait_ready()["address"])
    assert process.end(signal.SIGTERM) == 0
    assert process.popen.stdout is not None
    lines = process.popen.stdout.read().splitlines()
    [request, response] = [line for line in lines if " Produce v" in line]
    assert " > app 127.0.0.1:" in request
    assert "[@0 key=null value=coffee]" in request
    assert re.search(r" \d+ B \d+\.\d ms \(upstream \d+\.\d ms\): responses=\[\{", response)
    assert {line.split()[2] for line in lines} == {">", "<"}


@pytest.mark.slow
def test_the_control_api(cluster: oncelog.Broker, proxy: Callable[..., Process]) -> None:
    process = proxy("--upstream", cluster.bootstrap_servers, "--control", "127.0.0.1:0")
    ready = process.wait_ready()

    def ask(method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{ready['control']}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                text = response.read()
                return response.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    rule = {"on": "Produce", "topic": "orders", "nth": 1, "drop_response": "close"}
    assert ask("POST", "/faults", rule) == (200, {"id": 1})
    produce(ready["address"])
    assert ask("GET", "/faults")[1][0]["fired"] == 1
    assert ask("POST", "/wait", {"api": "Produce", "topic": "orders"})[0] == 200
    assert [one["value"] for one in ask("GET", "/topics/orders/records")[1]] in (["coffee"], ["coffee"] * 2)
    assert ask("GET", "/broker")[1]["cluster_id"] == cluster.cluster_id
    status, error = ask("POST", "/clock/advance", {"days": 1})
    assert (status, error["error"]) == (501, "UnsupportedError")
    assert ask("POST", "/broker/stop")[0] == 204
    assert ask("GET", "/topics")[0] == 409
    assert ask("POST", "/broker/start")[0] == 200
    produce(ready["address"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("--faults", "rules.json"),
            "rules.json, line 1, rule 1: crash_at: a proxy cannot let the brokers behind it die: kill the proxy, or a "
            "node of the cluster",
        ),
        (
            ("--filter", "x"),
            "--filter: x: expected MODULE:NAME, such as stamp:Stamp for the class Stamp in stamp.py",
        ),
        (("--trace-api", "Produse"), "--trace-api=Produse: did you mean Produce?"),
        (("--control-token-file", "x"), "--control-token-file needs --control"),
    ],
)
def test_what_cannot_be_done(
    arguments: tuple[str, ...],
    line: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in list(os.environ):
        if name.startswith(("KAFKA_", "ONCELOG_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.json").write_text('{"rules": [{"crash_at": "before decision"}]}')
    assert cli.main(["proxy", "--upstream", "127.0.0.1:1", *arguments]) == cli.EXIT_USAGE
    assert capsys.readouterr().err == f"oncelog: {line}\n"


@pytest.mark.slow
def test_a_node_that_its_cluster_advertises_elsewhere(proxy: Callable[..., Process]) -> None:
    """Kafka in a container, asked from outside of it: the proxy says at its start what clients would not see."""
    inside = {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised.listeners": "PLAINTEXT://127.0.0.1:1"}
    with oncelog.Broker(config=inside) as broker:
        started = proxy("--upstream", broker.listeners["PLAINTEXT"])
        started.wait_ready()
        [line] = (one for one in started.stderr.splitlines() if "cannot be reached" in one)
        assert "its advertised.listeners must lead there from here node=1 address=127.0.0.1:1 reason=" in line
