"""``oncelog serve --faults``: the process ends itself at a crash point, and the next one goes on."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.common.oncelog_process import Serve, serve
from tests.common.process import free_ports
from tests.control_http.test_serve_control import ask

__all__ = ["serve"]  # a fixture

PATIENCE_S = 60
POINTS = ("before append", "after decision", "after marker", "before response", "after response")


def committed(address: str, count: int) -> list[bytes]:
    """The values that a read_committed consumer reads; it waits for ``count``."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    values: list[bytes] = []
    ended = False
    while len(values) < count or not ended:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        ended = message.error() is not None
        if not ended:
            values.append(message.value() or b"")
    consumer.close()
    return values


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_the_process_kills_itself_and_the_client_goes_on(serve: Serve, tmp_path: Path, point: str) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"rules": [{"crash_at": point, "transactional_id": "app"}]}))
    where = ("--data-dir", str(tmp_path / "data"))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    process = serve(*where, "--listen", address, "--faults", str(rules))
    process.wait_ready()
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
    backoff = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
    transactional = {"transactional.id": "app", "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": address, **transactional, **backoff})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", b"v")
    commit = threading.Thread(target=producer.commit_transaction, args=[PATIENCE_S])
    commit.start()
    assert process.end() == -signal.SIGKILL
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    again = serve(*where, "--listen", address)
    again.wait_ready()
    commit.join()
    assert committed(address, 1) == [b"v"]
    assert again.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_with_a_control_api_only_the_broker_dies(serve: Serve) -> None:
    process = serve("--port", "0", "--control", "0", "--memory")
    ready = process.wait_ready()
    control = ready["control"]
    assert ask(control, "POST", "/topics", {"orders": 1})[0] < 300
    status, rule = ask(control, "POST", "/faults", {"crash_at": "after append", "topic": "orders"})
    assert status < 300, rule
    producer = Producer({"bootstrap.servers": ready["address"], "reconnect.backoff.max.ms": 100})
    producer.produce("orders", b"v")
    producer.poll(0)
    assert ask(control, "POST", f"/faults/{rule['id']}/wait", {"timeout": 50})[0] < 300
    assert ask(control, "GET", "/broker")[1]["is_running"] is False
    assert ask(control, "POST", "/broker/start", {})[0] == 200
    assert producer.flush(PATIENCE_S) == 0
    assert len(ask(control, "GET", "/topics/orders/records")[1]) in (1, 2)  # it is not idempotent
    assert process.end(signal.SIGTERM) == 0
