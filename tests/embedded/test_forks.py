"""A child made by fork beside a broker or a proxy: what its parent closes is closed, whatever the child does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import oncelog
from tests.common.oncelog_process import DEADLINE_S

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

FORKS = 60
FAST = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}
context = multiprocessing.get_context("fork")

Fork = Callable[..., Any]


def descriptors() -> list[str]:
    """What the descriptors of this process are; Linux tells. All epolls have one name, others their own."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # the one that listed them
            continue
    return found


def _child(ask: Callable[..., Any], arguments: tuple[Any, ...], pipe: Any) -> None:
    pipe.send(ask(*arguments))
    pipe.recv()  # nothing comes


@pytest.fixture
def fork() -> Iterator[Fork]:
    """Make a child that lives until the test ends; return what a function, ``os.getpid`` by default, returns in it."""
    with ExitStack() as ends:

        def start(ask: Callable[..., Any] = os.getpid, *arguments: Any) -> Any:
            ours, theirs = context.Pipe()
            child = context.Process(target=_child, args=(ask, arguments, theirs))
            child.start()
            ends.callback(ours.close)
            ends.callback(child.join)
            ends.callback(child.kill)
            theirs.close()
            assert ours.poll(DEADLINE_S), "the child said nothing"
            return ours.recv()

        yield start


def connect(servers: str, authority: str | None = None) -> socket.socket:
    host, port = servers.split(":")
    plain = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
    if authority is None:
        return plain
    return ssl.create_default_context(cadata=authority).wrap_socket(plain, server_hostname=host)


def assert_ended(connection: socket.socket) -> None:
    with suppress(ConnectionResetError):
        assert connection.recv(1) == b""
    connection.close()


def assert_refused(servers: str) -> None:
    with pytest.raises(ConnectionRefusedError):
        connect(servers)


# -- a broker


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
@pytest.mark.parametrize("tls", [False, True])
def test_a_broker_dies_and_comes_back_beside_a_child(
    fork: Fork, tls: bool, process: bool, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with oncelog.Broker(topics=["orders"], tls=tls, process=process, data_dir=data) as kafka:
        producer = Producer({**kafka.client_config(), **FAST})
        producer.produce("orders", b"before")
        assert producer.flush(DEADLINE_S) == 0
        connection = connect(kafka.bootstrap_servers, kafka.client_config().get("ssl.ca.pem"))
        fork()
        fork()
        kafka.kill()
        assert_ended(connection)
        assert_refused(kafka.bootstrap_servers)
        kafka.start()
        producer.produce("orders", b"after")
        assert producer.flush(DEADLINE_S) == 0
        fork()
    assert_refused(kafka.bootstrap_servers)
    with oncelog.Broker(data_dir=data) as again:
        assert [record.value for record in again.topic("orders").records()] == [b"before", b"after"]


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
def test_the_end_of_a_child_ends_no_broker(process: bool) -> None:
    program = (
        "import gc, oncelog, os, sys\n"
        f"kafka = oncelog.Broker(topics=['orders'], process={process})\n"
        "kafka.start()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    for call in kafka.stop, kafka.topic('orders').records, kafka.faults.clear:\n"
        "        try:\n"
        "            call()\n"
        "        except oncelog.NotRunningError as error:\n"
        "            print(error, flush=True)\n"
        "    kafka.close()\n"
        "    del kafka, call\n"
        "    gc.collect()\n"
        "    with oncelog.Broker(topics=['payments']) as own:\n"
        "        print(own.topics, flush=True)\n"
        "    sys.exit()\n"
        "print(os.waitpid(child, 0)[1], kafka.topics)\n"
        "kafka.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stderr == ""
    *refused, own, parents = done.stdout.splitlines()
    assert len(refused) == 3
    assert all("which forked this one" in line and "bootstrap_servers" in line for line in refused)
    assert own == "['payments']"
    assert parents == "0 ['orders']"


@pytest.mark.slow
def test_a_brokers_process_ends_with_its_killed_parent_beside_a_child() -> None:
    program = (
        "import oncelog, os, signal\n"
        "kafka = oncelog.Broker(process=True)\n"
        "kafka.start()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    signal.pause()\n"
        "print(kafka.bootstrap_servers, child, flush=True)\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        servers, child = parent.stdout.readline().split()
        try:
            connection = connect(servers)
            parent.kill()
            assert_ended(connection)
        finally:
            os.kill(int(child), signal.SIGKILL)


def sockets_at(port: int) -> int:
    """Count the sockets of this process that are bound to a port."""
    found = 0
    for number in range(3, 512):
        try:
            copy = os.dup(number)
        except OSError:
            continue
        with ExitStack() as ends:
            try:
                one = ends.enter_context(socket.socket(fileno=copy))
            except OSError:  # it is no socket
                os.close(copy)
                continue
            name = one.getsockname()
            found += isinstance(name, tuple) and name[1] == port
    return found


@pytest.mark.slow
def test_forks_while_clients_connect() -> None:
    """Each child has none of them, at whatever instant it was made."""
    with oncelog.Broker() as kafka:
        port = int(kafka.bootstrap_servers.rpartition(":")[2])
        is_over = threading.Event()

        def come_and_go() -> None:
            while not is_over.is_set():
                connect(kafka.bootstrap_servers).close()

        clients = [threading.Thread(target=come_and_go) for _ in range(3)]
        for client in clients:
            client.start()
        kept = []
        for _ in range(FORKS):
            child = os.fork()
            if not child:
                os._exit(sockets_at(port))
            kept.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        is_over.set()
        for client in clients:
            client.join()
        assert kept == [0] * FORKS
        assert kafka.is_running


# -- a proxy

PRODUCES = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "message.max.bytes": 2_000_000})
for _ in range(20):  # so large that they pass through a kernel pipe
    producer.produce("orders", b"x" * 900_000)
sys.exit(producer.flush(60))
"""


@pytest.mark.slow
def test_a_proxy_dies_and_comes_back_beside_a_child(fork: Fork) -> None:
    with oncelog.Broker(topics=["orders"]) as cluster:
        with oncelog.Proxy(cluster.bootstrap_servers, tls=True) as kafka:
            producer = Producer({**kafka.client_config(), **FAST, "client.id": "app"})
            producer.produce("orders", b"before")
            assert producer.flush(DEADLINE_S) == 0
            connection = connect(kafka.bootstrap_servers, kafka.client_config()["ssl.ca.pem"])
            fork()
            kafka.kill()
            assert_ended(connection)
            assert_refused(kafka.bootstrap_servers)
            kafka.start()
            producer.produce("orders", b"after")
            assert producer.flush(DEADLINE_S) == 0
            fork()
        assert_refused(kafka.bootstrap_servers)
        assert [record.value for record in cluster.topic("orders").records()] == [b"before", b"after"]


def test_a_child_keeps_nothing_of_a_proxy_but_what_is_trios(fork: Fork) -> None:
    """That is an epoll and two pairs of sockets, with which Trio wakes itself."""
    if not sys.platform.startswith("linux"):
        pytest.skip("descriptors are listed by Linux's /proc")
    with oncelog.Broker(topics=["orders"]) as cluster:
        before = descriptors()
        with oncelog.Proxy(cluster.bootstrap_servers, requests_kept=0) as kafka:
            subprocess.run(
                [sys.executable, "-c", PRODUCES, kafka.bootstrap_servers], timeout=DEADLINE_S, check=True
            )
            of_proxy = set(descriptors()) - set(before)
            held = fork(descriptors)
    assert any(target.startswith("pipe:") for target in of_proxy)
    kept = [target.partition(":")[0] for target in held if target in of_proxy]
    assert kept == ["socket"] * 4
    assert held.count("anon_inode:[eventpoll]") - before.count("anon_inode:[eventpoll]") == 1
