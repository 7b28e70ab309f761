"""franz-go's share consumer on both targets: records accepted (also by the next poll), released, rejected, renewed, in
both acquire modes, and what a client gives back when it ends.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

import pytest

import oncelog
from compat_tests.clients.test_rebootstrap import check_rebootstrap
from compat_tests.conftest import OwnBrokers
from compat_tests.control.programs import go_program
from compat_tests.differential import Session
from compat_tests.share.readers import set_group_config
from tests.common.batches import batch, now_ms, record
from tests.common.jars import RealPartMissing, require

pytestmark = pytest.mark.slow

PROGRAM = pathlib.Path(__file__).parent / "go"
TIMEOUT_S = 90
SHORT_LOCKS = {"group.share.min.record.lock.duration.ms": "1000"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    try:
        return go_program(tmp_path_factory.mktemp("go"), PROGRAM)
    except RealPartMissing as missing:
        require(str(missing))


def run(command: list[str], bootstrap: str, name: str, deliveries: int, mode: str) -> Any:
    done = subprocess.run(
        [*command, bootstrap, name, name, str(deliveries), mode],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def produce(session: Session, name: str, *values: str) -> None:
    rows = [record(value=value.encode(), offset_delta=at) for at, value in enumerate(values)]
    assert session.produce(name, batch(rows))["error_code"] == 0


def wait_until_done(session: Session, name: str) -> None:
    """Wait until the group is done with all records."""
    asked = {"groups": [{"group_id": name, "topics": [{"topic_name": name, "partitions": [0]}]}]}
    deadline = now_ms() + 30_000
    while True:
        response = session.call_unobserved("DescribeShareGroupOffsets", 1, asked)
        [row] = response["groups"][0]["topics"][0]["partitions"]
        if row["lag"] == 0:
            return
        assert now_ms() < deadline, row


@pytest.mark.parametrize("mode", ["batches", "strict"])
def test_what_franz_go_does_with_records(
    own_broker: OwnBrokers, program: list[str], name: str, mode: str
) -> None:
    bootstrap = own_broker(SHORT_LOCKS).bootstrap
    session = Session(bootstrap)
    session.topic(name)
    set_group_config(session, name, share_auto_offset_reset="earliest", share_record_lock_duration_ms="1000")
    produce(session, name, "accept", "reject", "nothing", "release")
    seen = run(program, bootstrap, name, 5, mode)
    assert seen["errors"] == []
    assert sorted(map(tuple, seen["deliveries"])) == [
        ("accept", "1"),
        ("nothing", "1"),
        ("reject", "1"),
        ("release", "1"),
        ("release", "2"),
    ]
    assert seen["most"] == (1 if mode == "strict" else 4)
    wait_until_done(session, name)
    produce(session, name, "renew")
    held = run(program, bootstrap, name, 1, mode)
    assert (held["deliveries"], held["errors"]) == ([["renew", "1"]], [])
    wait_until_done(session, name)
    produce(session, name, "close")
    assert run(program, bootstrap, name, 2, mode)["deliveries"] == [["close", "1"]]
    again = run(program, bootstrap, name, 1, mode)
    assert (again["deliveries"], again["errors"]) == ([["close", "2"]], [])
    wait_until_done(session, name)
    session.close()


def test_franz_go_bootstraps_again(program: list[str]) -> None:
    """It is told that the address of the node leads elsewhere (KIP-1242), and begins again with its seeds."""
    with oncelog.Broker(topics=["t"]) as kafka:
        kafka.share_group("t").configure({"share.auto.offset.reset": "earliest"})
        kafka.produce("t", b"accept")
        kafka.faults.on("ApiVersions", version="5+").nth(2).error("REBOOTSTRAP_REQUIRED")
        seen = run(program, kafka.bootstrap_servers, "t", 1, "batches")
        assert (seen["deliveries"], seen["errors"]) == ([["accept", "1"]], [])
        kafka.faults.assert_all_fired()
        check_rebootstrap(kafka)
