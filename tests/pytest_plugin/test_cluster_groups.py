"""Groups that tests use on a Kafka cluster: deleted after the test, or named in an error of the next one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import oncelog
from tests.pytest_plugin.projects import run_with_clients

pytest_plugins = ["pytester"]


@pytest.fixture
def elsewhere() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(topics=["theirs"]) as kafka:
        yield kafka


def run(
    pytester: pytest.Pytester, tests: str, elsewhere: oncelog.Broker, *arguments: str, **outcomes: int
) -> pytest.RunResult:
    servers = f"--kafka-bootstrap-servers={elsewhere.bootstrap_servers}"
    return run_with_clients(pytester, tests, servers, *arguments, **outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--kafka-through-proxy",)], ids=["direct", "proxied"])
def test_they_are_deleted_with_the_topics(
    pytester: pytest.Pytester, elsewhere: oncelog.Broker, arguments: tuple[str, ...]
) -> None:
    elsewhere.group("of-others").commit({"theirs": {0: 0}})
    tests = """
        import pytest
        from confluent_kafka import Consumer, ShareConsumer

        pytestmark = pytest.mark.kafka(topics=["orders"])

        def read(kafka, commit, **more):
            settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing"}
            consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": commit, **more})
            consumer.subscribe(["orders"])
            kafka.produce("orders", b"coffee")
            message = consumer.poll(60)
            assert (message.offset(), message.value()) == (0, b"coffee")
            consumer.close()

        @pytest.mark.parametrize("commit", [True, False])
        @pytest.mark.parametrize("protocol", ["classic", "consumer"])
        def test_a_consumer(kafka, commit, protocol):
            assert kafka.groups == ["of-others"]
            read(kafka, commit, **{"group.protocol": protocol})
            assert kafka.groups == ["billing", "of-others"]

        def test_the_kits_commit(kafka):
            kafka.group("billing").commit({"orders": {0: 0}})
            kafka.group("of-others").commit({"theirs": {0: 1}})

        def test_a_group_that_reads_no_topic_of_the_test(kafka):
            kafka.group("elsewhere").commit({"theirs": {0: 0}})

        def test_a_share_group(kafka):
            settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing"}
            with ShareConsumer(settings) as consumer:
                consumer.subscribe(["orders"])
                kafka.share_group("billing").wait_for(members=1, timeout=60)
                # Until it fetches: librdkafka's close never returns between the assignment and Metadata.
                while not consumer.poll(0.1):
                    kafka.produce("orders", b"coffee")

        def test_after_all(kafka):
            assert (kafka.groups, kafka.share_groups) == (["of-others"], [])
    """
    run(pytester, tests, elsewhere, *arguments, passed=8)
    assert (elsewhere.groups, elsewhere.share_groups) == (["of-others"], [])
    assert elsewhere.group("of-others").committed == {"theirs": {0: 1}}


@pytest.mark.slow
def test_one_with_members_is_an_error_of_the_next_test_until_they_are_gone(
    pytester: pytest.Pytester, elsewhere: oncelog.Broker
) -> None:
    tests = """
        import pytest
        from confluent_kafka import Consumer

        pytestmark = pytest.mark.kafka(topics=["orders"])
        kept = []

        def test_first(kafka):
            settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing", "client.id": "app"}
            consumer = Consumer(settings)
            consumer.subscribe(["orders"])
            kept.append(consumer)
            while not consumer.assignment():
                consumer.poll(0.1)

        def test_second(kafka):
            pass

        def test_not_on_the_cluster():
            kept.pop().close()

        def test_third(kafka):
            assert kafka.groups == []
    """
    result = run(pytester, tests, elsewhere, passed=3, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at setup of test_second*",
            "kafka: groups of earlier tests cannot be deleted yet, because they have members: billing of "
            "test_one_with_members_is_an_error_of_the_next_test_until_they_are_gone.py::test_first "
            "(client app at 127.0.0.1). Close consumers before *session.timeout.ms",
        ]
    )
    assert elsewhere.groups == []


@pytest.mark.slow
def test_the_end_of_the_run_names_what_stays(pytester: pytest.Pytester, elsewhere: oncelog.Broker) -> None:
    tests = """
        import pytest
        from confluent_kafka import Consumer

        kept = []

        @pytest.mark.kafka(topics=["orders"])
        def test_it(kafka):
            settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing", "client.id": "app"}
            kept.append(Consumer(settings))
            kept[0].subscribe(["orders"])
            while not kept[0].assignment():
                kept[0].poll(0.1)
    """
    result = run(pytester, tests, elsewhere, passed=1)
    result.stdout.fnmatch_lines(
        "kafka: groups of earlier tests cannot be deleted yet, *: billing of *::test_it (client*"
    )
    assert elsewhere.groups == ["billing"]
