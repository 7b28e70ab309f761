"""``oncelog serve --control``: the control API of a process."""

import http.client
import json
import pathlib
import re
import signal
import socket
import sys
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

import oncelog
from oncelog.broker.command import cli
from tests.common.frames import Connection
from tests.common.oncelog_process import Process, Serve, serve
from tests.control.snapshot_files import rewritten

__all__ = ["serve"]  # a fixture

LOCAL = ("--port", "0", "--control", "127.0.0.1:0")
TIMEOUT_S = 60


def ask(address: str, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    """The status and JSON of the response to one request."""
    with closing(http.client.HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None


def responds(address: str) -> bool:
    """Whether a broker at this address responds to ApiVersions without an error."""
    with Connection(address) as connection:
        return bool(connection.call("ApiVersions", 0)["error_code"] == 0)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["memory", "ephemeral", "data-dir"])
def test_a_broker_is_killed_and_started_again(serve: Serve, tmp_path: pathlib.Path, where: str) -> None:
    data = (f"--{where}", *([str(tmp_path / "data")] if where == "data-dir" else []))
    process = serve(*LOCAL, *data)
    ready = process.wait_ready()
    control, address = ready["control"], ready["address"]
    assert (ready["data.dir"] == "memory") is (where == "memory")
    status, info = ask(control, "GET", "/broker")
    assert (status, info["bootstrap_servers"], info["is_running"]) == (200, address, True)
    assert ask(control, "POST", "/broker/kill") == (204, None)
    with pytest.raises(OSError, match="refused"):
        responds(address)
    assert ask(control, "POST", "/broker/start", {}) == (200, info)
    assert responds(address)
    assert ask(control, "POST", "/broker/reset")[0] == 200
    assert responds(address)
    assert process.end(signal.SIGTERM) == 0
    assert "Traceback" not in process.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists() is (where == "data-dir")


@pytest.mark.slow
def test_a_reset_tells_who_was_connected(serve: Serve) -> None:
    ready = serve(*LOCAL, "--memory").wait_ready()
    with ExitStack() as stack:
        for client_id in ("b", "a", "b"):
            connection = stack.enter_context(Connection(ready["address"], client_id))
            connection.call("ApiVersions", 0)
        gone = stack.enter_context(Connection(ready["address"], "gone"))
        gone.call("ApiVersions", 0)
        gone.close()
        # The broker has noticed when the next one is served.
        stack.enter_context(Connection(ready["address"], None)).call("ApiVersions", 0)
        assert ask(ready["control"], "POST", "/broker/reset") == (200, {"connected_clients": ["a", "b"]})
    assert ask(ready["control"], "POST", "/broker/reset") == (200, {"connected_clients": []})


def test_memory_alone(serve: Serve) -> None:
    process = serve("--port", "0", "--memory")
    ready = process.wait_ready()
    assert ready["data.dir"] == "memory"
    assert "control" not in ready
    assert responds(ready["address"])
    assert process.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_the_configuration_is_kafkas_and_not_the_test_kits(serve: Serve) -> None:
    control = serve(*LOCAL, "--memory", "-c", "num.partitions=4").wait_ready()["control"]
    assert ask(control, "GET", "/topics") == (200, [])
    ready = serve(
        "--port", "0", "--memory", "--control", "0", "-c", "offsets.topic.num.partitions=3"
    ).wait_ready()
    with Connection(ready["address"]) as connection:
        connection.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    status, topic = ask(ready["control"], "GET", "/topics/__consumer_offsets")
    assert (status, len(topic["partitions"])) == (200, 3)
    ready = serve(*LOCAL, "--memory").wait_ready()
    with Connection(ready["address"]) as connection:
        connection.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})
    assert len(ask(ready["control"], "GET", "/topics/__consumer_offsets")[1]["partitions"]) == 50


@pytest.mark.slow
def test_a_token_in_a_file_or_a_variable(serve: Serve, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    started = (
        serve("--port", "0", "--memory", "--control", "0.0.0.0:0", "--control-token-file", str(path)),
        serve(
            "--port",
            "0",
            "--memory",
            ONCELOG_CONTROL="0.0.0.0:0",
            ONCELOG_CONTROL_TOKEN="s3cret",
        ),
    )
    for process in started:
        port = process.wait_ready()["control"].rpartition(":")[2]
        assert ask(f"127.0.0.1:{port}", "GET", "/broker")[0] == 401
        assert ask(f"127.0.0.1:{port}", "GET", "/broker", Authorization="Bearer s3cret")[0] == 200


@pytest.mark.slow
def test_many_requests_on_one_connection(serve: Serve) -> None:
    control = serve(*LOCAL, "--memory").wait_ready()["control"]
    with closing(http.client.HTTPConnection(control, timeout=TIMEOUT_S)) as connection:
        for _ in range(1100):
            connection.request("GET", "/topics")
            response = connection.getresponse()
            assert response.read() == b"[]"
            assert not response.will_close


@pytest.mark.slow
def test_an_address_that_is_taken(serve: Serve) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = f"oncelog: cannot listen on {address}: Address already in use; port 0 takes a free one"
        process = serve("--port", "0", "--memory", "--control", address)
        assert process.end() == cli.EXIT_FAILED
        assert process.stderr.splitlines() == [f"{line}; it is the control API's (--control)"]
        process = serve("--listen", address, "--memory", "--control", "0")
        assert process.end() == cli.EXIT_FAILED
        assert process.stderr.splitlines() == [line]


HEAD = "{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n"


@pytest.mark.slow
def test_clients_that_send_nothing_or_wait_do_not_hold_the_end_up(serve: Serve) -> None:
    process = serve(*LOCAL, "--memory")
    host, _, port = process.wait_ready()["control"].rpartition(":")
    with ExitStack() as stack:
        silent, half, waiting = (
            stack.enter_context(socket.create_connection((host, int(port)), TIMEOUT_S)) for _ in range(3)
        )
        half.sendall(HEAD.format("POST /broker/kill", 10).encode() + b"{")
        body = b'{"api": "Produce", "timeout": 600}'
        waiting.sendall(HEAD.format("POST /wait", len(body)).encode() + body)
        assert ask(f"{host}:{port}", "GET", "/broker")[0] == 200
        assert process.end(signal.SIGTERM) == 0
        assert silent.recv(1) == b""
    assert "Traceback" not in process.stderr


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="there is no such time-out here")
def test_a_client_that_reads_nothing_does_not_hold_the_end_up_for_long(serve: Serve) -> None:
    process = serve(*LOCAL, "--memory")
    host, _, port = process.wait_ready()["control"].rpartition(":")
    with socket.create_connection((host, int(port))) as unread:
        unread.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                unread.sendall(HEAD.format("GET /openapi.json", 0).encode())
        assert ask(f"{host}:{port}", "GET", "/broker")[0] == 200
        assert process.end(signal.SIGTERM) == 0
    assert "Traceback" not in process.stderr


@pytest.mark.slow
def test_a_broker_that_fails_ends_the_process(serve: Serve, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("mine")
    process = serve(*LOCAL, "--data-dir", str(tmp_path / "file"))
    assert process.end() == cli.EXIT_FAILED
    assert process.stderr.splitlines()[-1] == (
        f"oncelog: cannot use the data directory {tmp_path / 'file'}: there is a file in its place"
    )


RULES = """
[[rules]]
on = "Metadata"
nth = 2
error = "COORDINATOR_NOT_AVAILABLE"
topic_exists = false
topic = "orders"
"""


def metadata_error(address: str) -> int:
    """The error of a topic in the response to a Metadata."""
    with Connection(address) as connection:
        found = connection.call("Metadata", 12, {"topics": [{"topic_id": bytes(16), "name": "orders"}]})
    return int(found["topics"][0]["error_code"])


@pytest.mark.slow
def test_rules_from_a_file(serve: Serve, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    arguments = (*LOCAL, "--memory", "-c", "auto.create.topics.enable=false")
    for process in (
        serve(*arguments, "--faults", str(path)),
        serve(*arguments, ONCELOG_FAULTS=f"{path}:{path}"),
    ):
        ready = process.wait_ready()
        missing = 3  # UNKNOWN_TOPIC_OR_PARTITION
        for _ in range(2):
            assert [metadata_error(ready["address"]) for _ in range(3)] == [missing, 15, missing]
            states = ask(ready["control"], "GET", "/faults")[1]
            assert [row["matched"] for row in states] == [3] * len(states)
            assert sum(row["fired"] for row in states) == 1
            assert ask(ready["control"], "POST", "/broker/reset")[0] == 200  # with the rules as at the start
        assert process.end(signal.SIGTERM) == 0
        assert "a rule fired rule=" in process.stderr
    assert len(states) == 2


@pytest.mark.slow
def test_a_mistake_in_a_file_of_rules(serve: Serve, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES.replace("COORDINATOR", "CORDINATOR"))
    process = serve("--port", "0", "--memory", "--faults", str(path))
    assert process.end() == cli.EXIT_USAGE
    assert process.stderr.startswith(f"oncelog: {path}, line 5, rule 1: ")
    assert process.stderr.count("\n") == 1
    path.write_bytes(b"\xff")
    process = serve("--port", "0", "--memory", "--faults", str(path))
    assert process.end() == cli.EXIT_USAGE
    assert process.stderr == f"oncelog: cannot read the rules {path}: it is not UTF-8\n"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["--memory", "--ephemeral", "--data-dir"])
def test_a_snapshot_starts_another_broker(serve: Serve, tmp_path: pathlib.Path, where: str) -> None:
    control = serve(*LOCAL, "--memory").wait_ready()["control"]
    assert ask(control, "POST", "/topics", {"orders": 2})[0] == 204
    assert ask(control, "POST", "/topics/orders/records", ["a", "b"])[0] == 200
    path = tmp_path / "seed.oncelog"
    assert ask(control, "POST", "/snapshot", {"path": str(path)}) == (204, None)
    data = (where, *([str(tmp_path / "data")] if where == "--data-dir" else []))
    other = serve(*LOCAL, *data, "--from-snapshot", str(path))
    ready = other.wait_ready()
    assert ready["cluster.id"] == ask(control, "GET", "/broker")[1]["cluster_id"]
    for _ in range(2):
        found = ask(ready["control"], "GET", "/topics/orders/records")[1]
        assert sorted(row["value"] for row in found) == ["a", "b"]
        assert ask(ready["control"], "POST", "/broker/reset")[0] == 200  # to the snapshot
    if where == "--data-dir":
        assert other.end(signal.SIGTERM) == 0
        again = serve(*LOCAL, *data, "--from-snapshot", str(path))
        assert again.end() == cli.EXIT_FAILED
        assert again.stderr.splitlines()[-1].startswith("oncelog: a snapshot cannot be loaded into ")


@pytest.mark.slow
def test_a_snapshot_that_somebody_has_changed(serve: Serve, tmp_path: pathlib.Path) -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        seed = kafka.snapshot_bytes()
    path = tmp_path / "seed.oncelog"
    own = {"listener.security.protocol.map": "CLIENTS:PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN"}
    path.write_bytes(rewritten(seed, config={**own, "num.partitions": "3"}))
    started = serve("--port", "0", "--memory", "--from-snapshot", str(path))
    assert responds(started.wait_ready()["address"])
    assert (
        "keys in the snapshot's configuration that a broker has of its own have no effect "
        "keys='listener.security.protocol.map, sasl.enabled.mechanisms'"
    ) in started.stderr
    limit = ("--snapshot-bytes-max", "1000")
    refused = serve("--port", "0", "--memory", "--from-snapshot", str(path), *limit)
    assert refused.end() == cli.EXIT_FAILED
    assert re.fullmatch(
        rf"oncelog: the snapshot {path} unpacks to \d+ bytes; the limit is 1000 \(snapshot_bytes_max, "
        r"--snapshot-bytes-max\)\n",
        refused.stderr,
    )


@pytest.mark.slow
def test_as_another_version(serve: Serve) -> None:
    served = []
    for more in (("--ephemeral", "--as-version", "3.9"), ("--ephemeral",)):
        ready = serve("--port", "0", *more).wait_ready()
        with Connection(ready["address"]) as connection:
            served.append(connection.call("ApiVersions", 0)["api_keys"])
    assert served[0] != served[1]
    process = serve("--port", "0", "--memory", "--as-version", "2.8")
    assert process.end() == cli.EXIT_USAGE
    assert process.stderr.startswith("oncelog: --as-version: version '2.8': expected a release of Kafka: 3.9")


def test_without_the_extra(tmp_path: pathlib.Path) -> None:
    program = (
        "import sys\n"
        "from oncelog.broker.command import cli, control_settings\n"
        "sys.modules.update(dict.fromkeys(control_settings.CONTROL_PACKAGES))\n"
        "sys.exit(cli.main())\n"
    )
    process = Process(tmp_path, "--control", "0", command=(sys.executable, "-c", program))
    try:
        assert process.end() == cli.EXIT_USAGE
        assert process.stderr == (
            "oncelog: --control needs hypercorn and starlette: pip install 'hypercorn>=0.17' 'starlette>=0.40'\n"
        )
    finally:
        process.close()
