"""A client that may alter the broker's configuration names a file of its machine: what no store is holds up nobody."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

import oncelog
from oncelog.broker.seams.tls import FILE_BYTES_MAX
from tests.credentials.test_stores import SERVER

TIMEOUT_S = 20
KEY = "listener.name.own.ssl.keystore.location"


def fifo(folder: pathlib.Path) -> pathlib.Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def large(folder: pathlib.Path) -> pathlib.Path:
    with (folder / "large.pem").open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    return folder / "large.pem"


def directory(folder: pathlib.Path) -> pathlib.Path:
    return folder


@pytest.mark.parametrize(
    ("make", "error"),
    [(fifo, "no regular file"), (large, f"more than {FILE_BYTES_MAX} bytes"), (directory, "no regular file")],
)
def test_a_file_that_is_no_store_is_refused(
    tmp_path: pathlib.Path, make: Callable[[pathlib.Path], pathlib.Path], error: str
) -> None:
    path = make(tmp_path)
    (tmp_path / "server.pem").write_bytes(SERVER.key + SERVER.chain)
    config = {
        "listeners": "PLAIN://127.0.0.1:0,OWN://127.0.0.1:0",
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,OWN:SSL",
        "inter.broker.listener.name": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
    }
    with oncelog.Broker(config=config) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers.split(",")[0]})
        entry = ConfigEntry(KEY, str(path), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        [altered] = admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S).values()
        with pytest.raises(KafkaException, match=error):
            altered.result(TIMEOUT_S)
        assert kafka.is_running
