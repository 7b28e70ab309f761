"""Users that a broker is started with: they log in, and their passwords are seen nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

import oncelog
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.control.options import checked_options
from oncelog.broker.security.user_options import parse_users
from tests.common.oncelog_process import Serve, serve

__all__ = ["serve"]  # a fixture

PASSWORD = "pass-0f3a:word, really"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def client(kafka: oncelog.Broker, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "app",
        "sasl.password": password,
    }


def is_refused(kafka: oncelog.Broker, mechanism: str, password: str) -> bool:
    said: list[str] = []
    settings = {**client(kafka, mechanism, password), "error_cb": lambda error: said.append(str(error))}
    producer = Producer(settings)
    while not said:
        producer.poll(1)
    return "Authentication failed" in said[0]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_logs_in(mechanism: str) -> None:
    with oncelog.Broker(topics=["t"], users={"app": PASSWORD}) as kafka:
        assert "t" in AdminClient(client(kafka, mechanism)).list_topics(timeout=60).topics
        assert is_refused(kafka, mechanism, "wrong")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_another_password_holds_from_the_next_start(mechanism: str, tmp_path: Path) -> None:
    with oncelog.Broker(topics=["t"], users={"app": "before"}, data_dir=tmp_path):
        pass
    with oncelog.Broker(users={"app": PASSWORD}, data_dir=tmp_path) as kafka:
        assert "t" in AdminClient(client(kafka, mechanism)).list_topics(timeout=60).topics
        assert is_refused(kafka, mechanism, "before")


def test_a_password_is_seen_nowhere(tmp_path: Path) -> None:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_other="{PASSWORD}";'
    kafka = oncelog.Broker(
        topics=["t"],
        users={"app": PASSWORD},
        data_dir=tmp_path,
        config={"listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas},
    )
    with kafka:
        admin = AdminClient(client(kafka, "PLAIN"))
        assert "t" in admin.list_topics(timeout=60).topics
        assert is_refused(kafka, "PLAIN", "other-" + PASSWORD)
        assert is_refused(kafka, "SCRAM-SHA-256", "other-" + PASSWORD)
        [configs] = [
            future.result(60)
            for future in admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
        ]
        seen = [repr(kafka), str(vars(kafka)), *(str(config) for config in configs.values())]
        seen += [str(line) for line in kafka.log_lines]
        kafka.snapshot(tmp_path / "snapshot")
    assert [text for text in seen if PASSWORD in text] == []
    from zipfile import ZipFile

    with ZipFile(tmp_path / "snapshot") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    (tmp_path / "snapshot").unlink()
    contents |= {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [name for name, content in contents.items() if PASSWORD.encode() in content] == []


@pytest.mark.parametrize(
    ("users", "config", "said"),
    [
        ({"": PASSWORD}, {}, "users=: '' is no name of a user"),
        ({"app": ""}, {}, "users=: the password of app is empty, or no text"),
        ({"app": 5}, {}, "users=: the password of app is empty, or no text"),
        ({"app": PASSWORD}, {"listeners": "PLAINTEXT://127.0.0.1:0"}, "no listener asks for a log-in"),
    ],
)
def test_users_that_make_no_sense(users: dict[str, str], config: dict[str, str], said: str) -> None:
    with pytest.raises(oncelog.InvalidArgumentError) as raised:
        oncelog.Broker(users=users, config=config)
    assert said in str(raised.value)
    assert PASSWORD not in str(raised.value)


def test_options_do_not_show_passwords() -> None:
    assert PASSWORD not in repr(checked_options(users={"app": PASSWORD}))


def test_a_password_may_hold_a_colon() -> None:
    assert dict(parse_users(["a:b:c", "d:e"], "--user")) == {"a": "b:c", "d": "e"}


def test_a_user_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="--user: the user a is there twice"):
        parse_users(["a:b", "c:d", "a:e"], "--user")


@pytest.mark.slow
def test_the_command_takes_users(serve: Serve) -> None:
    broker = serve("--port", "0", "--memory", "--user", f"app:{PASSWORD}", "--user", "other:x")
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.wait_ready()["address"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "app",
        "sasl.password": PASSWORD,
    }
    assert len(AdminClient(settings).list_topics(timeout=60).brokers) == 1
