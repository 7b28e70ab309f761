"""``oncelog certs``: certificates for development that a broker and a client take."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import oncelog
from tests.security.test_tls import shake_hands


def certs(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oncelog", "certs", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, umask=0o022)


def test_a_broker_and_a_client_take_them(tmp_path: Path) -> None:
    made = certs(str(tmp_path), "--client", "app")
    assert (made.returncode, made.stderr) == (0, "")
    assert {path.name: oct(path.stat().st_mode)[-3:] for path in tmp_path.iterdir()} == {
        "ca.pem": "644",
        "server.pem": "600",
        "client.pem": "600",
    }
    config = dict(re.findall(r"-c ([a-z.]+)=(\S+)", made.stdout))
    assert config["ssl.client.auth"] == "requested"
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(tmp_path / "client.pem")
    with oncelog.Broker(config={**config, "listeners": "SSL://127.0.0.1:0"}) as kafka:
        assert shake_hands(kafka, context) == "TLSv1.3"
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.location": str(tmp_path / "client.pem"),
            "ssl.key.location": str(tmp_path / "client.pem"),
        }
        assert AdminClient(client).list_topics(timeout=60).brokers
        for line in made.stdout.splitlines():
            if "location=" in line and "-c " not in line:
                assert os.path.exists(line.split("=")[1]), line


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("mine")
    made = certs(str(tmp_path))
    assert made.returncode == 1
    assert (
        made.stderr
        == f"oncelog: {tmp_path}/server.pem is there already: remove it, or take another directory\n"
    )
    assert os.listdir(tmp_path) == ["server.pem"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = certs(str(tmp_path / "file" / "deeper"))
    assert (made.returncode, made.stdout) == (1, "")
    assert "cannot write to" in made.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "oncelog: the following arguments are required: DIR; see oncelog certs --help"),
        (("a", "b"), "oncelog: unrecognized arguments: b; see oncelog certs --help"),
        (("a", "--name"), "oncelog: --name needs a value; see oncelog certs --help"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line(arguments: tuple[str, ...], line: str) -> None:
    refused = certs(*arguments)
    assert (refused.returncode, refused.stdout, refused.stderr.splitlines()) == (2, "", [line])
