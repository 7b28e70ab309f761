"""A client that a test leaves connected to a broker of later tests: who is told, and who is not."""

from __future__ import annotations

import pytest

import oncelog
from tests.pytest_plugin.projects import run, run_with_clients

pytest_plugins = ["pytester"]

ERROR = "--kafka-left-clients=error"
WARN = ("-W", "default::oncelog.LeftClientWarning")
LEFT = "*LeftClientWarning: the test has left"

FIXTURES = """
    import pytest
    from oncelog.pytest_plugin import factories

    shared = factories.kafka_proc(topics=["orders"])
    clean = factories.kafka("shared")
    of_module = factories.kafka(scope="module")
"""

CONNECT = """
    import pytest
    from tests.common.frames import Connection

    left = []

    @pytest.fixture(scope="session", autouse=True)
    def closed_at_the_end():
        yield
        for one in left:
            one.close()

    def connect(kafka, client_id):
        connection = Connection(kafka.bootstrap_servers, client_id)
        left.append(connection)
        connection.call("ApiVersions", 0)
        return connection
"""


@pytest.mark.slow
def test_a_forgotten_consumer(pytester: pytest.Pytester) -> None:
    """It disturbs the next test, which fails and says who is there."""
    pytester.makeconftest(FIXTURES)
    tests = """
        from confluent_kafka import Consumer, Producer
        from kafka import KafkaConsumer

        left = []

        def test_forgets(clean):
            settings = {"bootstrap.servers": clean.bootstrap_servers, "group.id": "billing", "client.id": "app"}
            left.append(Consumer(settings))
            left[-1].subscribe(["orders"])
            clean.group("billing").wait_for(state="Stable", members=1)

        def test_forgets_another(clean):
            left.append(KafkaConsumer(
                "orders", bootstrap_servers=clean.bootstrap_servers, group_id="audit", client_id="auditor"
            ))
            left[-1].partitions_for_topic("orders")  # or kafka-python may wait for ever
            while not left[-1].assignment():
                left[-1].poll(100)

        def test_leaves_a_producer(clean):
            settings = {"bootstrap.servers": clean.bootstrap_servers, "transactional.id": "pay", "client.id": "till"}
            left.append(Producer(settings))
            left[-1].init_transactions(60)

        def test_meets_them(clean):
            clean.wait_for("Heartbeat", client_id="app", error=None)
            settings = {"bootstrap.servers": clean.bootstrap_servers, "transactional.id": "tip", "client.id": "mine"}
            producer = Producer(settings)
            producer.init_transactions(60)
            assert False

        def test_last():
            pass
    """
    result = run_with_clients(
        pytester, tests, "-W", "ignore::DeprecationWarning", passed=4, failed=1, warnings=3
    )
    result.stdout.fnmatch_lines(
        [
            "clients that were there before the test:",
            "    client app: left by *::test_forgets",
            "clients of the test:",
            "    client mine, transactional id tip",
            "*::test_forgets",
            f"{LEFT} client app, group billing, connected to shared, which later tests use: close it in the test, *",
            "*::test_forgets_another",
            f"{LEFT} client auditor, group audit, *",
            "*::test_leaves_a_producer",
            f"{LEFT} client till, transactional id pay, *",
        ],
    )


@pytest.mark.slow
def test_clients_that_end_or_are_kept_on_purpose(pytester: pytest.Pytester) -> None:
    """Clients end with their fixture, or when pytest forgets the values of fixtures and variables. A producer of the
    module connects again after each reset; a consumer with the same client id is still told apart, by its group.
    """
    pytester.makeconftest(FIXTURES)
    tests = """
        import asyncio

        import pytest
        from aiokafka import AIOKafkaProducer
        from confluent_kafka import Consumer, Producer
        from kafka import KafkaConsumer, KafkaProducer

        left = []

        @pytest.fixture(scope="module")
        def producer(shared):
            return Producer({"bootstrap.servers": shared.bootstrap_servers})

        @pytest.fixture
        def own_producer(clean):
            return Producer({"bootstrap.servers": clean.bootstrap_servers, "client.id": "own"})

        @pytest.fixture
        def consumer(clean):
            with KafkaConsumer("orders", bootstrap_servers=clean.bootstrap_servers, group_id="g") as consumer:
                yield consumer

        def write(producer):
            producer.produce("orders", b"coffee")
            assert producer.flush(60) == 0

        def test_first(clean, producer):
            write(producer)

        def test_tidy(clean, own_producer, consumer):
            write(own_producer)
            consumer.poll(100)
            KafkaProducer(bootstrap_servers=clean.bootstrap_servers).close()

            async def main():
                async with AIOKafkaProducer(bootstrap_servers=clean.bootstrap_servers) as producer:
                    await producer.send_and_wait("orders", b"coffee")

            asyncio.run(main())

        def test_whose_variables_are_garbage(clean, own_producer):
            with pytest.raises(ZeroDivisionError) as caught:
                1 / 0
            write(own_producer)

        def test_second(clean, producer):
            write(producer)

        def test_that_fails(clean):
            own = Producer({"bootstrap.servers": clean.bootstrap_servers, "client.id": "of one that fails"})
            write(own)
            assert False

        def test_forgets(clean, producer):
            write(producer)
            left.append(Consumer({"bootstrap.servers": clean.bootstrap_servers, "group.id": "billing"}))
            left[-1].subscribe(["orders"])
            clean.group("billing").wait_for(state="Stable", members=1)

        def test_last():
            pass
    """
    result = run_with_clients(pytester, tests, ERROR, passed=6, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_forgets*", "the test has left client rdkafka, group billing, *"]
    )


def test_each_client_is_told_once(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(FIXTURES)
    tests = f"""{CONNECT}
    def test_leaves_two(clean):
        connect(clean, "a")
        connect(clean, "b")

    def test_where_one_connects_again(clean):
        connect(clean, "a")

    def test_leaves_another(clean):
        connect(clean, "c")
        connect(clean, None)

    def test_closes_its_own(clean):
        connect(clean, "d").close()

    def test_closes_one_whose_end_is_seen_later(clean):
        clean.faults.on("Metadata").delay(ms=200)
        connection = connect(clean, "e")
        connection.send("Metadata", 1, {{"topics": []}})
        connection.close()

    def test_last():
        pass
    """
    result = run(pytester, tests, *WARN, passed=6, warnings=3)
    result.stdout.fnmatch_lines(
        [
            "*::test_leaves_two",
            f"*.py:* {LEFT} client a, connected to shared, *",
            "*def test_leaves_two(clean):",
            f"{LEFT} client b, *",
            "*::test_leaves_another",
            f"{LEFT} client c, *",
        ],
    )
    result.stdout.no_fnmatch_line("*client None*")


def test_what_a_wider_fixture_may_have_is_not_the_tests(pytester: pytest.Pytester) -> None:
    """Also if it knows the broker by another fixture, and connects later in the test for which it was set up."""
    pytester.makeconftest(FIXTURES)
    tests = f"""{CONNECT}
    @pytest.fixture(scope="session")
    def servers(shared):
        return shared

    @pytest.fixture(scope="module")
    def app(servers):
        return lambda: connect(servers, "app")

    @pytest.fixture(scope="module")
    def unconcerned():
        pass

    def test_of_the_servers(clean, servers):
        pass

    def test_first(clean, app):
        app()

    def test_second(clean, app, unconcerned):
        app()
        connect(clean, "own")

    def test_fails(clean):
        connect(clean, "app")
        connect(clean, "own")
        assert False
    """
    result = run(pytester, tests, *WARN, passed=3, failed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "clients that were there before the test:",
            "    client app: there since *::test_first",
            "    client own: left by *::test_second",
            "*::test_second",
            f"{LEFT} client own, *",
        ]
    )
    result.stdout.no_fnmatch_line("clients of the test:")


def test_a_broker_that_ends_with_the_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(FIXTURES)
    tests = f"""{CONNECT}
    def test_of_its_own(kafka):
        connect(kafka, "a")

    def test_that_is_the_last_of_the_module(of_module):
        connect(of_module, "b")
    """
    pytester.makepyfile(test_other="def test_last():\n    pass\n")
    pytester.makepyfile(tests)
    pytester.runpytest_inprocess(ERROR).assert_outcomes(passed=3, warnings=0)


def test_every_kind_of_broker(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        from oncelog.pytest_plugin import factories

        nodes = factories.kafka_proc(nodes=3)
        process = factories.kafka_proc(process=True)
        proxy = factories.kafka_proxy("process", scope="session")
        clean = factories.kafka("process")
        async_clean = factories.async_kafka("clean")
    """)
    tests = f"""{CONNECT}
    def test_nodes(nodes):
        for node_id, node in nodes.nodes.items():
            connection = Connection(node.info.address, f"of {{node_id}}")
            left.append(connection)
            connection.call("ApiVersions", 0)

    def test_asynchronous(async_clean):
        connect(async_clean, "app")

    def test_proxy(proxy):
        proxy.topics
        connect(proxy, "through")

    def test_closed(nodes):
        nodes.close()

    def test_last():
        pass
    """
    result = run(pytester, tests, *WARN, passed=5, warnings=5)
    result.stdout.fnmatch_lines(
        [
            f"{LEFT} client of 1, connected to nodes, *",
            f"{LEFT} client of 2, connected to nodes, *",
            f"{LEFT} client of 3, connected to nodes, *",
            f"{LEFT} client app, connected to process, *",
            f"{LEFT} client through, connected to proxy, *",
        ],
    )
    result.stdout.no_fnmatch_line("*client oncelog-proxy*")


def test_a_cluster_tells_nothing_without_a_proxy(pytester: pytest.Pytester) -> None:
    tests = f"""{CONNECT}
    def test_it(kafka_noproc):
        connect(kafka_noproc, "app")

    def test_last():
        pass
    """
    with oncelog.Broker() as elsewhere:
        at = f"--kafka-bootstrap-servers={elsewhere.bootstrap_servers}"
        run(pytester, tests, at, passed=2, warnings=0)
        result = run(pytester, tests, at, "--kafka-through-proxy", *WARN, passed=2, warnings=1)
    result.stdout.fnmatch_lines(f"{LEFT} client app, connected to kafka_noproc, *")


LEAVING = f"""{CONNECT}
    def test_it(kafka_proc):
        connect(kafka_proc, "app")

    def test_last():
        pass
"""


@pytest.mark.parametrize(
    ("arguments", "outcomes"),
    [
        ([*WARN], {"warnings": 1}),
        (["-o", "kafka_left_clients=error"], {"errors": 1}),
        (["-o", "kafka_left_clients=error", "--kafka-left-clients=warn", *WARN], {"warnings": 1}),
        (["--kafka-left-clients=ignore"], {"warnings": 0}),
        (["-W", "error"], {"errors": 1}),
        (
            ["-W", "error", "-W", "ignore:the test has left client app:oncelog.LeftClientWarning"],
            {"warnings": 0},
        ),
        (
            ["-W", "error", "-W", "ignore:the test has left client other:oncelog.LeftClientWarning"],
            {"errors": 1},
        ),
    ],
)
def test_the_setting(pytester: pytest.Pytester, arguments: list[str], outcomes: dict[str, int]) -> None:
    result = run(pytester, LEAVING, *arguments, passed=2, **{"warnings": 0, **outcomes})
    if "errors" in outcomes:
        result.stdout.fnmatch_lines(["*ERROR at teardown of test_it*", "the test has left client app, *"])


def test_another_word(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--kafka-left-clients=fail")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*--kafka-left-clients: fail: expected error, warn or ignore*")
