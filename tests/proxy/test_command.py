"""`oncelog proxy` as a process: it passes requests on, stops, and prints one line if it cannot start."""

import pathlib
import signal
import socket
from collections.abc import Sequence

import pytest

from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.options import UsageError
from oncelog.broker.proxy.options import parse_proxy_arguments
from oncelog.broker.proxy.settings import ProxySettings, proxy_settings
from tests.common.frames import Connection
from tests.common.oncelog_process import Serve, serve
from tests.common.process import free_ports

__all__ = ["serve"]  # a fixture


def settings(*arguments: str, **environment: str) -> ProxySettings:
    return proxy_settings(parse_proxy_arguments(arguments), environment, lambda: "here")[0]


@pytest.mark.slow
def test_it_serves_and_stops(serve: Serve) -> None:
    broker = serve("--listen", "127.0.0.1:0", "--memory").wait_ready()
    process = serve("--upstream", broker["address"], "--listen", "127.0.0.1:0", subcommand="proxy")
    ready = process.wait_ready()
    assert list(ready) == ["address", "upstream", "cluster.id", "nodes"]
    assert (ready["upstream"], ready["cluster.id"]) == (broker["address"], broker["cluster.id"])
    with Connection(ready["address"]) as connection:
        [row] = connection.call("Metadata", 12, {"topics": None})["brokers"]
    assert ready["nodes"] == f"1@{row['host']}:{row['port']}"
    with Connection(f"{row['host']}:{row['port']}") as connection:
        assert connection.call("ApiVersions", 0)["error_code"] == 0
    assert process.end(signal.SIGTERM) == 0
    assert process.popen.stdout is not None
    assert process.popen.stdout.read() == ""
    assert "Traceback" not in process.stderr


@pytest.mark.slow
def test_what_it_keeps(serve: Serve, tmp_path: pathlib.Path) -> None:
    kept = tmp_path / "kept"
    broker = serve("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    upstream = broker.wait_ready()["address"]
    options = ["--upstream", upstream, "--listen", "127.0.0.1:0", "--user", "app:app-secret"]
    process = serve(*options, "--data-dir", str(kept), subcommand="proxy")
    assert process.wait_ready()["data.dir"] == str(kept)
    assert sorted(path.name for path in kept.iterdir()) == [
        ".lock",
        "__cluster_metadata-0",
        "bootstrap.checkpoint",
        "meta.properties",
    ]
    code, error = refusal(serve, *options, "--data-dir", str(kept))
    assert (code, error) == (1, f"oncelog: the data directory {kept} is in use by another process")
    assert process.end(signal.SIGTERM) == 0
    process = serve(*options, subcommand="proxy", ONCELOG_DATA_DIR=str(kept))
    assert process.wait_ready()["data.dir"] == str(kept)
    assert process.end(signal.SIGTERM) == 0
    assert broker.end(signal.SIGTERM) == 0
    other = serve("--listen", "127.0.0.1:0", "--memory").wait_ready()["address"]
    code, error = refusal(serve, "--upstream", other, *options[2:], "--data-dir", str(tmp_path / "data"))
    assert (code, error) == (
        1,
        f"oncelog: {tmp_path}/data/meta.properties is of a broker: a proxy needs a data directory of its own",
    )
    broker = serve("--listen", "127.0.0.1:0", "--data-dir", str(kept))
    assert (broker.end(), f"{kept}/meta.properties is of a proxy" in broker.stderr) == (1, True)


@pytest.mark.slow
def test_two_listeners_have_node_ports_each(serve: Serve) -> None:
    broker = serve("--listen", "127.0.0.1:0", "--memory").wait_ready()
    process = serve(
        "--upstream", broker["address"], "--listen", "ONE://127.0.0.1:0", "--listen",
        "TWO://127.0.0.1:0", "-c", "listener.security.protocol.map=ONE:PLAINTEXT,TWO:PLAINTEXT",
        subcommand="proxy",
    )  # fmt: skip
    told = set()
    for listener in process.wait_ready()["listeners"].split(","):
        with Connection(listener.partition("://")[2]) as connection:
            [row] = connection.call("Metadata", 12, {"topics": None})["brokers"]
            told.add(row["port"])
    assert len(told) == 2


def refusal(serve: Serve, *arguments: str) -> tuple[int, str]:
    process = serve(*arguments, subcommand="proxy")
    code = process.end()
    assert "Traceback" not in process.stderr
    errors = [line for line in process.stderr.splitlines() if line.startswith("oncelog: ")]
    assert len(errors) == 1, process.stderr
    return code, errors[0]


@pytest.mark.slow
def test_it_does_not_start(serve: Serve) -> None:
    port = free_ports(1)[0]
    with socket.create_server(("127.0.0.1", port)):
        broker = serve("--listen", "127.0.0.1:0", "--memory").wait_ready()["address"]
        code, error = refusal(serve, "--upstream", broker, "--listen", f"127.0.0.1:{port}")
        assert (code, error) == (
            1,
            f"oncelog: cannot listen on 127.0.0.1:{port}: Address already in use; port 0 takes a free one; --listen is "
            "where clients connect to the proxy, --upstream where the cluster is",
        )
        code, error = refusal(
            serve, "--upstream", broker, "--listen", "127.0.0.1:0", "--node-ports", str(port)
        )
        assert (code, f"cannot listen on 127.0.0.1:{port} for upstream node 1" in error) == (1, True)
    code, error = refusal(serve, "--upstream", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0")
    assert (code, error) == (
        1,
        f"oncelog: the upstream cannot be used: 127.0.0.1:{port}: Connection refused",
    )
    code, error = refusal(serve, "--upstream", f"localhost:{port}", "--listen", f"127.0.0.1:{port}")
    assert (code, "is this proxy itself" in error) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "--upstream is missing"),
        (["--upstream", "a:b"], "expected HOST:PORT"),
        (["--upstream", "http://a:1"], "expected HOST:PORT, without http://"),
        (["--upstream", "a:1;b:2"], "--upstream=a:1;b:2: addresses are separated by commas: a:1,b:2"),
        (["--upstream", "a:1 b:2"], "--upstream=a:1 b:2: addresses are separated by commas: a:1,b:2"),
        (["--upstream", "a:1/"], "--upstream=a:1/: expected HOST:PORT"),
        (["--upstream", "::1:2"], "an IPv6 address stands in brackets"),
        (["--upstream", "a:1", "--node-ports", "x"], "expected the first PORT"),
        (["--upstream", "a:1", "--node-ports", "NAME=1"], "there is no listener NAME"),
        (["--upstream", "a:1", "--listen", "A://a:1,B://a:2", "--node-ports", "1"], "there are several"),
        (["--upstrem", "a:1"], "did you mean --upstream?"),
        (["--bootstrap-server", "a:1"], "unknown option --bootstrap-server; did you mean --upstream?"),
        (["--upstream", "a:1", "--port", "1"], "unknown option --port; did you mean --listen?"),
        (["--upstream", "a:1", "--memory"], "unknown option --memory; it is one of oncelog serve"),
        (["--upstream", "a:1", "-v"], "unknown option -v; see oncelog proxy --help"),
        (["--upstream", "a:1", "--zzz"], "unknown option --zzz; see oncelog proxy --help"),
        (["serve"], "unknown argument serve"),
    ],
)
def test_wrong_options(arguments: Sequence[str], why: str) -> None:
    with pytest.raises(UsageError, match=why.replace("?", r"\?")):
        settings(*arguments, "-c", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:SSL")


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("--upstream-config", "security.protocol=SASL", "security.protocol=SASL: expected one of PLAINTEXT"),
        (
            "--upstream-config",
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=x",
            "sasl.jaas.config: expected MODULE",
        ),
        ("--upstream-config", "sasl.mechanim=PLAIN", "sasl.mechanim: no such key of Kafka's clients"),
        (
            "--upstream-config",
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/no/ca",
            "cannot read /no/ca: No such file",
        ),
        ("--upstream-users", "[app]\nusername = 'x'", "[app]: it needs both of username and password"),
        ("--upstream-users", "[app]\nuser = 'x'", "[app]: unknown key 'user': expected username, password"),
        ("--upstream-users", "", "it has no user: expected a table for each, such as [app]"),
        ("--upstream-users", "app = 1", "expected a table for each user, such as [app]"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(tmp_path: pathlib.Path, option: str, text: str, why: str) -> None:
    path = tmp_path / "given"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        settings("--upstream", "a:1", option, str(path))
    assert str(caught.value).startswith((f"{path}: {why}", f"{path}, {why}"))


def test_settings() -> None:
    found = settings("--upstream", "a:1,[::1]:2", "--upstream", "b")
    assert found.upstream == [("a", 1), ("::1", 2), ("b", 9092)]
    assert found.first_node_ports == {"PLAINTEXT": 9093}
    assert settings("--upstream", "a", "--listen", "h:0").first_node_ports == {}
    assert settings("--upstream", "a", "--node-ports", "0").first_node_ports == {}
    assert settings("--upstream", "a", "--node-ports", "70").first_node_ports == {"PLAINTEXT": 70}
    found = settings(ONCELOG_UPSTREAM="a:1,b:2", ONCELOG_LISTEN="127.0.0.1:1, SSL://127.0.0.1:5")
    assert found.upstream == [("a", 1), ("b", 2)]
    assert found.first_node_ports == {"PLAINTEXT": 2, "SSL": 6}
    told = settings("--upstream", "a", "--advertise", "kafka").listeners[0].advertised
    assert told is not None
    assert (told.host, told.port) == ("kafka", 0)


def test_a_data_directory_needs_something_to_keep() -> None:
    why = "has no effect: no log-ins end at this proxy, and it has no ACLs of its own"
    for more in ((), ("--pass-logins", "--listen", "SASL_PLAINTEXT://127.0.0.1:0")):
        with pytest.raises(ConfigError) as caught:
            settings("--upstream", "a", *more, "--data-dir", "kept")
        assert str(caught.value) == f"--data-dir {why}: add --user or --acl, or leave it out"
    with pytest.raises(UsageError, match="--data-dir needs a value"):
        settings("--upstream", "a", "--user", "app:x", "--data-dir", "")
    options = parse_proxy_arguments(["--upstream", "a"])
    found, warnings = proxy_settings(options, {"ONCELOG_DATA_DIR": "/for/a/broker"}, lambda: "here")
    assert (found.data_dir, warnings) == (None, [f"ONCELOG_DATA_DIR {why}"])
    for option in (("--user", "app:x"), ("--acl", "User:app All topic:*"), ("--listen", "SASL_SSL://h:1")):
        assert settings("--upstream", "a", *option, "--data-dir", "/kept").data_dir == "/kept"


def test_help() -> None:
    assert parse_proxy_arguments(["--help", "--nonsense"]).help
