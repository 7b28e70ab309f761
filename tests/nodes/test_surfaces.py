"""Several nodes by the other ways to them: HTTP, a child process, asyncio; and a proxy before them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import oncelog
from tests.common.oncelog_process import Serve, serve
from tests.control_http.test_serve_control import ask

__all__ = ["serve"]  # a fixture

PATIENCE_S = 60


def write(servers: str, topic: str, partition: int = 0) -> None:
    producer, errors = Producer({"bootstrap.servers": servers, "log_level": 0}), list[Any]()
    producer.produce(
        topic, b"v", partition=partition, on_delivery=lambda error, message: errors.append(error)
    )
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None]


@pytest.mark.slow
def test_over_http(serve: Serve, tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text('{"rules": [{"on": "Metadata", "node": 3, "delay_ms": 1}]}')
    process = serve(
        *("--nodes", "3", "--memory", "--port", "0", "--control", "127.0.0.1:0"),
        *("-c", "default.replication.factor=3", "-c", "min.insync.replicas=2"),
        *("--faults", str(rules), "--trace"),
    )
    ready = process.wait_ready()
    control = ready["control"]
    status, nodes = ask(control, "GET", "/nodes")
    assert status == 200
    told = ",".join(f"{one['node_id']}@{one['address']}" for one in nodes)
    assert told == ready["nodes"]
    assert ask(control, "POST", "/topics/t", {"partitions": 1}) == (204, None)
    write(ready["address"], "t")
    [partition] = ask(control, "GET", "/topics/t/partitions")[1]
    leader = partition["leader"]
    other = next(one["node"] for one in partition["replicas"] if one["node"] != leader)
    assert ask(control, "POST", "/topics/t/partitions/0/leader", {"to": other}) == (204, None)
    waited = {"leader": other, "isr": [1, 2, 3]}
    assert ask(control, "POST", "/topics/t/partitions/0/wait", waited)[1]["leader"] == other
    assert len(ask(control, "GET", f"/nodes/{leader}/topics/t/records")[1]) == 1
    assert [one["node"] for one in ask(control, "GET", f"/nodes/{leader}/requests?api=Produce")[1]] == [
        leader
    ]
    assert ask(control, "POST", "/network/cut", {"source": other, "target": "controller"}) == (204, None)
    assert ask(control, "POST", f"/nodes/{other}/expire") == (204, None)
    assert ask(control, "GET", "/topics/t/partitions")[1][0]["leader"] != other
    assert ask(control, "POST", "/network/heal") == (204, None)
    assert ask(control, "POST", "/nodes/1/kill") == (204, None)
    assert not ask(control, "GET", "/nodes")[1][0]["is_running"]
    assert ask(control, "POST", "/nodes/1/start") == (204, None)
    assert ask(control, "POST", "/nodes/1/clock/skew", {"ms": 60_000}) == (204, None)
    now, skewed = (ask(control, "GET", path)[1]["ahead_ms"] for path in ("/clock", "/nodes/1/clock"))
    assert skewed - now == 60_000
    status, error = ask(control, "POST", "/nodes/4/kill")
    assert (status, error["message"]) == (400, "node 4: there are 1, 2, 3")
    assert process.end(signal.SIGTERM) == 0
    assert "Traceback" not in process.stderr
    assert f" node={leader} Produce v" in process.popen.stdout.read()  # type: ignore[union-attr]


def test_one_node_has_none_of_it() -> None:
    with oncelog.Broker(topics=["t"]) as kafka:
        for use in (lambda: kafka.nodes, lambda: kafka.network, lambda: kafka.move_leader("t", 0, to=1)):
            with pytest.raises(oncelog.UnsupportedError, match=r"one node.*nodes=3"):
                use()
        with pytest.raises(oncelog.UnsupportedError, match=r"one node.*nodes=3"):
            kafka.topic("t").wait_for_partition(0, leader=1)


def test_in_a_child_process() -> None:
    with oncelog.Broker(nodes=3, topics=["t"], process=True) as kafka:
        write(kafka.bootstrap_servers, "t")
        leader = kafka.wait_for("Produce").node
        assert leader is not None
        assert leader == kafka.topic("t").partitions[0].leader
        assert kafka.nodes[leader].topic("t").records() == kafka.topic("t").records()
        kafka.nodes[leader].kill()
        kafka.nodes[leader].expire()
        write(kafka.bootstrap_servers, "t")
        assert kafka.clock.advance(minutes=1) == []
        with pytest.raises(oncelog.InvalidArgumentError, match="node 1 has no link to itself"):
            kafka.network.cut(1, 1)


def test_in_asyncio() -> None:
    async def main() -> None:
        async with oncelog.AsyncBroker(nodes={1: {"broker.rack": "a"}, 2: {}}, topics=["t"]) as kafka:
            await kafka.produce("t", b"v")
            assert len(await kafka.nodes[2].topic("t").records()) == 1
            await kafka.nodes[1].clock.skew(ms=1000)
            await kafka.nodes[1].stop()
            assert not await kafka.nodes[1].is_running
            assert (await kafka.topic("t").wait_for_partition(0, leader=2)).leader == 2

    asyncio.run(main())


def test_a_proxy_before_them() -> None:
    with oncelog.Broker(nodes=3, topics={"t": 3}) as kafka, oncelog.Proxy(kafka.bootstrap_servers) as proxy:
        for partition in range(3):
            write(proxy.bootstrap_servers, "t", partition)
        nodes = [one.node for one in proxy.requests("Produce")]
        assert nodes == [one.leader for one in kafka.topic("t").partitions]
        rule = proxy.faults.on("Produce", node=nodes[1]).error("NOT_LEADER_OR_FOLLOWER")
        write(proxy.bootstrap_servers, "t", 0)
        assert rule.fired == 0
        kafka.nodes[nodes[0] or 0].kill()
        kafka.nodes[nodes[0] or 0].expire()
        write(proxy.bootstrap_servers, "t", 2)
