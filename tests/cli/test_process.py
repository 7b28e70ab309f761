"""`oncelog` as a process: it serves, stops, and prints one line if it cannot start."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from oncelog.broker.command import cli
from tests.common.frames import Connection
from tests.common.oncelog_process import Process, Serve, address_of, serve

__all__ = ["serve"]  # a fixture


def responses(address: tuple[str, int]) -> bool:
    """Whether a broker at this address responds to ApiVersions without an error."""
    with Connection(f"{address[0]}:{address[1]}") as connection:
        return bool(connection.call("ApiVersions", 0)["error_code"] == 0)


def test_start_serve_and_stop(serve: Serve, tmp_path: pathlib.Path) -> None:
    process = serve("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    ready = process.wait_ready()
    assert list(ready) == ["address", "node.id", "cluster.id", "data.dir"]
    assert (ready["node.id"], ready["data.dir"]) == ("1", str(tmp_path / "data"))
    assert len(ready["cluster.id"]) == 22
    assert responses(address_of(ready))
    assert process.end(signal.SIGTERM) == 0
    assert process.popen.stdout is not None
    assert process.popen.stdout.read() == ""
    assert "Traceback" not in process.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_stop_cleanly_too(
    serve: Serve, tmp_path: pathlib.Path, number: signal.Signals
) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # whoever runs the tests may ignore it
    try:
        process = serve("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    finally:
        signal.signal(number, before)
    process.wait_ready()
    assert process.end(number) == 0
    assert "Traceback" not in process.stderr
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
def test_ctrl_c_before_it_serves_is_no_traceback(serve: Serve, tmp_path: pathlib.Path) -> None:
    (tmp_path / "interrupted.py").write_text("raise KeyboardInterrupt")
    for subcommand, more in (("serve", ["--memory"]), ("proxy", ["--upstream", "127.0.0.1:1"])):
        arguments = ["--listen", "127.0.0.1:0", "--filter", "interrupted:Filter", *more]
        process = serve(*arguments, subcommand=subcommand, PYTHONPATH=str(tmp_path))
        assert (process.end(), process.stderr) == (cli.EXIT_FAILED, "")


def test_a_second_ctrl_c_is_one_also_in_a_task() -> None:
    async def interrupt() -> None:
        raise KeyboardInterrupt

    async def serving() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interrupt)

    with pytest.raises(KeyboardInterrupt):
        cli.run(serving)


def test_a_closed_terminal_does_not_stop_what_was_started_with_nohup(tmp_path: pathlib.Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = Process(tmp_path, "--port", "0", "--ephemeral")
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        ready = process.wait_ready()
        process.popen.send_signal(signal.SIGHUP)
        assert responses(address_of(ready))
        assert process.end(signal.SIGTERM) == 0
        assert "stopping signal=SIGTERM" in process.stderr
    finally:
        process.close()


@pytest.mark.slow
def test_the_cluster_keeps_its_id(serve: Serve, tmp_path: pathlib.Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    first = serve(*arguments, CLUSTER_ID="4L6g3nShT-eMCtK--X86sw")
    assert first.wait_ready()["cluster.id"] == "4L6g3nShT-eMCtK--X86sw"
    assert first.end(signal.SIGTERM) == 0
    assert serve(*arguments).wait_ready()["cluster.id"] == "4L6g3nShT-eMCtK--X86sw"


@pytest.mark.slow
def test_a_second_process_cannot_use_the_data_directory(serve: Serve, tmp_path: pathlib.Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    first = serve(*arguments)
    ready = first.wait_ready()
    second = serve(*arguments)
    assert failed(second) == f"the data directory {tmp_path / 'data'} is in use by another process"
    assert responses(address_of(ready))


def failed(process: Process) -> str:
    """The line with which a process gave up."""
    assert process.end() == cli.EXIT_FAILED
    assert "Traceback" not in process.stderr
    last = process.stderr.splitlines()[-1]
    assert last.startswith("oncelog: ")
    return last.removeprefix("oncelog: ")


def test_a_foreign_folder_is_not_adopted(serve: Serve, tmp_path: pathlib.Path) -> None:
    foreign = tmp_path / "checkout"
    (foreign / ".git").mkdir(parents=True)
    (foreign / "README.md").write_text("mine")
    line = failed(serve("--port", "0", "--data-dir", str(foreign)))
    assert line == (
        f"{foreign} is not empty and not a data directory: it holds .git, README.md, but no meta.properties"
    )
    assert sorted(path.name for path in foreign.iterdir()) == [".git", "README.md"]


@pytest.mark.slow
def test_the_data_directory_is_a_file(serve: Serve, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    why = "there is a file in its place"
    line = failed(serve("--port", "0", "--data-dir", str(path)))
    assert line == f"cannot use the data directory {path}: {why}"
    line = failed(serve("--port", "0", "--data-dir", str(path / "below")))
    assert line == f"cannot use the data directory {path}/below: {why}"


@pytest.mark.slow
def test_unreadable_metadata(serve: Serve, tmp_path: pathlib.Path) -> None:
    arguments = ("--port", "0", "--data-dir", str(tmp_path / "data"))
    first = serve(*arguments)
    first.wait_ready()
    assert first.end(signal.SIGTERM) == 0
    path = tmp_path / "data" / "__cluster_metadata-0" / f"{0:020d}.log"
    path.unlink()
    path.mkdir()
    line = failed(serve(*arguments))
    assert line == f"cannot use the data directory {tmp_path / 'data'}: Is a directory: {path}"


@pytest.mark.slow
def test_a_data_directory_that_is_not_writable(serve: Serve, tmp_path: pathlib.Path) -> None:
    """As on a disk that is full: here a file may have no more bytes than meta.properties."""
    size = 200
    program = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))"
    program += "; import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)"
    program += "; import sys; from oncelog.broker.command import cli; sys.exit(cli.main())"
    data = tmp_path / "data"
    command = [sys.executable, "-c", program, "--port", "0", "--data-dir", str(data), "--log-level", "error"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (cli.EXIT_FAILED, "")
    assert done.stderr.startswith(f"oncelog: cannot use the data directory {data}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("place", ["--ephemeral", "--memory"])  # without and with a broker under control
def test_an_invalid_configuration_is_found_when_listening(serve: Serve, place: str) -> None:
    process = serve(place, "--listen", "SSL://127.0.0.1:0")
    assert process.end() == cli.EXIT_USAGE
    assert process.stderr.splitlines()[-1].startswith(
        "oncelog: listener SSL: ssl.keystore.location is missing: "
    )


@pytest.mark.slow
def test_an_unknown_host(serve: Serve, tmp_path: pathlib.Path) -> None:
    line = failed(serve("--ephemeral", "--listen", "no-such-host.invalid:0"))
    assert line.startswith("cannot listen on no-such-host.invalid:0: ")
    line = failed(serve("--ephemeral", "--listen", "192.0.2.1:0"))
    assert line == "cannot listen on 192.0.2.1:0: Cannot assign requested address"


@pytest.mark.slow
def test_a_port_in_use(serve: Serve, tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve("--listen", f"127.0.0.1:{port}", "--ephemeral")
        assert process.end() == cli.EXIT_FAILED
        last = process.stderr.splitlines()[-1]
        assert (
            last
            == f"oncelog: cannot listen on 127.0.0.1:{port}: Address already in use; port 0 takes a free one"
        )
    assert not list(tmp_path.glob("oncelog-*"))


def test_ephemeral_data_is_gone_afterwards(serve: Serve, tmp_path: pathlib.Path) -> None:
    process = serve("--listen", "127.0.0.1:0", ONCELOG_EPHEMERAL="true")
    directory = pathlib.Path(process.wait_ready()["data.dir"])
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o777 == 0o700
    assert process.end(signal.SIGTERM) == 0
    assert not directory.exists()


def test_the_directory_for_ephemeral_data_cannot_be_made(serve: Serve, tmp_path: pathlib.Path) -> None:
    process = serve("--listen", "127.0.0.1:0", "--ephemeral", TMPDIR=str(tmp_path / "none"))
    assert process.end() == cli.EXIT_FAILED
    assert process.stderr == (
        f"oncelog: cannot make a directory for --ephemeral in {tmp_path}/none: No such file or directory\n"
    )


@pytest.mark.slow
def test_the_next_start_removes_leftovers_of_a_killed_process(serve: Serve, tmp_path: pathlib.Path) -> None:
    killed, alive = serve("--port", "0", "--ephemeral"), serve("--port", "0", "--ephemeral")
    left = pathlib.Path(killed.wait_ready()["data.dir"])
    kept = pathlib.Path(alive.wait_ready()["data.dir"])
    killed.end(signal.SIGKILL)
    assert (left / "meta.properties").exists()
    third = serve("--port", "0", "--ephemeral")
    address = address_of(third.wait_ready())
    assert not left.exists()
    assert f"removed what a killed process had left directory={left}" in third.stderr
    assert (kept / "meta.properties").exists()
    assert responses(address)
    assert [process.end(signal.SIGTERM) for process in (alive, third)] == [0, 0]
    assert not list(tmp_path.glob("oncelog-*"))


def test_the_advertised_address_may_differ(serve: Serve) -> None:
    process = serve("--ephemeral", ONCELOG_LISTEN="127.0.0.1:0", ONCELOG_ADVERTISE="kafka.example:9092")
    assert process.wait_ready()["advertised"] == "kafka.example:9092"


@pytest.mark.slow
def test_the_ready_line_names_every_listener(serve: Serve, tmp_path: pathlib.Path) -> None:
    settings = (
        "-c",
        "listener.security.protocol.map=ONE:PLAINTEXT,TWO:PLAINTEXT",
        "-c",
        "inter.broker.listener.name=ONE",
    )
    two = ("--ephemeral", "--listen", "ONE://127.0.0.1:0,TWO://127.0.0.1:0", *settings)
    first = serve(*two).wait_ready()
    assert list(first) == ["address", "listeners", "node.id", "cluster.id", "data.dir"]
    names, addresses = zip(*(text.split("://") for text in first["listeners"].split(",")), strict=True)
    assert names == ("ONE", "TWO")
    assert addresses[0] == first["address"] != addresses[1]
    for address in addresses:
        assert responses(address_of({"address": address}))
    told = serve(*two, "--advertise", "ONE://127.0.0.1:0,TWO://kafka.example:7").wait_ready()
    assert list(told) == [
        "address", "listeners", "advertised.listeners", "node.id", "cluster.id", "data.dir"
    ]  # fmt: skip
    assert told["advertised.listeners"] == f"ONE://{told['address']},TWO://kafka.example:7"


@pytest.mark.slow
def test_the_word_serve_may_be_left_out(run_oncelog: Serve, tmp_path: pathlib.Path) -> None:
    for arguments in (("--port", "0"), ("serve", "--port", "0"), ("--port", "0", "serve")):
        process = run_oncelog(*arguments, "--log-level", "WARNING")
        ready = process.wait_ready()
        assert ready["address"].startswith("127.0.0.1:")
        assert ready["data.dir"] == str(tmp_path / ".local" / "share" / "oncelog")
        assert responses(address_of(ready))
        assert process.end(signal.SIGTERM) == 0
        assert process.stderr == ""


def test_logs_as_json(serve: Serve) -> None:
    process = serve(
        "--ephemeral", "--listen", "127.0.0.1:0", "--log-format", "json", "-c", "num.io.threads=3"
    )
    process.wait_ready()
    assert process.end(signal.SIGTERM) == 0
    lines = process.stderr.splitlines()
    assert lines
    assert all(line.startswith('{"time": "') for line in lines)
    assert "keys of Kafka's that have no effect in oncelog: num.io.threads [from -c]" in process.stderr


def test_keys_of_several_nodes_have_an_effect(serve: Serve) -> None:
    keys = ("-c", "broker.session.timeout.ms=4000", "-c", "num.io.threads=3")
    for nodes, named in (("1", "broker.session.timeout.ms, num.io.threads"), ("3", "num.io.threads")):
        process = serve("--ephemeral", "--listen", "127.0.0.1:0", "--nodes", nodes, *keys)
        process.wait_ready()
        assert process.end(signal.SIGTERM) == 0
        assert f"keys of Kafka's that have no effect in oncelog: {named} [from -c]" in process.stderr


def test_stdout_is_closed(serve: Serve) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = serve("--ephemeral", "--listen", "127.0.0.1:0", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert process.popen.stderr is not None
    assert any("oncelog.broker.command.cli: ready" in line for line in process.popen.stderr)
    # The line could not be written. The broker serves until a signal stops it.
    assert process.end(signal.SIGTERM) == 0


@pytest.fixture
def run_oncelog(tmp_path: pathlib.Path) -> Iterator[Serve]:
    """Start ``oncelog`` with exactly these arguments. Processes that still run at the end of the test are killed."""
    started: list[Process] = []

    def start(*arguments: str, **more: Any) -> Process:
        started.append(Process(tmp_path, *arguments, **more))
        return started[-1]

    yield start
    for process in started:
        process.close()


def test_variables_without_a_key_are_one_warning(serve: Serve) -> None:
    more = {
        "KAFKA_PASSWORD": "hunter2",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_SECURITY_PROTOCOL": "SSL",
    }
    process = serve("--ephemeral", "--listen", "127.0.0.1:0", **more)
    process.wait_ready()
    assert process.end(signal.SIGTERM) == 0
    (line,) = [line for line in process.stderr.splitlines() if "WARNING" in line]
    assert line.endswith(": KAFKA_PASSWORD, KAFKA_PORT, KAFKA_SECURITY_PROTOCOL")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how Linux's C library keeps memory")
def test_memory_of_a_batch_is_kept_and_not_mapped_anew_each_time() -> None:
    if "CS_GNU_LIBC_VERSION" not in os.confstr_names:
        pytest.skip("not the GNU C library")
    program = f"""
import resource
from oncelog.broker.command import cli
async def count_faults(_):
    before = 0
    for turn in range(101):
        blocks = [b"x" * {1024 * 1024} for _ in range(4)]
        del blocks
        before = before or resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
cli.serve_until_signal = count_faults
cli.run(None)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000, "400 blocks of 256 pages each"
