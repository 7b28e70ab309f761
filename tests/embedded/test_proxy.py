"""`oncelog.Proxy` before a broker: what a test does with it, what it passes on to the cluster, and what it refuses."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import oncelog
from tests.common.process import free_ports

PATIENCE_S = 60
FAST = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "log_level": 0}


@pytest.fixture(scope="module")
def shared() -> Iterator[oncelog.Broker]:
    with oncelog.Broker() as broker:
        yield broker


@pytest.fixture
def cluster(shared: oncelog.Broker) -> oncelog.Broker:
    shared.reset()
    shared.create_topics({"orders": 3})
    return shared


@pytest.fixture
def kafka(cluster: oncelog.Broker) -> Iterator[oncelog.Proxy]:
    with oncelog.Proxy(cluster.bootstrap_servers) as proxy:
        yield proxy


def producer(kafka: oncelog.Proxy, **settings: Any) -> Producer:
    return Producer({**kafka.client_config(), **FAST, "client.id": "app", **settings})


def produce(kafka: oncelog.Proxy, value: bytes = b"coffee") -> None:
    client = producer(kafka)
    client.produce("orders", value, key=b"table 7")
    assert client.flush(60) == 0


# -- what it is


def test_its_own_address_and_the_clusters_id(kafka: oncelog.Proxy, cluster: oncelog.Broker) -> None:
    assert kafka.bootstrap_servers != cluster.bootstrap_servers
    assert kafka.cluster_id == cluster.cluster_id
    assert kafka.is_running
    assert repr(kafka) == f"<Proxy {kafka.bootstrap_servers}>"


@pytest.mark.slow
def test_it_comes_back_at_its_addresses(kafka: oncelog.Proxy) -> None:
    client = producer(kafka)
    client.produce("orders", b"a")
    assert client.flush(60) == 0
    told = {str(node) for node in AdminClient(kafka.client_config()).list_topics(timeout=60).brokers.values()}
    for end in (kafka.stop, kafka.kill):
        end()
        assert not kafka.is_running
        with pytest.raises(oncelog.NotRunningError, match=r"the proxy is stopped: start\(\) starts it again"):
            _ = kafka.topics
        kafka.start()
        client.produce("orders", b"b")
        assert client.flush(60) == 0
    again = {
        str(node) for node in AdminClient(kafka.client_config()).list_topics(timeout=60).brokers.values()
    }
    assert again == told


def test_requests_and_waits(kafka: oncelog.Proxy) -> None:
    produce(kafka)
    request = kafka.wait_for("Produce", topic="orders", client_id="app", timeout=PATIENCE_S)
    assert request.outcome == "responded"
    assert [one.value for one in request.records] == [b"coffee"]
    assert {one.api for one in kafka.requests(client_id="app")} >= {"ApiVersions", "Metadata", "Produce"}
    with pytest.raises(oncelog.WaitTimeoutError, match="no EndTxn in 0 s"):
        kafka.wait_for("EndTxn", timeout=0)


@pytest.mark.slow
def test_topics_by_their_ids(kafka: oncelog.Proxy) -> None:
    """A Fetch names them by id, and the proxy has learned these from what passed."""
    produce(kafka)
    consumer = Consumer({**kafka.client_config(), **FAST, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(60)
    assert message is not None
    consumer.close()
    fetches = kafka.requests("Fetch", topic="orders")
    assert fetches
    assert fetches[-1].version >= 13


# -- rules


def test_the_rules_of_a_file(kafka: oncelog.Proxy, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        '[[rules]]\non = "Produce"\ntopic = "orders"\nfirst = 2\nerror = "NOT_LEADER_OR_FOLLOWER"\n'
    )
    [rule] = kafka.faults.load(path)
    produce(kafka)
    assert (rule.state.matched, rule.fired) == (3, 2)
    kafka.faults.assert_all_fired()
    assert len(kafka.topic("orders").records()) == 1
    path.write_bytes(b"\xff")
    with pytest.raises(oncelog.InvalidArgumentError, match=r"rules\.toml: it is not UTF-8"):
        kafka.faults.load(path)
    path.write_text('[[rules]]\ncrash_at = "before decision"\n')
    with pytest.raises(oncelog.InvalidArgumentError, match="line 2, rule 1: crash_at: a proxy cannot"):
        kafka.faults.load(path)


def test_a_held_request(kafka: oncelog.Proxy) -> None:
    held = kafka.faults.on("Produce", topic="orders").hold()
    thread = threading.Thread(target=produce, args=[kafka])
    thread.start()
    held.wait_fired(timeout=PATIENCE_S)
    assert kafka.topic("orders").records() == []
    held.release()
    thread.join()
    assert len(kafka.topic("orders").wait_for_records(1, timeout=PATIENCE_S)) == 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda faults: faults.crash_at("before decision"),
            "crash_at: a proxy cannot let the brokers behind it die",
        ),
        (
            lambda faults: faults.on("Fetch", topic="ordes").close(),
            "topic 'ordes' does not exist: did you mean orders",
        ),
        (
            lambda faults: faults.on("Fetch", topic="orders", partition=9).close(),
            "partition 9 does not exist",
        ),
        (
            lambda faults: faults.on("Fetch", listener="EXTERNAL").close(),
            r"listener 'EXTERNAL' does not exist \(there are PLAINTEXT\)",
        ),
        (
            lambda faults: faults.refuse_connections(listener="plaintext"),
            "listener 'plaintext' does not exist: did you mean PLAINTEXT",
        ),
        (
            lambda faults: faults.add({"on": "Fetch", "cloze": True}),
            "unknown word 'cloze': did you mean close",
        ),
    ],
)
def test_rules_that_are_refused(kafka: oncelog.Proxy, make: Callable[[Any], object], said: str) -> None:
    with pytest.raises(oncelog.InvalidArgumentError, match=said):
        make(kafka.faults)


def test_a_topic_that_was_created_just_now(kafka: oncelog.Proxy, cluster: oncelog.Broker) -> None:
    cluster.create_topics(["new"])
    kafka.faults.on("Fetch", topic="new").close()


@pytest.mark.slow
def test_rules_outlive_a_restart(kafka: oncelog.Proxy) -> None:
    rule = kafka.faults.on("Produce").nth(1).drop_response()
    kafka.stop()
    kafka.start()
    client = producer(kafka, **{"enable.idempotence": True})
    client.produce("orders", b"once")
    assert client.flush(60) == 0
    assert rule.fired == 1
    assert len(kafka.topic("orders").records()) == 1


# -- what the cluster has


def test_what_the_cluster_has(kafka: oncelog.Proxy, cluster: oncelog.Broker) -> None:
    kafka.create_topic("more", partitions=2)
    assert kafka.topics == cluster.topics == ["more", "orders"]
    kafka.produce("orders", "coffee", key="table 7")
    assert cluster.topic("orders").records()[0].value == b"coffee"
    kafka.group("billing").commit({"orders": {0: 1}})
    assert kafka.groups == ["billing"]
    assert cluster.group("billing").committed == {"orders": {0: 1}}
    assert kafka.requests("Produce") == [], "what the test does itself does not pass"


def test_waits_for_what_the_cluster_has(kafka: oncelog.Proxy) -> None:
    client = producer(kafka, **{"transactional.id": "app", "transaction.timeout.ms": 900_000})
    client.init_transactions(60)
    client.begin_transaction()
    client.produce("orders", b"coffee")
    client.commit_transaction(60)
    kafka.transactions["app"].wait_for("CompleteCommit", timeout=PATIENCE_S)
    [record] = kafka.topic("orders").wait_for_records(1, isolation="read_committed", timeout=PATIENCE_S)
    assert record.value == b"coffee"
    consumer = Consumer({**kafka.client_config(), **FAST, "group.id": "g"})
    consumer.subscribe(["orders"])
    consumer.poll(0.1)
    kafka.group("g").wait_for(state="Stable", members=1, timeout=PATIENCE_S)
    consumer.close()
    kafka.group("g").wait_for(members=0, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (
            lambda kafka: kafka.clock.advance(days=1),
            "clock_advance: a proxy cannot move the time of the cluster",
        ),
        (lambda kafka: kafka.clock.now_ms(), "clock: a proxy cannot move the time of the cluster behind it"),
        (lambda kafka: kafka.group("g").expire_member("m"), "expire_member: a proxy cannot move the time"),
        (lambda kafka: kafka.transactions["t"].expire(), "expire_transaction: a proxy cannot move the time"),
        (lambda kafka: kafka.reset(), "reset: the data is the cluster's"),
        (lambda kafka: kafka.lose_power(), "lose_power: the data is the cluster's"),
        (lambda kafka: kafka.snapshot_bytes(), "snapshot: the data is the cluster's"),
        (lambda kafka: kafka.producers, "producers: a proxy does not see"),
    ],
)
def test_what_a_proxy_cannot_do(kafka: oncelog.Proxy, do: Callable[[Any], object], said: str) -> None:
    with pytest.raises(oncelog.UnsupportedError, match=said):
        do(kafka)


def test_operations_of_a_broker_are_refused_and_others_are_unknown(kafka: oncelog.Proxy) -> None:
    with pytest.raises(oncelog.UnsupportedError, match="client_metrics: only a broker of oncelog can do it"):
        kafka._call("client_metrics")
    with pytest.raises(KeyError, match="no_such_operation"):
        kafka._call("no_such_operation")


# -- filters, users


class Stamp(oncelog.RecordFilter):
    """Adds a header to each record that is produced."""

    def on_produced(self, record: oncelog.PassingRecord, context: oncelog.RequestContext) -> None:
        record.headers.append(("via", b"proxy"))


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
def test_filters(cluster: oncelog.Broker, process: bool) -> None:
    filters = [oncelog.rename_topics({"shop": "orders"}), Stamp()]
    with oncelog.Proxy(cluster.bootstrap_servers, filters=filters, process=process) as kafka:
        client = producer(kafka)
        client.produce("shop", b"coffee")
        assert client.flush(60) == 0
        [record] = cluster.topic("orders").records()
        assert record.headers == (("via", b"proxy"),)
        settings = {"group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({**kafka.client_config(), **FAST, **settings})
        consumer.subscribe(["shop"])
        message = consumer.poll(60)
        assert message is not None
        assert (message.topic(), message.value()) == ("shop", b"coffee")
        consumer.commit(message=message, asynchronous=False)
        assert cluster.group("g").committed["orders"]
        consumer.close()
        assert set(AdminClient(kafka.client_config()).list_topics(timeout=60).topics) >= {"shop"}


@pytest.mark.slow
def test_users_of_its_own(cluster: oncelog.Broker) -> None:
    with oncelog.Proxy([cluster.bootstrap_servers], users={"shop": "secret"}) as kafka:
        client = Producer({**kafka.client_config(user="shop"), **FAST})
        client.produce("orders", b"coffee")
        assert client.flush(60) == 0
        assert kafka.wait_for("Produce").principal == "User:shop"
        wrong = AdminClient({**kafka.client_config(user="shop"), "sasl.password": "wrong"})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=1)
        assert kafka.wait_for_failed_login(timeout=PATIENCE_S).principal == "User:shop"


def test_acls_of_its_own(cluster: oncelog.Broker) -> None:
    acls = [oncelog.Acl("User:shop", "Write", topic="orders")]
    users = {"shop": "secret", "audit": "secret"}
    with oncelog.Proxy(cluster.bootstrap_servers, users=users, acls=acls) as kafka:
        errors: dict[str, Any] = {}

        def delivered_for(user: str) -> Callable[[Any, Any], None]:
            return lambda error, _: errors.update({user: error})

        for user in users:
            client = Producer({**kafka.client_config(user=user), **FAST})
            client.produce("orders", b"coffee", on_delivery=delivered_for(user))
            assert client.flush(60) == 0
        assert errors["shop"] is None
        assert errors["audit"].name() == "TOPIC_AUTHORIZATION_FAILED"
        denied = kafka.wait_for("Metadata", error="TOPIC_AUTHORIZATION_FAILED", timeout=PATIENCE_S)
        assert (denied.principal, denied.outcome) == ("User:audit", "responded")
        asked = [one for one in kafka.requests() if one.principal == "User:audit"]
        assert {error for one in asked for error in one.errors} == {"TOPIC_AUTHORIZATION_FAILED"}


def test_a_cluster_that_asks_for_a_login() -> None:
    with oncelog.Broker(topics=["orders"], users={"prod": "secret"}) as cluster:
        upstream = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="prod" password="secret";',
        }
        with oncelog.Proxy(cluster.bootstrap_servers, upstream_config=upstream) as kafka:
            produce(kafka)
            assert cluster.wait_for("Produce").principal == "User:prod"
            assert [one.value for one in kafka.topic("orders").records()] == [b"coffee"]
            assert "secret" not in repr(kafka)


# -- mistakes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"upstream": ""}, "upstream is missing"),
        ({"upstream": "host:port"}, "upstream=host:port: expected HOST:PORT"),
        (
            {"upstream": "localhost:1", "filters": [5]},
            "filters: 5: expected an oncelog.Interceptor, or MODULE:NAME",
        ),
        ({"upstream": "localhost:1", "filters": ["nowhere"]}, "nowhere: expected MODULE:NAME"),
        ({"upstream": "localhost:1", "filters": "stamp:Stamp"}, "filters='stamp:Stamp': expected a list"),
        ({"upstream": "localhost:1", "filters": [Stamp]}, r"did you mean Stamp\(\)\?"),
        ({"upstream": oncelog.Broker()}, "expected its addresses, which are its bootstrap_servers"),
        (
            {"upstream": "localhost:1", "pass_logins": True, "users": {"a": "b"}},
            "users= and pass_logins= exclude",
        ),
        (
            {"upstream": "localhost:1", "upstream_config": {"security.protocol": "x"}},
            "security.protocol=X: expected",
        ),
        ({"upstream": "localhost:1", "upstream_config": "/nowhere"}, "/nowhere"),
        ({"upstream": "localhost:1", "upstream_users": "/nowhere"}, "cannot read /nowhere"),
        ({"upstream": "localhost:1", "upstream_users": 5}, "upstream_users: expected a table for each user"),
        ({"upstream": "localhost:1", "upstream_users": {"a": "b"}}, r"for each user, such as \[a\]"),
        (
            {"upstream": "localhost:1", "upstream_users": {"a": {"username": 5, "password": None}}},
            r"upstream_users: \[a\] password: expected a text",
        ),
        ({"upstream": None}, "upstream=None: expected HOST:PORT, or a list of them"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(oncelog.InvalidArgumentError, match=said):
        oncelog.Proxy(**arguments)


def test_a_cluster_that_is_not_there() -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(oncelog.BrokerFailedError, match=f"the upstream cannot be used: {servers}: .*refused"):
        oncelog.Proxy(servers).start()


# -- what it keeps


@pytest.mark.slow
def test_users_that_are_kept(cluster: oncelog.Broker, tmp_path: pathlib.Path) -> None:
    options: dict[str, Any] = {"users": {"admin": "admin-secret"}, "data_dir": tmp_path / "kept"}
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    with oncelog.Proxy(cluster.bootstrap_servers, **options) as kafka:
        admin = AdminClient({**kafka.client_config(user="admin"), **FAST})
        [made] = admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("app", credential, b"app-secret")]
        ).values()
        made.result(PATIENCE_S)
        kafka.kill()
        kafka.start()
        assert topics_of(kafka) >= {"orders"}
        with pytest.raises(oncelog.BrokerFailedError, match="in use by another process"):
            oncelog.Proxy(cluster.bootstrap_servers, **options).start()
    with oncelog.Proxy(cluster.bootstrap_servers, **options, process=True) as kafka:
        assert topics_of(kafka) >= {"orders"}


def topics_of(kafka: oncelog.Proxy) -> set[str]:
    """What the user of the test before is shown."""
    settings = {**kafka.client_config(user="admin"), "sasl.username": "app", "sasl.password": "app-secret"}
    return set(
        AdminClient({**settings, "sasl.mechanism": "SCRAM-SHA-256"}).list_topics(timeout=PATIENCE_S).topics
    )


def test_a_data_directory_needs_something_to_keep(tmp_path: pathlib.Path) -> None:
    with pytest.raises(oncelog.InvalidArgumentError, match=r"^data_dir= has no effect: no log-ins end"):
        oncelog.Proxy("127.0.0.1:1", data_dir=tmp_path)
