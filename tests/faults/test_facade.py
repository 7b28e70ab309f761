"""`oncelog.Broker.faults` and `oncelog.AsyncBroker.faults`, with a real client."""

from __future__ import annotations

import asyncio
import pathlib
import socket
from collections.abc import Iterator

import pytest
import trio
from confluent_kafka import Consumer, TopicPartition

import oncelog
from oncelog.wire.framing import encode_request
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

PATIENCE_S = 60


@pytest.fixture
def kafka() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["t"]) as broker:
        yield broker


class Client:
    """Sends ListGroups, and reads what comes."""

    def __init__(self, kafka: oncelog.Broker | oncelog.AsyncBroker, client_id: str = "app") -> None:
        host, port = kafka.bootstrap_servers.split(":")
        self.sock = socket.create_connection((host, int(port)), PATIENCE_S)
        self.client_id = client_id

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self) -> None:
        self.sock.sendall(encode_request(ListGroupsRequest(), 2, 7, self.client_id))

    def receive(self) -> int | None:
        """The error code of the response; None if the broker closed the connection."""
        size = self._read(4)
        if not size:
            return None
        return ListGroupsResponse.decode(self._read(int.from_bytes(size, "big")), 2, 4).error_code

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.sock.recv(size - len(data))):
            data += more
        return data

    def call(self) -> int | None:
        self.send()
        return self.receive()


def test_which_requests_and_what_happens_to_them(kafka: oncelog.Broker) -> None:
    rule = kafka.faults.on("ListGroups", client_id="app").nth(2).error("NOT_COORDINATOR")
    other = kafka.faults.on("*", client_id="other", version="2+").drop_response()
    with Client(kafka) as client:
        assert [client.call() for _ in range(3)] == [0, oncelog.ErrorCode.NOT_COORDINATOR, 0]
    assert (rule.fired, rule.state.matched, rule.wait_fired().fired) == (1, 3, 1)
    with pytest.raises(AssertionError) as caught:
        kafka.faults.assert_all_fired()
    assert str(caught.value) == (
        "rules that never fired:\n"
        "  rule 2 (on: *, client_id: other, version: 2+, drop_response: close): matched 0, fired 0; 3 requests came, "
        "with client_id app; version 2"
    )
    with Client(kafka, "other") as client:
        assert client.call() is None
    kafka.faults.assert_all_fired()
    assert [state.fired for state in kafka.faults.rules] == [1, 1]
    other.remove()
    with pytest.raises(oncelog.NotFoundError, match="there is no rule 2"):
        _ = other.fired
    kafka.faults.clear()
    assert kafka.faults.rules == []


def test_a_held_request_is_released(kafka: oncelog.Broker) -> None:
    rule = kafka.faults.on("ListGroups").hold()
    with Client(kafka) as client:
        client.send()
        assert rule.wait_fired(timeout=PATIENCE_S).held == 1
        rule.release()
        assert client.receive() == 0


def test_a_zombie_and_a_closed_door(kafka: oncelog.Broker) -> None:
    zombie = kafka.faults.pause("app")
    with Client(kafka) as client, Client(kafka, "other") as other:
        client.send()
        assert other.call() == 0
        zombie.wait_fired(timeout=PATIENCE_S)
        with kafka.faults.refuse_connections() as refusing, Client(kafka) as late:
            assert late.receive() is None
            assert refusing.fired == 1
        with Client(kafka, "other") as late:
            assert late.call() == 0
        zombie.release()
        assert client.receive() == 0


def test_what_makes_no_sense_changes_nothing(kafka: oncelog.Broker, tmp_path: pathlib.Path) -> None:
    faults = kafka.faults
    with pytest.raises(oncelog.InvalidArgumentError, match="did you mean EndTxn"):
        faults.on("EndTx").hold()
    with pytest.raises(oncelog.InvalidArgumentError, match="on is an empty list"):
        faults.on().hold()
    with pytest.raises(oncelog.InvalidArgumentError, match="nth and first exclude each other"):
        faults.on("EndTxn").nth(1).first(2).hold()
    with pytest.raises(oncelog.InvalidArgumentError, match="topic 'u' does not exist"):
        faults.on("Produce", topic=["t", "u"]).error(oncelog.ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(oncelog.InvalidArgumentError, match="delay_ms is a number of milliseconds, not '1'"):
        faults.on("Produce").delay("1")  # type: ignore[arg-type]
    file = tmp_path / "rules.toml"
    file.write_text('[[rules]]\non = "Fetch"\nhold = true\n[[rules]]\non = "Fetch"\nhold = false\n')
    with pytest.raises(oncelog.InvalidArgumentError, match=r"rules\.toml, line 6, rule 2: hold is true"):
        faults.load(file)
    assert faults.rules == []
    file.write_text(file.read_text().replace("false", "true"))
    assert [rule.fired for rule in faults.load(file)] == [0, 0]


def test_rules_outlive_a_restart_and_not_a_reset(kafka: oncelog.Broker) -> None:
    kafka.faults.on("ListGroups").nth(1).error("NOT_COORDINATOR")
    kafka.stop()
    later = kafka.faults.on("ListGroups").nth(2).error("COORDINATOR_NOT_AVAILABLE")
    kafka.start()
    with Client(kafka) as client:
        assert [client.call() for _ in range(3)] == [16, 15, 0]
    kafka.kill()
    kafka.start()
    assert later.fired == 1
    kafka.reset()
    assert kafka.faults.rules == []


def test_a_wait_in_vain_tells_what_was_seen(kafka: oncelog.Broker) -> None:
    rule = kafka.faults.on("ListGroups", client_id="app").close()
    with Client(kafka, "other") as client:
        assert client.call() == 0
    with pytest.raises(
        oncelog.WaitTimeoutError, match=r"after 0\.01 s, fired less than 2 times: rule 1 .*fired 0"
    ):
        rule.wait_fired(2, timeout=0.01)


def test_what_a_rule_saw_that_its_filters_did_not_let_pass() -> None:
    with oncelog.Broker(topics=["orders", "order"], requests_kept=0) as kafka:
        on = kafka.faults.on
        misspelt = on("OffsetCommit", "OffsetFetch", group="biling", topic="order").close()
        in_vain = on("EndTxn", transactional_id="app").close()
        crash = kafka.faults.crash_at("before offsets", group="biling")
        matched = on("OffsetCommit", group="billing").nth(100).close()
        for number in range(12):
            kafka.group(f"other-{number}").commit({"orders": {0: 1}})
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing"})
        for _ in range(2):
            consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        consumer.close()
        assert misspelt.state.seen == {"group": ("billing",), "topic": ("orders",)}
        assert str(misspelt.state).endswith("fired 0; 2 requests came, with topic orders; group billing")
        assert str(in_vain.state).endswith("fired 0; no such request came")
        assert str(matched.state).endswith("matched 2, fired 0")
        groups = ", ".join(f"other-{number}" for number in range(10))
        assert str(crash.state).endswith(f"fired 0; 14 steps came, with group {groups}")


async def use_async() -> None:
    async with oncelog.AsyncBroker() as kafka:
        rule = await kafka.faults.on("ListGroups").first(1).error("NOT_COORDINATOR")
        with Client(kafka) as client:
            assert [client.call(), client.call()] == [16, 0]
        assert await rule.fired == 1
        async with await kafka.faults.on("ListGroups").hold() as held:
            assert (await held.state).held == 0
        assert [state.id for state in await kafka.faults.rules] == [rule.id]
        await kafka.faults.assert_all_fired()


def test_with_asyncio_and_trio() -> None:
    asyncio.run(use_async())
    trio.run(use_async)


@pytest.mark.slow
def test_a_rule_state_passes_between_processes() -> None:
    with oncelog.Broker(process=True) as kafka:
        rule = kafka.faults.on("ListGroups").with_probability(1, seed=3).error("NOT_COORDINATOR")
        with Client(kafka) as client:
            assert client.call() == 16
        assert rule.state == oncelog.RuleState(
            id=rule.id,
            rule={},
            text="on: ListGroups, with_probability: 1, seed: 3, error: NOT_COORDINATOR",
            matched=1,
            fired=1,
            held=0,
            is_released=False,
            seed=3,
            notes=(),
        )


@pytest.mark.parametrize("end", ["reset", "stop", "kill", "close"])
def test_the_end_of_a_broker_ends_what_is_held_and_what_hangs(end: str) -> None:
    with oncelog.Broker() as kafka:
        held = kafka.faults.on("ListGroups").nth(1).hold()
        hanging = kafka.faults.on("ListGroups").nth(2).drop_response("hang")
        with Client(kafka) as first, Client(kafka) as second:
            for client, rule in ((first, held), (second, hanging)):
                client.send()
                rule.wait_fired(timeout=PATIENCE_S)
            getattr(kafka, end)()
            assert (first.receive(), second.receive()) == (None, None)
        if end == "reset":
            assert kafka.faults.rules == []
        elif end != "close":
            assert held.state.held == 0


def test_a_rule_without_its_last_word_is_a_warning(kafka: oncelog.Broker) -> None:
    with pytest.warns(RuntimeWarning, match=r"does nothing: \{'on': \['EndTxn'\], 'nth': 2\}"):
        kafka.faults.on("EndTxn").nth(2)
    assert kafka.faults.rules == []
