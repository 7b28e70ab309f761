"""Options, variables and configuration files of the command, and its error messages."""

import importlib.metadata
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from oncelog.broker.command import cli
from oncelog.broker.command.command_config import KEY_OF_OPTION, configuration
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.options import parse_arguments
from oncelog.broker.security.acl_text import parse_acls
from oncelog.broker.security.user_options import parse_users
from tests.common.oncelog_process import serve
from tests.harness.log_lines import lines

__all__ = ["lines", "serve"]  # fixtures


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run ``oncelog serve`` in this process; it must fail. Returns the error line."""
    for name in list(os.environ):
        if name.startswith(("KAFKA_", "ONCELOG_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(cli, "run", lambda *_, **__: pytest.fail("it would have served"))

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
    assert refused("-c", "num.partition=3") == (
        "Unknown configuration num.partition (value 3); did you mean num.partitions? [from -c]"
    )
    path = tmp_path / "server.properties"
    path.write_text("# mine\n\nnum.partition=3\n")
    assert refused("--config", str(path)) == (
        f"Unknown configuration num.partition (value 3); did you mean num.partitions? [from {path}:3]"
    )
    assert (
        refused(ONCELOG_LISTN="here")
        == "unknown environment variable ONCELOG_LISTN; did you mean ONCELOG_LISTEN?"
    )


def test_every_error_is_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=many\nlisteners=FOO://a:1,BAR://b:2\nauthorizer.class.name=Mine\n")
    monkeypatch.setenv("ONCELOG_WORDS", "1")
    monkeypatch.setenv("ONCELOG_EPHEMERAL", "perhaps")
    monkeypatch.setenv("KAFKA_NUM_IO_TREADS", "1")
    assert cli.main(["serve", "-c", "foo=1", "--config", str(path)]) == cli.EXIT_USAGE
    assert capsys.readouterr().err.splitlines() == [
        "oncelog: unknown environment variable ONCELOG_WORDS; see oncelog --help",
        "oncelog: ONCELOG_EPHEMERAL=perhaps: expected true or false",
        f"oncelog: Invalid value many for configuration num.partitions: Not a number of type INT [from {path}:1]",
        "oncelog: Unknown configuration foo (value 1) [from -c]",
        "oncelog: authorizer.class.name=Mine: oncelog has Kafka's own authorizer only: use "
        f"org.apache.kafka.metadata.authorizer.StandardAuthorizer, or leave it empty [from {path}:3]",
        "oncelog: listeners=FOO://a:1,BAR://b:2: No security protocol defined for listener FOO: "
        f"listener.security.protocol.map=FOO:PLAINTEXT defines one [from {path}:2]",
        "oncelog: listeners=FOO://a:1,BAR://b:2: No security protocol defined for listener BAR: "
        f"listener.security.protocol.map=BAR:PLAINTEXT defines one [from {path}:2]",
    ]


def test_variables_of_kubernetes_for_a_service_named_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    service = {
        "ONCELOG_SERVICE_HOST": "10.96.0.17",
        "ONCELOG_SERVICE_PORT_CLIENT": "9092",
        "ONCELOG_PORT": "tcp://10.96.0.17:9092",
        "ONCELOG_PORT_9092_TCP_ADDR": "10.96.0.17",
    }
    assert chosen(monkeypatch, **service)["listen"] == "PLAINTEXT://127.0.0.1:9092"


def test_a_malformed_value(refused: Callable[..., str]) -> None:
    assert refused("-c", "num.partitions=many") == (
        "Invalid value many for configuration num.partitions: Not a number of type INT [from -c]"
    )
    assert refused("-c", "num.partitions") == "-c num.partitions: expected key=value"
    assert refused(ONCELOG_EPHEMERAL="perhaps") == "ONCELOG_EPHEMERAL=perhaps: expected true or false"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--listen", "host:port"), "--listen=host:port: expected HOST:PORT"),
        (("--listen", "host:"), "--listen=host:: expected HOST:PORT"),
        (("--listen", "host:99999"), "--listen=host:99999: expected a port from 0 to 65535"),
        (("--listen", "::1"), "--listen=::1: an IPv6 address stands in brackets, as in [::1]:9092"),
        (("--listen", "70000"), "--listen=70000: expected a port from 0 to 65535"),
        (("--port", "http"), "--port=http: expected a number from 0 to 65535"),
        (("--port", "-1"), "--port=-1: expected a number from 0 to 65535"),
        (("--port", "tcp://10.0.0.1:1"), "--port=tcp://10.0.0.1:1: expected a number from 0 to 65535"),
        (("--port", "65536"), "--port=65536: expected a port from 0 to 65535"),
        (("--advertise", "9092"), "--advertise=9092: expected HOST:PORT"),
        (("--port", "1", "--listen", "host:1"), "--port and --listen exclude each other"),
        (("--data-dir", "x", "--ephemeral"), "--data-dir and --ephemeral exclude each other"),
        (("--data-dir", "x", "--memory"), "--data-dir and --memory exclude each other"),
        (("--ephemeral", "--memory"), "--ephemeral and --memory exclude each other"),
        (("--control", "here:http"), "--control=here:http: expected HOST:PORT"),
        (("--control", "::1"), "--control=::1: an IPv6 address stands in brackets, as in [::1]:9092"),
        (
            ("--control", "0.0.0.0:9093"),
            "--control=0.0.0.0:9093: others can reach this address, so the control API needs a token there: "
            "--control-token-file FILE",
        ),
        (
            ("--control", ":9093"),
            "--control=:9093: others can reach this address, so the control API needs a token there: "
            "--control-token-file FILE",
        ),
        (
            ("--control", "9093", "--control-token-file", "/nowhere/token"),
            "cannot read the token /nowhere/token: No such file or directory",
        ),
        (
            ("--control", "9093", "--control-token-file", "/dev/null"),
            "--control-token-file=/dev/null: expected a token: one line of ASCII characters without spaces",
        ),
        (("--control-token-file", "x"), "--control-token-file needs --control"),
        (("--snapshot-bytes-max", "1"), "--snapshot-bytes-max needs --from-snapshot"),
        (
            ("--from-snapshot", "x", "--snapshot-bytes-max", "1GB"),
            "--snapshot-bytes-max=1GB: expected a number of bytes, such as 1073741824",
        ),
        (("--faults", ""), "--faults needs a value"),
        (("--faults", "/nowhere"), "cannot read the rules /nowhere: No such file or directory"),
        (("--faults", "/dev/null"), "/dev/null: a file of rules ends in .json, .toml, .yaml or .yml"),
        (("--port",), "--port needs a value"),
        (("--data-dir", ""), "--data-dir needs a value"),
        (("-c",), "-c needs a value"),
        (("-c", ""), "-c needs a value"),
        (("--ephemeral=yes",), "--ephemeral takes no value"),
        (("--log-format", "xml"), "--log-format=xml: expected human or json"),
        (("--log-level", "loud"), "--log-level=loud: expected debug, info, warning or error"),
    ],
)
def test_a_malformed_option(refused: Callable[..., str], arguments: tuple[str, ...], line: str) -> None:
    assert refused(*arguments) == line


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("--prot", "unknown option --prot; did you mean --port?"),
        ("--prot=9092", "unknown option --prot; did you mean --port?"),
        ("--data_dir=x", "unknown option --data_dir; did you mean --data-dir?"),
        ("--ephemerel", "unknown option --ephemerel; did you mean --ephemeral?"),
        ("--loglevel", "unknown option --loglevel; did you mean --log-level?"),
        ("--override", "unknown option --override; did you mean -c?"),
        ("-p", "unknown option -p; did you mean --port?"),
        ("--xyzzy", "unknown option --xyzzy; see oncelog --help"),
        ("--upstream=a:1", "unknown option --upstream; it is one of oncelog proxy"),
        ("--num.partitions", "unknown option --num.partitions; Kafka's keys are set so: -c num.partitions=VALUE"),
        ("9092", "unknown argument 9092; did you mean --port 9092?"),
        ("server.properties", "unknown argument server.properties; did you mean --config server.properties?"),
        ("num.partitions=3", "unknown argument num.partitions=3; did you mean -c num.partitions=3?"),
        ("xyzzy", "unknown argument xyzzy; see oncelog --help"),
    ],
)  # fmt: skip
def test_a_misspelt_word_gets_a_suggestion(refused: Callable[..., str], word: str, line: str) -> None:
    assert refused(word) == line


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("sreve", "unknown command sreve; did you mean serve?"),
        ("help", "unknown command help; did you mean --help?"),
        ("version", "unknown command version; did you mean --version?"),
        ("topics", "unknown command topics; did you mean --topic?"),
        ("app:a-secret", "unknown command app:…; did you mean --user NAME:PASSWORD?"),
        (
            "ssl.key.password=a-secret",
            "unknown command ssl.key.password=VALUE; did you mean -c ssl.key.password=VALUE?",
        ),
    ],
)
def test_a_misspelt_command_gets_a_suggestion(
    capsys: pytest.CaptureFixture[str], word: str, line: str
) -> None:
    assert cli.main([word]) == cli.EXIT_USAGE
    assert capsys.readouterr() == ("", f"oncelog: {line}\n")


def test_an_unknown_command_is_named_before_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topics", "--list"]) == cli.EXIT_USAGE
    assert capsys.readouterr() == ("", "oncelog: unknown command topics; did you mean --topic?\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--user", "app:my", "secret"),
        ("-c", "ssl.key.password=my", "secret"),
        ("--acl", "User:app", "Read", "topic:orders"),
    ],
)
def test_the_rest_of_a_password_is_not_shown(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert cli.main(list(arguments)) == cli.EXIT_USAGE
    said = "oncelog: an argument too many: a value with spaces needs quotes; see oncelog --help\n"
    assert capsys.readouterr() == ("", said)


def test_a_malformed_log_option(refused: Callable[..., str]) -> None:
    assert refused(ONCELOG_LOG_FORMAT="xml") == "ONCELOG_LOG_FORMAT=xml: expected human or json"


@pytest.mark.parametrize("level", ["WARNING", "Warning", "warning"])
def test_a_log_level_in_any_case(refused: Callable[..., str], level: str) -> None:
    """The level is accepted: the error is about the key."""
    assert refused("-c", "num.partition=3", "--log-level", level).startswith("Unknown configuration ")
    assert refused("-c", "num.partition=3", ONCELOG_LOG_LEVEL=level).startswith("Unknown configuration ")


def test_a_configuration_that_cannot_be_read(refused: Callable[..., str], tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "none")
    assert refused("--config", path) == f"cannot read the configuration {path}: No such file or directory"
    assert (
        refused(ONCELOG_CONFIG=str(tmp_path)) == f"cannot read the configuration {tmp_path}: Is a directory"
    )


def chosen(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> dict[str, object]:
    """What a command line and an environment come to."""
    found: dict[str, object] = {}
    options = parse_arguments(arguments)
    config, listeners = configuration(options, environment, "/scratch")
    found["data"], found["listen"] = config.data_dir, str(listeners[0].bind)
    found["told"], found["partitions"] = str(listeners[0].advertised), config.num_partitions
    return found


def test_precedence_of_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
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


@pytest.mark.parametrize(
    ("listeners", "more"),
    [
        ("SASL_SSL://127.0.0.1:1,PLAINTEXT://127.0.0.1:2", ()),
        ("OWN://127.0.0.1:1", ("-c", "listener.security.protocol.map=OWN:SSL,PLAINTEXT:PLAINTEXT")),
    ],
)
def test_a_port_does_not_open_what_the_file_secures(
    monkeypatch: pytest.MonkeyPatch, listeners: str, more: tuple[str, ...]
) -> None:
    key = ("-c", f"listeners={listeners}", *more)
    for arguments, origin in ((("--port", "5"), "--port"), (("--listen", "5"), "--listen")):
        with pytest.raises(ConfigError, match=f"{origin} would open PLAINTEXT://127.0.0.1:5 in place of"):
            chosen(monkeypatch, *key, *arguments)
    found = chosen(monkeypatch, *key, "--listen", "PLAINTEXT://127.0.0.1:5")
    assert found["listen"] == "PLAINTEXT://127.0.0.1:5"


def test_the_default_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert chosen(monkeypatch)["data"] == "/home/me/.local/share/oncelog"
    assert chosen(monkeypatch, XDG_DATA_HOME="relative/is/ignored")["data"] == "/home/me/.local/share/oncelog"


def test_a_flag_may_name_a_listener_or_several(monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen(monkeypatch, "--listen", "PLAINTEXT://0.0.0.0:1", "--advertise", "[::1]:2")
    assert (found["listen"], found["told"]) == ("PLAINTEXT://0.0.0.0:1", "PLAINTEXT://[::1]:2")


@pytest.mark.parametrize(
    ("option", "text", "listen", "told"),
    [
        ("--port", "0", "PLAINTEXT://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"),
        ("--listen", "9093", "PLAINTEXT://127.0.0.1:9093", "PLAINTEXT://127.0.0.1:9093"),
        ("--listen", ":9093", "PLAINTEXT://:9093", f"PLAINTEXT://{socket.gethostname()}:9093"),
        ("--listen", "kafka.example", "PLAINTEXT://kafka.example:9092", "PLAINTEXT://kafka.example:9092"),
        ("--listen", "[::1]", "PLAINTEXT://[::1]:9092", "PLAINTEXT://[::1]:9092"),
        ("--listen", "[::1]:1", "PLAINTEXT://[::1]:1", "PLAINTEXT://[::1]:1"),
        ("--advertise", "kafka.example", "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://kafka.example:0"),
    ],
)
def test_short_forms_of_addresses(
    monkeypatch: pytest.MonkeyPatch, option: str, text: str, listen: str, told: str
) -> None:
    found = chosen(monkeypatch, option, text)
    assert (found["listen"], found["told"]) == (listen, told)
    variable = {"ONCELOG_" + option.removeprefix("--").upper(): text}
    assert chosen(monkeypatch, **variable) == found


def test_variables_of_kubernetes_for_a_service_named_oncelog_set_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = chosen(monkeypatch, ONCELOG_PORT="tcp://10.0.0.1:9092")
    assert found["listen"] == "PLAINTEXT://127.0.0.1:9092"


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr() == (f"oncelog {importlib.metadata.version('oncelog')}\n", "")
    for arguments in (["--help"], ["-h"], ["serve", "--help"], ["--prot", "--help"]):
        assert cli.main(arguments) == 0
        shown, complaint = capsys.readouterr()
        assert complaint == ""
        flat = " ".join(shown.split())
        for option in (*KEY_OF_OPTION, "config", "log_format", "log_level"):
            assert f"[ONCELOG_{option.upper()}]" in flat
        assert "serve" in flat
        assert max(map(len, shown.splitlines())) <= 120


def test_windows_is_told_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--port", "0"], system="nt") == cli.EXIT_FAILED
    assert capsys.readouterr() == (
        "",
        "oncelog: there is no oncelog for this operating system; on Windows, run it in WSL\n",
    )
    assert cli.main(["--help"], system="nt") == 0


@pytest.mark.parametrize("argument", ["--help", "--version", "--prot"])
def test_help_imports_little(argument: str) -> None:
    """Help, and a mistake in the command line, should not cost the broker's start."""
    code = f"""
import sys
from oncelog.broker.command import cli
from oncelog.broker.command.command_config import KEY_OF_OPTION, configuration
cli.main([{argument!r}])
print("loaded", *sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.splitlines()[-1].split())
    assert "oncelog.broker.command.cli" in loaded
    assert not loaded & {
        "trio",
        "asyncio",
        "logging",
        "json",
        "importlib.metadata",
        "oncelog.broker.config.definitions",
        "oncelog.broker.node.node",
        "oncelog.wire",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--user", "secret"], "--user: expected NAME:PASSWORD"),
        (["--user", ":secret"], "--user: '' is no name of a user"),
        (["--user", "app:"], "--user: the password of app is empty, or no text"),
    ],
)
def test_a_user_that_makes_no_sense(refused: Callable[..., str], arguments: list[str], said: str) -> None:
    assert refused(*arguments) == said


def test_users_need_a_listener_for_them(refused: Callable[..., str]) -> None:
    said = refused("--user", "app:secret", "-c", "listeners=PLAINTEXT://127.0.0.1:0")
    assert said.startswith("--user has no effect: no listener asks for a log-in")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("app Read topic:t", "expected [deny] PRINCIPAL OPERATION RESOURCE[:NAME] [from HOST]"),
        ("User:app Reed topic:t", "Reed is no operation; there are ALL, READ, WRITE, "),
        ("User:app Read queue:t", "queue:t is no resource; there are topic, group, transactional-id"),
        (
            "User:app Write group:g",
            "a group has no Write; it has ALL, READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_",
        ),
        (
            "User:app Read transactional-id:t",
            "a transactional-id has no Read; it has ALL, WRITE, DESCRIBE, TWO_PHASE",
        ),
        ("User:app Read topic:", "The resource's name is empty."),
    ],
)
def test_an_acl_that_makes_no_sense(refused: Callable[..., str], text: str, said: str) -> None:
    assert refused("--acl", text).startswith(f"--acl={text}: {said}")
    assert refused(ONCELOG_ACL=f"User:app All topic:*\n\n{text}").startswith(f"ONCELOG_ACL={text}: {said}")


def test_acls_need_an_authorizer(refused: Callable[..., str]) -> None:
    acl = "User:app All topic:*"
    said = refused("--acl", acl, "-c", "authorizer.class.name=")
    assert said == "--acl has no effect: authorizer.class.name is empty; leave that out"
    assert refused("--acl", acl, "-c", "authorizer.class.name=com.example.Mine").startswith(
        "authorizer.class.name=com.example.Mine: oncelog has Kafka's own authorizer only"
    )
    assert refused("--acl", "") == "--acl needs a value"


def test_an_acl_of_somebody_that_no_client_can_be(lines: list[str], tmp_path: pathlib.Path) -> None:
    users = parse_users(["app:secret"], "--user")
    texts = ["User:app All topic:*", "User:* All topic:*", "User:ANONYMOUS All group:*"]
    options = parse_arguments([word for text in texts for word in ("--acl", text)])
    acls = parse_acls(texts, "--acl")
    configuration(options, {}, str(tmp_path), users, acls)
    assert lines == []
    configuration(options, {}, str(tmp_path), None, acls)
    [line] = lines
    assert line.endswith(
        "--acl of User:app: no listener asks for a log-in, so all clients are User:ANONYMOUS; add --user, or a "
        "listener with SASL or TLS\n"
    )
