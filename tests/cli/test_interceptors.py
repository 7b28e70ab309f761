"""``--trace`` and ``--filter`` of ``oncelog serve``."""

from __future__ import annotations

import pathlib
import re
import signal
import sys
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer

from tests.cli.test_arguments import refused
from tests.common.oncelog_process import Serve, serve

__all__ = ["refused", "serve"]  # fixtures

STAMP = """
import oncelog

class Stamp(oncelog.RecordFilter):
    def __init__(self, header="via"):
        self.header = header

    def on_produced(self, record, context):
        record.headers.append((self.header, b"a filter"))
"""


@pytest.mark.slow
def test_a_filter_and_a_trace(serve: Serve, tmp_path: pathlib.Path) -> None:
    (tmp_path / "stamp.py").write_text(STAMP)
    process = serve(
        *("--memory", "--port", "0", "--filter", "stamp:Stamp,header=seen", "--trace-records"),
        *("--trace-topic", "ord*", "--trace-api", "Produce", "--trace-api", "Fetch"),
        command=(
            sys.executable,
            "-P",
            "-m",
            "oncelog",
        ),  # as the installed script has it: no module of the folder
        cwd=tmp_path,
    )
    servers = process.wait_ready()["address"]
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("orders", b"coffee")
    producer.produce("others", b"tea")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(60)
    assert message is not None
    assert message.headers() == [("seen", b"a filter")]
    consumer.close()
    assert process.end(signal.SIGTERM) == 0
    assert process.popen.stdout is not None
    lines = process.popen.stdout.read().splitlines()
    assert {re.split(" v", line)[0].split()[-1] for line in lines} == {"Produce", "Fetch"}
    produces = [line for line in lines if "Produce" in line]
    assert len(produces) == 2
    assert "[@0 key=null value=coffee]" in produces[0], "as the client sent it"
    assert any("value=coffee headers={seen='a filter'}" in line for line in lines if "Fetch" in line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("--filter", "x"),
            "--filter: x: expected MODULE:NAME, such as stamp:Stamp for the class Stamp in stamp.py",
        ),
        (("--trace-api", "Produse"), "--trace-api=Produse: did you mean Produce?"),
        (("--trace-api", "x"), "--trace-api=x: expected Kafka's name of an API, such as Produce"),
        (("--trace-topic", ""), "--trace-topic needs a value"),
    ],
)
def test_what_cannot_be_done(refused: Callable[..., str], arguments: tuple[str, ...], line: str) -> None:
    assert refused(*arguments) == line
