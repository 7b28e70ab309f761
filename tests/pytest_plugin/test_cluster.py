"""The plugin's fixtures on a Kafka cluster: here a broker of oncelog elsewhere; compat_tests has a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import oncelog
from oncelog.broker.control.records import ISOLATION_LEVELS
from oncelog.pytest_plugin import real_cluster

pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[oncelog.Broker]:
    with oncelog.Broker() as kafka:
        yield kafka


def run(
    pytester: pytest.Pytester, tests: str, elsewhere: oncelog.Broker, *arguments: str, **outcomes: int
) -> pytest.RunResult:
    pytester.makepyfile(tests)
    servers = f"--kafka-bootstrap-servers={elsewhere.bootstrap_servers}"
    result = pytester.runpytest_inprocess("-rs", servers, *arguments)
    result.assert_outcomes(**outcomes)
    return result


def test_topics_are_there_for_the_test_and_gone_after_it(
    pytester: pytest.Pytester, elsewhere: oncelog.Broker
) -> None:
    tests = """
        import pytest

        pytestmark = pytest.mark.kafka(topics={"orders": 3})

        def test_one(kafka):
            assert kafka.topics == ["orders"]
            kafka.create_topics(["more"])
            kafka.produce("orders", b"left")

        def test_two(kafka):
            assert kafka.topics == ["orders"]
            assert kafka.topic("orders").records() == []
    """
    run(pytester, tests, elsewhere, passed=2)
    assert elsewhere.topics == []


def test_a_topic_that_it_did_not_create_is_left_alone(
    pytester: pytest.Pytester, elsewhere: oncelog.Broker
) -> None:
    elsewhere.create_topics(["theirs"])
    tests = """
        import pytest

        @pytest.mark.kafka(topics=["theirs"])
        def test_one(kafka):
            pass
    """
    result = run(pytester, tests, elsewhere, errors=1)
    result.stdout.fnmatch_lines("kafka: topic theirs exists in the cluster. *")
    assert elsewhere.topics == ["theirs"]
    elsewhere.reset()


def test_what_a_cluster_cannot_do_is_a_skip_with_the_reason(
    pytester: pytest.Pytester, elsewhere: oncelog.Broker
) -> None:
    tests = """
        import asyncio
        import pytest

        def test_clock(kafka):
            kafka.clock.advance(days=7)

        def test_faults(kafka):
            kafka.faults.on("Produce").close()

        def test_async(async_kafka):
            asyncio.run(async_kafka.wait_for("Produce"))

        def test_reset(kafka_proc):
            kafka_proc.reset()

        @pytest.mark.kafka(config={"message.max.bytes": 1000}, version="3.9")
        def test_config(kafka):
            pass

        @pytest.mark.kafka(faults={"on": "Fetch", "close": True})
        def test_faults_of_a_marker(kafka):
            pass

        def test_user(kafka):
            kafka.client_config(user="app")

        @pytest.mark.kafka(process=True, seed=5)
        def test_nothing_of_that(kafka, kafka_noproc):
            assert kafka.bootstrap_servers == kafka_noproc.bootstrap_servers
            assert kafka.client_config("kafka-python")["bootstrap_servers"] == kafka.bootstrap_servers
    """
    result = run(pytester, tests, elsewhere, skipped=7, passed=1)
    at = elsewhere.bootstrap_servers
    here = "SKIPPED [[]1[]] test_what_a_cluster_cannot_do_is_a_skip_with_the_reason.py:"
    proxy = ", or --kafka-through-proxy"
    result.stdout.fnmatch_lines(
        [
            f"kafka: the cluster at {at}",
            f"{here}4: kafka.clock needs a broker of oncelog, and this is the Kafka cluster at {at}",
            f"{here}7: kafka.faults needs a broker of oncelog{proxy}, and this is the Kafka cluster at {at}",
            f"{here}10: kafka.wait_for() needs a broker of oncelog{proxy}, and *",
            f"{here}13: kafka.reset() needs a broker of oncelog, and *",
            f"{here}16: needs a broker of oncelog, for config=, version=: not the cluster at {at}",
            f"{here}20: needs a broker of oncelog{proxy}, for faults=: not the cluster at {at}",
            f"{here}24: client_config(user=) needs a broker of oncelog",
        ]
    )


def test_a_failed_test(pytester: pytest.Pytester, elsewhere: oncelog.Broker) -> None:
    tests = """
        def test_it(kafka):
            assert 0
    """
    result = run(pytester, tests, elsewhere, failed=1)
    result.stdout.no_fnmatch_line("*seed*")


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("nowhere", "kafka: --kafka-bootstrap-servers=nowhere: expected HOST:PORT,..."),
        ("127.0.0.1:1", "kafka: *127.0.0.1:1*"),
    ],
)
def test_no_cluster(pytester: pytest.Pytester, elsewhere: oncelog.Broker, servers: str, said: str) -> None:
    tests = """
        def test_it(kafka):
            pass
    """
    result = run(pytester, tests, elsewhere, f"--kafka-bootstrap-servers={servers}", errors=1)
    result.stdout.fnmatch_lines(said)


def test_kafka_noproc_without_a_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_it(kafka_noproc):
            pass
    """)
    result = pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "no:hypothesispytest")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("kafka_noproc: no cluster: give --kafka-bootstrap-servers=*")


@pytest.mark.slow
def test_it_sees_what_the_broker_itself_sees(elsewhere: oncelog.Broker) -> None:
    """Records, with aborted and open transactions, offsets, groups."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    cluster = real_cluster.Cluster(elsewhere.bootstrap_servers, {"orders": 2})
    cluster.start()
    servers = {"bootstrap.servers": elsewhere.bootstrap_servers}
    written = cluster.produce("orders", b"one", key=b"k", headers={"a": b"b"}, timestamp=5)
    assert cluster.produce_many("orders", [b"two", (b"k", b"three")])
    assert written in elsewhere.topic("orders").records()
    producer = Producer({**servers, "transactional.id": "app", "transaction.timeout.ms": 900_000})
    producer.init_transactions(60)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
        (b"open", None),
    ):
        producer.begin_transaction()
        producer.produce("orders", value, partition=0)
        producer.flush(60)
        if end is not None:
            end(60)
    for protocol in ("classic", "consumer"):
        settings = {"group.id": protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        # A commit of its own accord might come between the two looks at the group.
        consumer = Consumer({**servers, **settings, "enable.auto.commit": False})
        consumer.subscribe(["orders"])
        assert consumer.poll(60) is not None
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        elsewhere.group(protocol).wait_for(state="Stable", members=1, timeout=60)
        for isolation in ISOLATION_LEVELS:
            ours = elsewhere.group(protocol, isolation=isolation).info
            theirs = cluster.group(protocol, isolation=isolation).info
            assert theirs.members
            assert (theirs.state, theirs.committed, theirs.lag) == (ours.state, ours.committed, ours.lag)
            assert theirs.members[0].assignment == ours.members[0].assignment
        assert cluster.group(protocol).wait_for(members=1, timeout=60).type == protocol
        consumer.close()
    assert cluster.groups == elsewhere.groups
    for isolation in ISOLATION_LEVELS:
        records = cluster.topic("orders").records(isolation=isolation)
        assert records == elsewhere.topic("orders").records(isolation=isolation)
    assert {record.value for record in cluster.topic("orders").records(isolation="read_committed")} == {
        *(b"one", b"two", b"three", b"committed"),
    }
    assert len(cluster.topic("orders").records(limit=2, from_offset=0)) == 2
    assert cluster.topic("orders").info == elsewhere.topic("orders").info
    assert cluster.transactions["app"].state == "Ongoing"
    assert cluster.transactions["app"].partitions == elsewhere.transactions["app"].partitions
    with pytest.raises(
        oncelog.WaitTimeoutError, match="the transaction of app was not Empty in 0 s: it is Ongoing"
    ):
        cluster.transactions["app"].wait_for("Empty", timeout=0)
    with pytest.raises(oncelog.NotFoundError, match="orders"):
        cluster.topic("order").records()
    with pytest.raises(oncelog.WaitTimeoutError, match="has not got 100 records"):
        cluster.topic("orders").wait_for_records(100, timeout=0)
    producer.abort_transaction(60)
    del producer, end  # its threads end
    cluster.close()
    assert elsewhere.topics == []
