"""The command line as a user meets it: what is refused in the process's own words, and a broker that is a process."""

import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest

from oncelog.broker import cli
from tests.process import DEADLINE_S, Serve, address_of, serve

__all__ = ["serve"]  # a fixture


def answers(address: tuple[str, int]) -> bool:
    """Whether a broker there answers ApiVersions without an error."""
    request = struct.pack(">hhih4s", 18, 0, 7, 4, b"test")
    with socket.create_connection(address, DEADLINE_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answer:
            head = answer.read(10)
    correlation_id, error = struct.unpack_from(">ih", head, 4)
    return bool(correlation_id == 7 and error == 0)


def test_ready_served_and_stopped(serve: Serve, tmp_path: pathlib.Path) -> None:
    process = serve("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    ready = process.wait_ready()
    assert (ready["node.id"], ready["data.dir"]) == ("1", str(tmp_path / "data"))
    assert len(ready["cluster.id"]) == 22
    assert answers(address_of(ready))
    assert process.end(signal.SIGTERM) == 0
    assert process.popen.stdout is not None
    assert process.popen.stdout.read() == ""
    assert "Traceback" not in process.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_ctrl_c_stops_cleanly_too(serve: Serve, tmp_path: pathlib.Path) -> None:
    process = serve("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    process.wait_ready()
    assert process.end(signal.SIGINT) == 0
    assert "Traceback" not in process.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_the_cluster_keeps_its_id(serve: Serve, tmp_path: pathlib.Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    first = serve(*arguments, CLUSTER_ID="4L6g3nShT-eMCtK--X86sw")
    assert first.wait_ready()["cluster.id"] == "4L6g3nShT-eMCtK--X86sw"
    assert first.end(signal.SIGTERM) == 0
    assert serve(*arguments).wait_ready()["cluster.id"] == "4L6g3nShT-eMCtK--X86sw"


def test_a_data_directory_is_one_process_s(serve: Serve, tmp_path: pathlib.Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    first = serve(*arguments)
    ready = first.wait_ready()
    second = serve(*arguments)
    assert second.end() == cli.EXIT_FAILED
    last = second.stderr.splitlines()[-1]
    assert last.startswith("oncelog: ")
    assert str(tmp_path / "data") in last
    assert "Traceback" not in second.stderr
    assert answers(address_of(ready))


def test_a_port_in_use(serve: Serve, tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve("--listen", f"127.0.0.1:{port}", "--ephemeral")
        assert process.end() == cli.EXIT_FAILED
        last = process.stderr.splitlines()[-1]
        assert last == f"oncelog: cannot listen on 127.0.0.1:{port}: Address already in use"
    assert not list(tmp_path.glob("oncelog-*"))


def test_ephemeral_data_is_gone_afterwards(serve: Serve, tmp_path: pathlib.Path) -> None:
    process = serve("--listen", "127.0.0.1:0", ONCELOG_EPHEMERAL="true")
    directory = pathlib.Path(process.wait_ready()["data.dir"])
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o777 == 0o700
    assert process.end(signal.SIGTERM) == 0
    assert not directory.exists()


def test_no_place_for_ephemeral_data(serve: Serve, tmp_path: pathlib.Path) -> None:
    process = serve("--listen", "127.0.0.1:0", "--ephemeral", TMPDIR=str(tmp_path / "none"))
    assert process.end() == cli.EXIT_FAILED
    assert process.stderr.startswith("oncelog: cannot make a directory for --ephemeral: ")
    assert process.stderr.count("\n") == 1


def test_what_clients_are_told_may_differ(serve: Serve) -> None:
    process = serve("--ephemeral", ONCELOG_LISTEN="127.0.0.1:0", ONCELOG_ADVERTISE="kafka.example:9092")
    assert process.wait_ready()["advertised"] == "kafka.example:9092"


def test_logs_as_json(serve: Serve) -> None:
    process = serve(
        "--ephemeral", "--listen", "127.0.0.1:0", "--log-format", "json", "-c", "num.io.threads=3"
    )
    process.wait_ready()
    assert process.end(signal.SIGTERM) == 0
    lines = process.stderr.splitlines()
    assert lines
    assert all(line.startswith('{"time": "') for line in lines)
    assert "num.io.threads is known to Kafka, has no effect in oncelog [from -c]" in process.stderr


def test_nobody_reads_stdout(serve: Serve) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = serve("--ephemeral", "--listen", "127.0.0.1:0", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert process.popen.stderr is not None
    assert any("oncelog.broker.cli: ready" in line for line in process.popen.stderr)
    # The line could not be written; the broker goes on until it is told to stop.
    assert process.end(signal.SIGTERM) == 0


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run ``oncelog serve`` in this process, where it must be refused; the line that says why."""
    for name in list(os.environ):
        if name.startswith(("KAFKA_", "ONCELOG_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(cli, "_run", lambda *_: pytest.fail("it would have served"))

    def run(*arguments: str, **environment: str) -> str:
        for name, text in environment.items():
            monkeypatch.setenv(name, text)
        assert cli.main(["serve", *arguments]) == cli.EXIT_USAGE
        out, error = capsys.readouterr()
        assert out == ""
        assert error.count("\n") == 1
        return error.removeprefix("oncelog: ").rstrip("\n")

    return run


def test_an_unknown_key_is_named_with_its_value_and_origin(
    refused: Callable[..., str], tmp_path: pathlib.Path
) -> None:
    assert refused("-c", "num.partition=3") == "Unknown configuration num.partition (value 3) [from -c]"
    path = tmp_path / "server.properties"
    path.write_text("# mine\n\nnum.partition=3\n")
    assert refused("--config", str(path)) == f"Unknown configuration num.partition (value 3) [from {path}:3]"
    assert refused(KAFKA_NUM_PARTITION="3") == (
        "Unknown configuration num.partition (value 3) [from environment variable KAFKA_NUM_PARTITION]"
    )


def test_a_malformed_value(refused: Callable[..., str]) -> None:
    assert refused("-c", "num.partitions=many") == (
        "Invalid value many for configuration num.partitions: Not a number of type INT [from -c]"
    )
    assert refused("-c", "num.partitions") == "-c num.partitions: expected key=value"
    assert refused("--listen", "9092") == (
        "listeners=PLAINTEXT://9092: Unable to parse PLAINTEXT://9092 to a broker endpoint, "
        "expected NAME://HOST:PORT [from --listen]"
    )
    assert refused(ONCELOG_EPHEMERAL="perhaps") == "ONCELOG_EPHEMERAL=perhaps: expected true or false"


def test_a_malformed_log_option(refused: Callable[..., str]) -> None:
    assert refused(ONCELOG_LOG_FORMAT="xml") == "ONCELOG_LOG_FORMAT=xml: expected one of human, json"


def test_a_configuration_that_cannot_be_read(refused: Callable[..., str], tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "none")
    assert refused("--config", path) == f"cannot read the configuration {path}: No such file or directory"
    assert (
        refused(ONCELOG_CONFIG=str(tmp_path)) == f"cannot read the configuration {tmp_path}: Is a directory"
    )


def chosen(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> dict[str, object]:
    """What a command line and an environment come to."""
    found: dict[str, object] = {}
    options = cli._parser().parse_args(["serve", *arguments])
    config, listeners = cli._configuration(options, environment, "/scratch")
    found["data"], found["listen"] = config.data_dir, str(listeners[0].bind)
    found["told"], found["partitions"] = str(listeners[0].advertised), config.num_partitions
    return found


def test_who_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=2\nlisteners=PLAINTEXT://file:1\nlog.dirs=/file\n")
    file = ("--config", str(path))
    kafka = {
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_LISTENERS": "PLAINTEXT://kafka:1",
        "KAFKA_LOG_DIRS": "/kafka",
    }
    ours = {"ONCELOG_LISTEN": "ours:1", "ONCELOG_DATA_DIR": "/ours"}
    key = ("-c", "num.partitions=5", "-c", "listeners=PLAINTEXT://key:1", "-c", "log.dirs=/key")
    flag = ("--listen", "flag:1", "--data-dir", "/flag")

    def row(*arguments: str, **environment: str) -> tuple[object, ...]:
        found = chosen(monkeypatch, *arguments, **environment)
        return found["partitions"], found["listen"], found["data"]

    assert row(HOME="/h", XDG_DATA_HOME="/xdg") == (1, "PLAINTEXT://127.0.0.1:9092", "/xdg/oncelog")
    assert row(*file) == (2, "PLAINTEXT://file:1", "/file")
    assert row(*file, **kafka) == (3, "PLAINTEXT://kafka:1", "/kafka")
    assert row(*file, **kafka, **ours) == (3, "PLAINTEXT://ours:1", "/ours")
    assert row(*file, *key, **kafka, **ours) == (5, "PLAINTEXT://key:1", "/key")
    assert row(*file, *key, *flag, **kafka, **ours) == (5, "PLAINTEXT://flag:1", "/flag")
    assert row(*file, *key, "--ephemeral", **kafka, **ours)[2] == "/scratch"
    assert row(*file, ONCELOG_EPHEMERAL="1", **ours)[2] == "/scratch"
    assert row(*file, *flag, ONCELOG_EPHEMERAL="1")[2] == "/flag"
    assert row(*file, ONCELOG_EPHEMERAL="0")[2] == "/file"


def test_the_default_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert chosen(monkeypatch)["data"] == "/home/me/.local/share/oncelog"
    assert chosen(monkeypatch, XDG_DATA_HOME="relative/is/ignored")["data"] == "/home/me/.local/share/oncelog"


def test_a_flag_may_name_a_listener_or_several(monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen(monkeypatch, "--listen", "PLAINTEXT://0.0.0.0:1", "--advertise", "[::1]:2")
    assert (found["listen"], found["told"]) == ("PLAINTEXT://0.0.0.0:1", "PLAINTEXT://[::1]:2")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("oncelog 0.")
    assert cli.main([]) == cli.EXIT_USAGE
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    shown = capsys.readouterr().out
    for option in ("LISTEN", "ADVERTISE", "DATA_DIR", "EPHEMERAL", "CONFIG", "LOG_FORMAT", "LOG_LEVEL"):
        assert f"[ONCELOG_{option}]" in " ".join(shown.split())
    with pytest.raises(SystemExit):
        cli.main(["serve", "--data-dir", "x", "--ephemeral"])


def test_help_imports_little() -> None:
    """Help, and a mistake in the command line, should not cost the broker's start."""
    code = "import sys; sys.argv=['oncelog']; import oncelog.broker.cli; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "oncelog.broker.cli" in loaded
    assert not loaded & {
        "trio",
        "asyncio",
        "logging",
        "json",
        "importlib.metadata",
        "oncelog.broker.node",
        "oncelog.wire",
    }


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how Linux's C library keeps memory")
def test_memory_of_a_batch_is_kept_and_not_mapped_anew_each_time() -> None:
    if "CS_GNU_LIBC_VERSION" not in os.confstr_names:
        pytest.skip("not the GNU C library")
    program = f"""
import resource
from oncelog.broker import cli
async def count_faults(*arguments):
    before = 0
    for turn in range(101):
        blocks = [b"x" * {1024 * 1024} for _ in range(4)]
        del blocks
        before = before or resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
cli._serve_until_signal = count_faults
cli._run(None, [], durable=False)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000, "400 blocks of 256 pages each"
