"""The log-in at a Kafka cluster: ``--kafka-command-config``, and what is said without it."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

import oncelog
from tests.pytest_plugin.projects import run, run_with_clients

pytest_plugins = ["pytester"]

PASSWORD = "secret of app"
ORDERS = """
    import pytest
    from confluent_kafka import Consumer, Producer

    pytestmark = pytest.mark.kafka(topics=["orders"])

    def use(settings):
        producer = Producer(settings)
        producer.produce("orders", b"coffee")
        assert producer.flush(60) == 0
        consumer = Consumer({**settings, "group.id": "billing", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        assert consumer.poll(60).value() == b"coffee"
        consumer.close()

    def test_it(kafka):
        use(kafka.client_config())
        assert [record.value for record in kafka.topic("orders").records()] == [b"coffee"]
        assert kafka.group("billing").committed == {"orders": {0: 1}}
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(users={"app": PASSWORD}, tls=True) as kafka:
        yield kafka


@pytest.fixture
def client_properties(pytester: pytest.Pytester, secured: oncelog.Broker) -> pathlib.Path:
    """A file as Kafka's tools take it."""
    values = secured.client_config("java", user="app")
    del values["bootstrap.servers"]
    (pytester.path / "ca.pem").write_text(values.pop("ssl.truststore.certificates"))
    values["ssl.truststore.location"] = "ca.pem"
    path = pytester.path / "client.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


@pytest.mark.slow
def test_the_fixture_and_the_tests_clients_log_in(
    pytester: pytest.Pytester, secured: oncelog.Broker, client_properties: pathlib.Path
) -> None:
    more = """
    def test_a_proxy_before_it(kafka, kafka_proxy):
        use({"bootstrap.servers": kafka_proxy.bootstrap_servers})

    def test_async(async_kafka, kafka):
        assert async_kafka.client_config() == kafka.client_config()

    def test_client_config(kafka):
        assert kafka.client_config("java")["security.protocol"] == "SASL_SSL"
        kafka.client_config(user="app")
    """
    servers = f"--kafka-bootstrap-servers={secured.bootstrap_servers}"
    login = f"--kafka-command-config={client_properties.name}"
    run_with_clients(pytester, ORDERS + more, servers, login, passed=3, skipped=1)
    assert (secured.topics, secured.groups) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["ini", "environment"])
def test_the_places_of_the_setting(
    pytester: pytest.Pytester,
    secured: oncelog.Broker,
    client_properties: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    settings = {"bootstrap_servers": secured.bootstrap_servers, "command_config": client_properties.name}
    if place == "ini":
        ini = pytester.path / "tox.ini"
        lines = (f"kafka_{name} = {value}\n" for name, value in settings.items())
        ini.write_text("\n".join([ini.read_text(), *lines]))
    else:
        for name, value in settings.items():
            monkeypatch.setenv(f"ONCELOG_KAFKA_{name.upper()}", value)
    run_with_clients(pytester, ORDERS, passed=1)


def test_of_a_factory(
    pytester: pytest.Pytester, secured: oncelog.Broker, client_properties: pathlib.Path
) -> None:
    pytester.makeconftest(f"""
        from oncelog.pytest_plugin import factories

        staging = factories.kafka_noproc("{secured.bootstrap_servers}", command_config="{client_properties.name}")
    """)
    run(pytester, "def test_it(staging): assert staging.topics == []", passed=1)


@pytest.mark.slow
def test_behind_a_proxy_clients_need_no_login(
    pytester: pytest.Pytester, secured: oncelog.Broker, client_properties: pathlib.Path
) -> None:
    tests = """
    def test_rules(kafka):
        rule = kafka.faults.on("Produce").nth(1).error("NOT_LEADER_OR_FOLLOWER")
        use({"bootstrap.servers": kafka.bootstrap_servers, "retry.backoff.ms": 20})
        assert rule.fired == 1
    """
    servers = f"--kafka-bootstrap-servers={secured.bootstrap_servers}"
    login = f"--kafka-command-config={client_properties.name}"
    run_with_clients(pytester, ORDERS + tests, servers, login, "--kafka-through-proxy", passed=2)
    assert (secured.topics, secured.groups) == ([], [])


@pytest.mark.parametrize("through", [(), ("--kafka-through-proxy",)], ids=["direct", "proxied"])
def test_a_cluster_that_wants_tls_or_a_login_is_told_so(
    pytester: pytest.Pytester, secured: oncelog.Broker, through: tuple[str, ...]
) -> None:
    servers = "--kafka-bootstrap-servers={}".format
    result = run(pytester, ORDERS, servers(secured.bootstrap_servers), *through, errors=1)
    result.stdout.fnmatch_lines(
        "kafka: *(perhaps it wants TLS: security.protocol=SSL in --kafka-command-config)"
    )
    with oncelog.Broker(users={"app": PASSWORD}) as plain:
        result = run(pytester, ORDERS, servers(plain.bootstrap_servers), *through, errors=1)
        result.stdout.fnmatch_lines(
            f"kafka: the cluster at {plain.bootstrap_servers} asks for a log-in: --kafka-command-config=FILE says as "
            "whom, by the keys of Kafka's clients (security.protocol, sasl.mechanism, sasl.jaas.config)"
        )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            None,
            "kafka: --kafka-command-config=*nowhere.properties: cannot read *nowhere.properties: No such file*",
        ),
        ("sasl.username=app", "kafka: *: sasl.username: librdkafka's key; Kafka's is sasl.jaas.config"),
        ("security.protocol=TLS", "kafka: *: security.protocol=TLS: expected one of PLAINTEXT, SSL, *"),
        (
            "security.protocol=SSL",
            "kafka: *the broker's certificate is refused: * (ssl.truststore.* must name *",
        ),
    ],
)
def test_a_file_that_does_not_do(
    pytester: pytest.Pytester, secured: oncelog.Broker, text: str | None, said: str
) -> None:
    if text is not None:
        (pytester.path / "nowhere.properties").write_text(text)
    servers = f"--kafka-bootstrap-servers={secured.bootstrap_servers}"
    result = run(pytester, ORDERS, servers, "--kafka-command-config=nowhere.properties", errors=1)
    result.stdout.fnmatch_lines(said)


def test_a_wrong_password_is_not_shown(
    pytester: pytest.Pytester, secured: oncelog.Broker, client_properties: pathlib.Path
) -> None:
    client_properties.write_text(client_properties.read_text().replace(PASSWORD, "a wrong one"))
    servers = f"--kafka-bootstrap-servers={secured.bootstrap_servers}"
    result = run(pytester, ORDERS, servers, "--kafka-command-config=client.properties", errors=1)
    result.stdout.fnmatch_lines("kafka: *SASL_AUTHENTICATION_FAILED*")
    result.stdout.no_fnmatch_line("*a wrong one*")
