"""``--kafka-through-proxy``: what tests can do on a Kafka cluster with a proxy before it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import oncelog
from tests.pytest_plugin.projects import run_with_clients

pytest_plugins = ["pytester"]


@pytest.fixture
def elsewhere() -> Iterator[oncelog.Broker]:
    with oncelog.Broker() as kafka:
        yield kafka


def run(
    pytester: pytest.Pytester, tests: str, elsewhere: oncelog.Broker, *arguments: str, **outcomes: int
) -> pytest.RunResult:
    servers = f"--kafka-bootstrap-servers={elsewhere.bootstrap_servers}"
    return run_with_clients(pytester, tests, "-rs", servers, "--kafka-through-proxy", *arguments, **outcomes)


@pytest.mark.slow
def test_rules_requests_and_waits(pytester: pytest.Pytester, elsewhere: oncelog.Broker) -> None:
    tests = """
        import asyncio

        import pytest
        from confluent_kafka import Producer

        def produce(kafka, client_id="app"):
            settings = kafka.client_config()
            producer = Producer({**settings, "client.id": client_id, "retry.backoff.ms": 20})
            producer.produce("orders", b"coffee")
            assert producer.flush(60) == 0

        pytestmark = pytest.mark.kafka(topics=["orders"])

        @pytest.mark.kafka(
            faults=[{"on": "Produce", "first": 2, "error": "NOT_LEADER_OR_FOLLOWER"}], seed=5, requests_kept=10
        )
        def test_of_a_marker(kafka):
            produce(kafka)
            kafka.faults.assert_all_fired()
            assert kafka.seed == 5
            first, *_, last = kafka.requests("Produce", client_id="app")
            assert (first.errors, last.errors) == (("NOT_LEADER_OR_FOLLOWER",), ())
            assert [one.value for one in kafka.topic("orders").records()] == [b"coffee"]

        def test_of_the_body(kafka, async_kafka):
            rule = kafka.faults.on("Produce", topic="orders").nth(1).drop_response()
            produce(kafka)
            assert rule.wait_fired().fired == 1
            assert kafka.wait_for("Produce", topic="orders").client_id == "app"
            assert kafka.is_running
            assert [one.fired for one in asyncio.run(rules(async_kafka))] == [1]

        async def rules(async_kafka):
            return await async_kafka.faults.rules

        def test_that_fails(kafka):
            kafka.faults.on("EndTxn").close()
            produce(kafka, "shop")
            assert 0

        def test_behind_another_proxy(kafka, kafka_proxy):
            kafka_proxy.faults.on("Produce").nth(1).close()
            produce(kafka_proxy)
            kafka_proxy.faults.assert_all_fired()
    """
    result = run(pytester, tests, elsewhere, passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            f"kafka: the cluster at {elsewhere.bootstrap_servers}, through a proxy",
            "*- kafka: <Cluster 127.0.0.1:* -*",
            "last requests*",
            "    Produce v* of shop to node 1 topic=orders: responded",
            "rules that never fired:",
            "    rule 1 (on: EndTxn, close: true): *",
        ]
    )
    result.stdout.no_fnmatch_line("_clock*")
    assert elsewhere.topics == []


@pytest.mark.slow
def test_what_a_proxy_cannot_do_is_skipped_with_the_reason(
    pytester: pytest.Pytester, elsewhere: oncelog.Broker
) -> None:
    pytester.makefile(".toml", crash='[[rules]]\ncrash_at = "before decision"\n')
    tests = """
        import pytest

        @pytest.mark.kafka(faults={"crash_at": "before decision"})
        def test_marker(kafka):
            pass

        @pytest.mark.kafka(faults="crash.toml")
        def test_file(kafka):
            pass

        def test_body(kafka):
            kafka.faults.crash_at("before decision")

        def test_kill(kafka):
            kafka.kill()

        def test_clock(kafka):
            kafka.clock.freeze()

        @pytest.mark.kafka(faults={"on": "Fetch", "close": True}, users={"app": "secret"}, tls=True)
        def test_users(kafka):
            pass
    """
    result = run(pytester, tests, elsewhere, skipped=6)
    at = f"and this is the Kafka cluster at {elsewhere.bootstrap_servers}"
    here = "SKIPPED [[]1[]] test_what_a_proxy_cannot_do_is_skipped_with_the_reason.py:"
    crash = f"crash_at needs a broker of oncelog, {at}: a proxy cannot let the brokers behind it die"
    result.stdout.fnmatch_lines(
        [
            f"{here}3: {crash}",
            f"{here}7: {crash}",
            f"{here}11: {crash}",
            f"{here}14: kafka.kill() needs a broker of oncelog, {at}",
            f"{here}17: kafka.clock needs a broker of oncelog, {at}",
            f"{here}20: needs a broker of oncelog, for tls=, users=: not the cluster at *",
        ]
    )


@pytest.mark.slow
def test_rules_that_never_fired(pytester: pytest.Pytester, elsewhere: oncelog.Broker) -> None:
    tests = """
        def test_it(kafka):
            kafka.faults.on("EndTxn").close()
    """
    result = run(pytester, tests, elsewhere, "--kafka-unfired-rules=error", failed=1)
    result.stdout.fnmatch_lines(
        ["  kafka: rule 1 (on: EndTxn, close: true): matched 0, fired 0; no such request came"]
    )


@pytest.mark.slow
def test_a_wrong_rule_is_an_error_still(pytester: pytest.Pytester, elsewhere: oncelog.Broker) -> None:
    tests = """
        import pytest

        @pytest.mark.kafka(faults={"on": "Fetsh", "close": True})
        def test_it(kafka):
            pass
    """
    result = run(pytester, tests, elsewhere, errors=1)
    result.stdout.fnmatch_lines("kafka: unknown API 'Fetsh': did you mean Fetch?")
