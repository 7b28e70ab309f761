"""The pytest plugin in projects of its users: fixtures, settings, mistakes, and what a failed test shows."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

import oncelog
from oncelog.pytest_plugin.settings import KafkaSettings
from tests.common.oncelog_process import DEADLINE_S
from tests.pytest_plugin.projects import run, run_with_clients

pytest_plugins = ["pytester"]


def test_it_is_installed() -> None:
    """If not, this venv is older than pyproject.toml: make lint brings it up to date."""
    assert [point.value for point in entry_points(group="pytest11", name="oncelog")] == [
        "oncelog.pytest_plugin"
    ]


def test_each_test_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    tests = """
        import pytest

        seen = set()

        @pytest.mark.parametrize("n", [1, 2])
        @pytest.mark.kafka(topics=["orders"])
        def test_orders(kafka, n):
            assert kafka.topics == ["orders"]
            kafka.create_topics(["more"])
            assert kafka.cluster_id not in seen
            seen.add(kafka.cluster_id)
    """
    run(pytester, tests, passed=2)


def test_kafka_proc_is_the_sessions(pytester: pytest.Pytester) -> None:
    tests = """
        def test_one(kafka_proc, kafka):
            assert kafka_proc.cluster_id != kafka.cluster_id
            kafka_proc.create_topics({"left": 1})

        def test_two(kafka_proc):
            assert kafka_proc.topics == ["left"]
    """
    run(pytester, tests, passed=2)


def test_a_shared_broker_is_reset_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        from oncelog.pytest_plugin import factories

        app_kafka = factories.kafka_proc(topics={"orders": 3})
        clean_kafka = factories.kafka("app_kafka", topics=["audit"])
    """)
    tests = """
        import pytest

        def test_one(app_kafka, clean_kafka):
            assert clean_kafka is app_kafka
            assert clean_kafka.topics == ["audit", "orders"]
            clean_kafka.create_topics(["left"])

        @pytest.mark.kafka(topics=["more"])
        def test_two(clean_kafka):
            assert clean_kafka.topics == ["audit", "more", "orders"]

        @pytest.mark.kafka(config={"message.max.bytes": 1})
        def test_three(clean_kafka):
            pass
    """
    result = run(pytester, tests, passed=2, errors=1)
    result.stdout.fnmatch_lines("*clean_kafka: config: the broker of app_kafka is shared*")


def test_a_wider_scope(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        from oncelog.pytest_plugin import factories

        kafka = factories.kafka(scope="module")
    """)
    tests = """
        import pytest

        pytestmark = pytest.mark.kafka(topics=["orders"])

        def test_one(kafka):
            kafka.create_topics(["left"])

        def test_two(kafka):
            assert kafka.topics == ["left", "orders"]
    """
    run(pytester, tests, passed=2)


def test_settings_are_joined_and_the_nearest_wins(pytester: pytest.Pytester) -> None:
    ini = pytester.path / "tox.ini"
    ini.write_text(f"{ini.read_text()}\nkafka_topics =\n  ini\n  line\nkafka_seed = 5\n")
    pytester.makeconftest("""
        from oncelog.pytest_plugin import factories

        kafka = factories.kafka(topics={"line": 4, "module": 4})
    """)
    tests = """
        import pytest

        pytestmark = pytest.mark.kafka(topics={"module": 5, "test": 5})

        @pytest.mark.kafka(topics={"test": 6})
        def test_it(kafka):
            partitions = {name: len(kafka.topic(name).info.partitions) for name in kafka.topics}
            assert partitions == {"ini": 1, "line": 4, "module": 5, "test": 6}
            assert kafka.topic("ini").config["max.message.bytes"] == "2000000"
            assert kafka.seed == 7
    """
    options = ("--kafka-topic=line:3", "--kafka-config=message.max.bytes=2000000", "--kafka-seed=7")
    run(pytester, tests, *options, passed=1)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--kafka-config=message.max.bytes", "*--kafka-config: message.max.bytes: expected KEY=VALUE*"),
        ("--kafka-topic=orders:many", "*--kafka-topic: orders:many: expected NAME or NAME:PARTITIONS*"),
        ("--kafka-seed=x", "*--kafka-seed: x: expected a number*"),
    ],
)
def test_a_wrong_option_ends_the_run_before_the_first_test(
    pytester: pytest.Pytester, option: str, said: str
) -> None:
    result = pytester.runpytest_inprocess(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(said)


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (
            "topic=['orders']",
            "@pytest.mark.kafka: no setting 'topic': did you mean topics? expected topics, config, *",
        ),
        ("['orders']", "@pytest.mark.kafka takes keyword arguments*"),
        ("topics='orders'", "@pytest.mark.kafka: topics='orders': expected a list of names*"),
        ("topics={'orders': 'many'}", "kafka: topic orders: 'many': expected a number of partitions*"),
        ("topics=['no such name']", "kafka: topic no such name: Topic name is invalid*"),
        ("config={'message.max.byte': 1}", "kafka: Unknown configuration message.max.byte*"),
    ],
)
def test_a_wrong_marker_is_one_line(pytester: pytest.Pytester, marker: str, said: str) -> None:
    tests = f"""
        import pytest

        @pytest.mark.kafka({marker})
        def test_it(kafka):
            pass
    """
    result = run(pytester, tests, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at setup of test_it*", said, "*short test summary*"])
    result.stdout.no_fnmatch_line("*During handling*")


def test_a_fixture_that_is_no_broker_is_named(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "from oncelog.pytest_plugin import factories\nmine = factories.async_kafka('tmp_path')"
    )
    result = run(pytester, "def test_it(mine): pass", errors=1)
    result.stdout.fnmatch_lines("mine: the fixture tmp_path is no oncelog.Broker, but *Path(*")


def test_the_async_kafka_has_the_certificates_and_tokens_of_the_broker(pytester: pytest.Pytester) -> None:
    tests = """
        import pytest

        @pytest.mark.kafka(tls="expired", oauth=True)
        def test_it(kafka, async_kafka):
            authority = kafka.client_config(token="shop")["ssl.ca.pem"]
            assert async_kafka.client_config(token="shop", certificate="shop")["ssl.ca.pem"] == authority
    """
    run(pytester, tests, passed=1)


def test_a_broker_after_its_end(pytester: pytest.Pytester) -> None:
    tests = """
        kept = []

        def test_one(kafka):
            kept.append(kafka)

        def test_two():
            kept[0].topics
    """
    result = run(pytester, tests, passed=1, failed=1)
    result.stdout.fnmatch_lines("*NotRunningError: the broker was closed: make a new one")


def test_a_failed_test_shows_its_broker(pytester: pytest.Pytester) -> None:
    tests = """
        import socket

        def test_it(kafka):
            host, port = kafka.bootstrap_servers.split(":")
            for _ in range(20):
                with socket.create_connection((host, int(port))) as client:
                    client.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
                    client.recv(1)
            assert 0

        def test_stopped(kafka):
            kafka.clock.advance(days=7)
            kafka.stop()
            assert 0
    """
    result = run(pytester, tests, "--kafka-seed=17", failed=2)
    result.stdout.fnmatch_lines(
        [
            "*_ test_it _*",
            "*- kafka: <Broker 127.0.0.1:* -*",
            "seed 17 (--kafka-seed=17 *",
            "warnings*",
            "*WARNING*HTTP*",
            "*_ test_stopped _*",
            "*- kafka: <Broker 127.0.0.1:* -*",
            "it does not run: *",
            "its clock is * days, * ahead of the machine's",
        ]
    )
    assert len(result.outlines) < 80


def test_an_error_for_the_author_shows_no_frame_of_ours(pytester: pytest.Pytester) -> None:
    tests = """
        def test_it(kafka):
            kafka.faults.crash_at("nowhere")

        def test_of_facades(kafka):
            kafka.faults.on("EndTxn").close()
            kafka.faults.assert_all_fired()
    """
    result = run(pytester, tests, failed=2)
    result.stdout.fnmatch_lines(
        [">*crash_at*", "E*unknown crash point*", ">*assert_all_fired*", "E*never fired:*"]
    )
    assert not [line for line in result.outlines if ".py:" in line and "test_an_error" not in line]


@pytest.mark.slow
def test_a_failed_test_of_a_worker_shows_its_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("n", [1, 2])
        def test_it(kafka, kafka_proc, worker_id, n):
            kafka_proc.create_topics([worker_id])
            assert kafka_proc.topics == [worker_id]
            assert 0
    """)
    result = pytester.runpytest_subprocess("-n", "2", "--dist", "each", "-k", "1")
    result.assert_outcomes(failed=2)
    shown = [line for line in result.outlines if "kafka: <Broker" in line or "kafka_proc: <Broker" in line]
    assert len(set(shown)) == 4


@pytest.mark.slow
def test_a_failed_test_shows_what_clients_sent(pytester: pytest.Pytester) -> None:
    tests = """
        from confluent_kafka.admin import AdminClient, NewTopic

        def test_it(kafka):
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "shop"})
            admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)
            for _ in range(30):
                admin.create_topics([NewTopic("orders", 1)])["orders"].exception(60)
            assert 0
    """
    result = run_with_clients(pytester, tests, failed=1)
    result.stdout.re_match_lines(
        [
            "last requests",
            r"    CreateTopics v\d+ of shop topic=orders: responded",
            r"    CreateTopics v\d+ of shop topic=orders: TOPIC_ALREADY_EXISTS \(x30\)",
            "requests with errors:",
            r"    CreateTopics v\d+ of shop topic=orders: TOPIC_ALREADY_EXISTS \(x30\)",
        ]
    )
    assert len(result.outlines) < 60


@pytest.mark.slow
def test_faults_of_markers_and_files(pytester: pytest.Pytester) -> None:
    pytester.makefile(".toml", faults='[[rules]]\non = "EndTxn"\nnth = 2\nclose = true\n')
    tests = """
        import pytest
        from confluent_kafka.admin import AdminClient

        @pytest.mark.kafka(faults=[{"on": "Metadata", "first": 1, "delay_ms": 1}, {"on": "Fetch", "close": True}])
        def test_of_the_marker(kafka):
            AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=60)
            assert 0

        @pytest.mark.kafka(faults="faults.toml")
        def test_of_a_file(kafka):
            [rule] = kafka.faults.rules
            assert "EndTxn" in rule.text

        @pytest.mark.kafka(faults={"on": "EndTxn", "close": True})
        def test_of_one(kafka):
            assert len(kafka.faults.rules) == 1

        @pytest.mark.kafka(from_snapshot="nowhere.oncelog")
        def test_of_no_snapshot(kafka):
            pass

        @pytest.mark.kafka(faults="nowhere.toml")
        def test_of_no_file(kafka):
            pass

        @pytest.mark.kafka(faults=[{"on": "Feetch", "close": True}])
        def test_of_a_wrong_rule(kafka):
            pass
    """
    result = run_with_clients(pytester, tests, failed=1, passed=2, errors=3)
    result.stdout.fnmatch_lines("kafka: *nowhere.oncelog*cannot be read*")
    result.stdout.fnmatch_lines(
        ["kafka: faults: cannot read *nowhere.toml: No such file*", "kafka: *Feetch*"]
    )
    result.stdout.fnmatch_lines(
        [
            "rules that fired:",
            "    rule 1 (*Metadata*fired 1",
            "rules that never fired:",
            "    rule 2 (*Fetch*fired 0; no such request came",
        ]
    )


def test_importing_it_costs_nothing() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import oncelog.pytest_plugin;"
        "print(*set(sys.modules) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    assert {name for name in done.stdout.split() if not name.startswith("_")} == {
        "oncelog",
        "oncelog.pytest_plugin",
        "oncelog.pytest_plugin.factories",
        "oncelog.pytest_plugin.fixture_brokers",
        "oncelog.pytest_plugin.left_clients",
        "oncelog.pytest_plugin.plain_imports",
        "oncelog.pytest_plugin.proxies",
        "oncelog.pytest_plugin.settings",
        "oncelog.pytest_plugin.unfired_rules",
    }


@pytest.mark.slow
def test_the_broker_is_imported_without_rewriting_its_assertions(pytester: pytest.Pytester) -> None:
    """In a process of its own, which has not imported it before."""
    pytester.makepyfile("""
        def test_it(kafka):
            import oncelog.broker.node.node

            assert "_pytest" not in type(oncelog.broker.node.node.__spec__.loader).__module__
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_every_argument_of_a_broker_is_a_setting() -> None:
    import inspect

    assert set(KafkaSettings.__annotations__) - {"faults"} == set(
        inspect.signature(oncelog.Broker).parameters
    )


@pytest.mark.slow
def test_a_report_has_the_end_of_a_traceback(pytester: pytest.Pytester) -> None:
    tests = """
        import oncelog
        import pytest
        from confluent_kafka import Producer

        class Broken(oncelog.RecordFilter):
            def on_produced(self, record, context):
                raise RuntimeError("no schema")

        @pytest.mark.kafka(topics=["orders"])
        @pytest.mark.kafka_proxy(filters=[Broken()])
        def test_it(kafka_proxy):
            producer = Producer({"bootstrap.servers": kafka_proxy.bootstrap_servers, "retries": 0})
            producer.produce("orders", b"coffee")
            producer.flush(60)
            assert False
    """
    result = run_with_clients(pytester, tests, failed=1)
    result.stdout.fnmatch_lines(["*a filter failed filter=Broken api=Produce ... RuntimeError: no schema"])
