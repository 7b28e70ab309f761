"""``--kafka-unfired-rules=error``: a test whose rule never fired fails, and says what the rule saw."""

from __future__ import annotations

import pytest

from tests.pytest_plugin.projects import run, run_with_clients

pytest_plugins = ["pytester"]

ERROR = "--kafka-unfired-rules=error"


@pytest.mark.slow
def test_the_report_says_which_values_the_rule_saw(pytester: pytest.Pytester) -> None:
    ini = pytester.path / "tox.ini"
    ini.write_text(f"{ini.read_text()}\nkafka_unfired_rules = error\n")
    tests = """
        import pytest
        from confluent_kafka import Consumer, TopicPartition

        pytestmark = pytest.mark.kafka(topics=["orders"])

        def commit(kafka):
            settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "billing", "client.id": "app"}
            consumer = Consumer(settings)
            consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
            consumer.close()

        def test_of_the_body(kafka):
            kafka.faults.on("OffsetCommit", group="biling", client_id="ap").nth(1).error("NOT_COORDINATOR")
            commit(kafka)

        @pytest.mark.kafka(faults={"on": "OffsetCommit", "group": "billing", "nth": 3, "close": True})
        def test_of_a_marker(kafka):
            commit(kafka)

        def test_of_a_block(kafka):
            with kafka.faults.on("EndTxn").close():
                commit(kafka)

        def test_that_fires(kafka):
            kafka.faults.on("OffsetCommit", group="billing").delay(ms=1)
            commit(kafka)

        def test_that_fails_anyway(kafka):
            kafka.faults.on("EndTxn").close()
            raise ValueError("its own")
    """
    result = run_with_clients(pytester, tests, failed=4, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ test_of_the_body _*",
            "rules that never fired:",
            "  kafka: rule 1 (on: OffsetCommit, *: *fired 0; 1 request came, with group billing; client_id app",
            "*_ test_of_a_marker _*",
            "  kafka: rule 1 (on: OffsetCommit, *: matched 1, fired 0",
            "*_ test_of_a_block _*",
            "  kafka: rule 1 (on: EndTxn, *: matched 0, fired 0; no such request came",
            "*ValueError: its own",
        ]
    )


def test_rules_of_many_tests_need_not_fire_in_each(pytester: pytest.Pytester) -> None:
    pytester.makefile(".toml", faults='[[rules]]\non = "EndTxn"\nnth = 2\nclose = true\n')
    pytester.makeconftest("""
        from oncelog.pytest_plugin import factories

        chaos = factories.kafka(faults={"on": "Fetch", "every": 100, "close": True})
        of_module = factories.kafka(scope="module")
        shared = factories.kafka_proc()
        clean = factories.kafka("shared")
        proxy = factories.kafka_proxy("shared", scope="module")
    """)
    tests = """
        import pytest

        pytestmark = pytest.mark.kafka(seed=5)
        chaotic = {"on": "EndTxn", "close": True}

        def test_of_the_command_line(kafka):
            pass

        def test_of_a_factory(chaos):
            pass

        @pytest.fixture(scope="module")
        def prepared(of_module):
            of_module.faults.on("Fetch").close()

        def test_first(of_module, proxy):
            of_module.faults.on("EndTxn").close()

        def test_second(of_module, proxy):
            pass

        def test_third(of_module, proxy):
            proxy.faults.on("EndTxn").close()

        def test_fourth(of_module, proxy):
            pass
    """
    result = run(pytester, tests, ERROR, "--kafka-faults=faults.toml", passed=4, failed=2)
    result.stdout.fnmatch_lines(
        ["*_ test_first _*", "*of_module: rule 2 *", "*_ test_third _*", "*proxy: rule 1 *"]
    )


def test_a_shared_broker_that_is_reset(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        from oncelog.pytest_plugin import factories

        shared = factories.kafka_proc()
        clean = factories.kafka("shared")
    """)
    tests = """
        import pytest

        def test_first(clean):
            clean.faults.on("EndTxn").close()

        def test_second(clean):
            pass

        @pytest.mark.kafka(faults={"on": "EndTxn", "close": True})
        def test_third(clean):
            clean.close()

        def test_fourth():
            pass
    """
    result = run(pytester, tests, ERROR, passed=3, failed=1)
    result.stdout.fnmatch_lines(["*_ test_first _*", "*clean: rule 1 *"])


def test_asynchronous_tests_and_proxies(pytester: pytest.Pytester) -> None:
    tests = """
        import asyncio

        def test_it(async_kafka):
            async def main():
                await async_kafka.faults.on("EndTxn").close()
            asyncio.run(main())

        def test_through_a_proxy(async_kafka_proxy):
            async def main():
                await async_kafka_proxy.faults.on("EndTxn").close()
            asyncio.run(main())
    """
    result = run(pytester, tests, ERROR, failed=2)
    result.stdout.fnmatch_lines(["  kafka: rule 1 *", "  kafka_proxy: rule 1 *"])
    run(pytester, tests, passed=2)


def test_another_word(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--kafka-unfired-rules=fail")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines("*--kafka-unfired-rules: fail: expected error or ignore*")
