"""The fixture of a proxy, and its settings."""

from __future__ import annotations

import pytest

import oncelog
from tests.pytest_plugin.projects import run, run_with_clients

pytest_plugins = ["pytester"]

PROXIED = """
    import pytest
    from confluent_kafka import Producer

    @pytest.mark.kafka(topics=["orders"])
    @pytest.mark.kafka_proxy(faults=[{"on": "Produce", "topic": "orders", "nth": 1, "error": "NOT_LEADER_OR_FOLLOWER"}])
    def test_orders(kafka, kafka_proxy):
        assert kafka_proxy.cluster_id == kafka.cluster_id
        producer = Producer({"bootstrap.servers": kafka_proxy.bootstrap_servers, "retry.backoff.ms": 20})
        producer.produce("orders", b"coffee")
        assert producer.flush(60) == 0
        kafka_proxy.faults.assert_all_fired()
        assert [one.value for one in kafka.topic("orders").records()] == [b"coffee"]
        assert not FAILS
"""


@pytest.mark.slow
def test_a_proxy_before_the_tests_broker(pytester: pytest.Pytester) -> None:
    run_with_clients(pytester, PROXIED.replace("FAILS", "False"), passed=1)


@pytest.mark.slow
def test_a_failed_test_shows_its_proxy(pytester: pytest.Pytester) -> None:
    result = run_with_clients(pytester, PROXIED.replace("FAILS", "True"), failed=1)
    result.stdout.re_match_lines_random(
        [
            r".* kafka: <Broker .*",
            r".* kafka_proxy: <Proxy .*",
            r"    rule 1 \(on: Produce, .*: matched 2, fired 1",
        ]
    )
    result.stdout.no_re_match_line(".*cannot move the time")


def test_the_upstream_of_a_proxy(pytester: pytest.Pytester) -> None:
    tests = """
        import oncelog
        import pytest
        from oncelog.pytest_plugin import factories

        @pytest.fixture
        def other():
            with oncelog.Broker(topics=["other"]) as broker:
                yield broker

        before_other = factories.kafka_proxy("other")

        def test_of_a_factory(before_other):
            assert before_other.topics == ["other"]

        def test_of_the_option(kafka_proxy):
            assert kafka_proxy.topics == ["shared"]

        @pytest.mark.kafka_proxy(upstream="other")
        def test_of_a_marker(kafka_proxy):
            assert kafka_proxy.topics == ["other"]
    """
    with oncelog.Broker(topics=["shared"]) as broker:
        run(pytester, tests, f"--kafka-proxy-upstream={broker.bootstrap_servers}", passed=3)


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (
            "upstrem='x'",
            r"@pytest.mark.kafka_proxy: no setting 'upstrem': did you mean upstream\? expected upstream, ",
        ),
        ("'127.0.0.1:1'", "@pytest.mark.kafka_proxy takes keyword arguments, such as upstream="),
        ("upstream='127.0.0.1:1'", "kafka_proxy: the upstream cannot be used: 127.0.0.1:1: .*refused"),
        ("upstream='tmp_path'", "kafka_proxy: the fixture tmp_path has no bootstrap_servers"),
        ("faults=[{'crash_at': 'before decision'}]", "kafka_proxy: crash_at: a proxy cannot let the brokers"),
    ],
)
def test_a_proxy_that_cannot_be(pytester: pytest.Pytester, marker: str, said: str) -> None:
    tests = f"import pytest\n\n@pytest.mark.kafka_proxy({marker})\ndef test_it(kafka_proxy):\n    pass\n"
    result = run(pytester, tests, errors=1)
    result.stdout.re_match_lines_random([f".*{said}.*"])


def test_every_argument_of_a_proxy_is_a_setting() -> None:
    from oncelog.pytest_plugin import proxies

    arguments = set(oncelog.Proxy.__init__.__annotations__) - {"return"}
    assert set(proxies.NAMES) == arguments | {"faults"}
