"""`oncelog.Broker`: its life, and what it leaves behind."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import oncelog
from tests.common.oncelog_process import DEADLINE_S
from tests.harness.process_state import state_of_the_process

Start = Callable[..., oncelog.Broker]


@pytest.fixture(params=["thread", "process"])
def broker(request: pytest.FixtureRequest) -> Start:
    """Makes a broker that runs on a thread, or in a child process."""
    return partial(oncelog.Broker, process=request.param == "process")


def topics_of(bootstrap_servers: str) -> dict[str, int]:
    """The topics and their numbers of partitions, as a stock client sees them."""
    metadata = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=60)
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def test_the_port_that_was_taken_is_told_where_clients_are_told_another(broker: Start) -> None:
    """Somebody's own TCP proxy at the advertised address can lead there."""
    with broker(config={"advertised.listeners": "PLAINTEXT://127.0.0.1:19999"}) as kafka:
        assert kafka.bootstrap_servers == "127.0.0.1:19999"
        assert kafka.listeners == {"PLAINTEXT": f"127.0.0.1:{kafka.port}"}
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{kafka.port}"})
        [node] = admin.list_topics(timeout=60).brokers.values()
        assert f"{node.host}:{node.port}" == "127.0.0.1:19999"


def accepts(bootstrap_servers: str) -> bool:
    host, port = bootstrap_servers.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


def test_topics_are_there_at_the_start(broker: Start) -> None:
    with broker(topics={"orders": 3, "audit": {"partitions": 2}}) as kafka:
        assert topics_of(kafka.bootstrap_servers) == {"orders": 3, "audit": 2}


@pytest.mark.parametrize("on_disk", [False, True])
def test_it_comes_back_at_the_same_address_with_its_data(
    broker: Start, on_disk: bool, tmp_path: Path
) -> None:
    with broker(topics=["orders"], data_dir=tmp_path / "data" if on_disk else None) as kafka:
        address, cluster_id = kafka.bootstrap_servers, kafka.cluster_id
        for end in (kafka.stop, kafka.kill):
            end()
            assert not kafka.is_running
            assert not accepts(address)
            kafka.start()
            assert kafka.is_running
            assert (kafka.bootstrap_servers, kafka.cluster_id) == (address, cluster_id)
            assert topics_of(address) == {"orders": 1}


def test_its_port_is_nobody_elses_while_it_is_stopped() -> None:
    with oncelog.Broker() as kafka:
        port = int(kafka.bootstrap_servers.rpartition(":")[2])
        kafka.stop()
        others = [socket.create_server(("127.0.0.1", 0)) for _ in range(500)]
        assert port not in {other.getsockname()[1] for other in others}
        for other in others:
            other.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_reset_leaves_nothing_but_the_address_and_the_cluster_id(
    broker: Start, on_disk: bool, tmp_path: Path
) -> None:
    with broker(topics={"orders": 3}, data_dir=tmp_path / "data" if on_disk else None) as kafka:
        address, cluster_id = kafka.bootstrap_servers, kafka.cluster_id
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("more", 1)])["more"].result(60)
        kafka.reset()
        assert (kafka.bootstrap_servers, kafka.cluster_id) == (address, cluster_id)
        assert topics_of(address) == {"orders": 3}


def test_data_on_a_disk_stays_after_the_end(tmp_path: Path) -> None:
    with oncelog.Broker(topics=["orders"], data_dir=tmp_path / "data") as kafka:
        cluster_id = kafka.cluster_id
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with oncelog.Broker(data_dir=tmp_path / "data") as kafka:
        assert kafka.cluster_id == cluster_id
        assert topics_of(kafka.bootstrap_servers) == {"orders": 1}


@pytest.mark.slow
def test_nothing_is_left_behind(broker: Start) -> None:
    with broker():
        pass
    gc.collect()  # what other tests left
    before = state_of_the_process()
    with broker() as kafka:
        assert threading.active_count() > 1
        assert accepts(kafka.bootstrap_servers)
    assert state_of_the_process() == before
    with pytest.raises(ZeroDivisionError), broker():
        _ = 1 / 0
    assert state_of_the_process() == before


@pytest.mark.slow
def test_a_forgotten_broker_ends(broker: Start) -> None:
    with broker():
        pass
    gc.collect()  # what other tests left
    before = state_of_the_process()
    kafka = broker()
    kafka.start()
    with warnings.catch_warnings(record=True, action="always"):
        del kafka
        gc.collect()
    assert state_of_the_process() == before


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
@pytest.mark.parametrize("end", ["pass", "raise SystemExit", "kafka.kill()"])
def test_the_interpreter_ends_with_a_broker_that_was_not_closed(end: str, process: bool) -> None:
    program = f"import oncelog\nkafka = oncelog.Broker(process={process})\nkafka.start()\n{end}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_ctrl_c_ends_it() -> None:
    program = (
        "import oncelog, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell lets its background jobs ignore it
        "with oncelog.Broker() as kafka:\n"
        "    signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == -2
    assert b"KeyboardInterrupt" in done.stderr
    assert b"oncelog" not in done.stderr


def test_a_child_made_by_fork_is_refused() -> None:
    program = (
        "import oncelog, os\n"
        "with oncelog.Broker() as kafka:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        try:\n"
        "            kafka.stop()\n"
        "        except oncelog.NotRunningError as error:\n"
        "            print(error, flush=True)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    print(kafka.is_running)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stderr == ""
    refused, runs = done.stdout.splitlines()
    assert "which forked this one" in refused
    assert runs == "True"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"topics": "orders"}, "expected a list of names"),
        ({"config": ["num.partitions=3"]}, "expected a dictionary"),
        ({"users": ["app"]}, "expected a dictionary of passwords"),
        ({"acls": ["User:app"]}, "expected such as Acl("),
        ({"config": {"share.auto.offset.reset": "earliest"}}, "it is a key of groups: kafka-configs"),
        ({"topics": {"orders": "3"}}, "topic orders: '3': expected a number of partitions"),
        ({"topics": {"orders": {"partition": 3}}}, "expected a number of partitions"),
        ({"config": {"message.max.byte": 1}}, "message.max.byte (value 1); did you mean message.max.bytes?"),
        ({"version": 3.9}, 'version=3.9: expected a text, such as "3.9"'),
        ({"port": "9092"}, "port='9092': expected 0"),
        ({"seed": "7"}, "seed='7': expected a number"),
        ({"config": {"message.max.bytes": "many"}}, "message.max.bytes"),
        ({"config": {"log.dirs": "here"}}, "use data_dir="),
        ({"port": 70_000}, "port=70000"),
        ({"requests_kept": -1}, "requests_kept=-1"),
    ],
)
def test_a_wrong_argument_is_named_at_once(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(oncelog.InvalidArgumentError) as raised:
        oncelog.Broker(**arguments)  # type: ignore[arg-type]
    assert said in str(raised.value)


def test_a_topic_that_cannot_be_created_is_named(broker: Start) -> None:
    kafka = broker(topics=["no such name"])
    with pytest.raises(oncelog.InvalidArgumentError, match="topic no such name"):
        kafka.start()
    with pytest.raises(oncelog.NotRunningError, match="was not started"):
        kafka.stop()


def test_a_broker_before_its_start_and_after_its_end_says_so() -> None:
    kafka = oncelog.Broker()
    with pytest.raises(oncelog.NotRunningError, match="was not started"):
        _ = kafka.bootstrap_servers
    with kafka:
        pass
    kafka.close()
    for use in (kafka.start, kafka.stop, kafka.reset):
        with pytest.raises(oncelog.NotRunningError, match="was closed"):
            use()


def test_two_with_one_port(broker: Start) -> None:
    with broker() as kafka:
        port = int(kafka.bootstrap_servers.rpartition(":")[2])
        other = broker(port=port)
        with pytest.raises(oncelog.BrokerFailedError, match=f"127.0.0.1:{port}"):
            other.start()
        assert kafka.is_running


def test_two_with_one_data_directory(tmp_path: Path) -> None:
    with oncelog.Broker(data_dir=tmp_path) as kafka:
        with pytest.raises(oncelog.BrokerFailedError, match="in use by another process"):
            oncelog.Broker(data_dir=tmp_path).start()
        assert kafka.is_running
    assert os.listdir(tmp_path)


def test_a_killed_broker_leaves_its_disk_to_others(tmp_path: Path) -> None:
    gc.collect()  # what other tests left
    before = len(os.listdir("/proc/self/fd"))
    with oncelog.Broker(topics=["orders"], data_dir=tmp_path / "data") as kafka:
        kafka.kill()
        assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        with oncelog.Broker(data_dir=tmp_path / "data") as other:
            assert topics_of(other.bootstrap_servers) == {"orders": 1}
            with pytest.raises(oncelog.BrokerFailedError, match="in use by another process"):
                kafka.start()
        kafka.start()
    assert len(os.listdir("/proc/self/fd")) == before


def test_lose_power_is_refused_on_a_disk(tmp_path: Path) -> None:
    with oncelog.Broker(data_dir=tmp_path) as kafka:
        with pytest.raises(oncelog.UnsupportedError, match="real disk"):
            kafka.lose_power()
        assert kafka.is_running


def test_the_end_of_its_process_is_told() -> None:
    with oncelog.Broker(process=True) as kafka:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        with pytest.raises(oncelog.OncelogError, match="process has ended"):
            all(kafka.is_running for _ in iter(int, 1))


@pytest.mark.slow
def test_its_process_ends_with_its_parent() -> None:
    program = (
        "import oncelog, os, signal\n"
        "kafka = oncelog.Broker(process=True)\n"
        "kafka.start()\n"
        "print(open(f'/proc/self/task/{os.getpid()}/children').read(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=DEADLINE_S, check=False
    )
    assert parent.returncode == -9
    [child] = [int(number) for number in parent.stdout.split()]
    try:
        watched = os.pidfd_open(child)
    except ProcessLookupError:
        return
    assert select.select([watched], [], [], 60)[0]
    os.close(watched)
