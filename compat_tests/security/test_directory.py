"""A directory that `kafka-storage format --add-scram` made: oncelog serves it before Kafka ever did; and one that Kafka
used, with users, ACLs, quotas and tokens, goes to oncelog and back with all of them in force.
"""

from __future__ import annotations

import base64
import pathlib
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from compat_tests.brokers import UNDISTURBED, Broker
from compat_tests.differential import Session
from compat_tests.oncelog_server import Oncelog
from compat_tests.security.authorizing import ALLOW, AUTHORIZER, LITERAL, TOPIC, creation
from compat_tests.security.test_quotas import Entity, Quotas
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenResponse as Token
from oncelog.wire.messages.metadata import MetadataRequest
from tests.common import exchanges
from tests.common.batches import now_ms
from tests.common.jars import RealPartMissing, require, run_tool
from tests.common.process import free_ports
from tests.common.real_kafka import RealKafka, new_uuid
from tests.common.sasl_client import LoginFailed, SaslClient

pytestmark = pytest.mark.slow

MECHANISM, USER, PASSWORD = "SCRAM-SHA-512", "app", "app-secret"
WRITE = 4
LIMIT = 1000
LARGE = bytes(20 * LIMIT)
TIMEOUT_S = 30
PROPERTIES = {
    **UNDISTURBED,
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": MECHANISM,
    f"listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "delegation.token.secret.key": "the-key",
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}


def format_with_user(data_dir: pathlib.Path) -> None:
    """Let kafka-storage format a directory, with a user."""
    data_dir.mkdir()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:2",
        "log.dirs": str(data_dir),
    }
    file = data_dir.with_suffix(".properties")
    file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
    user = f"{MECHANISM}=[name={USER},password={PASSWORD}]"
    try:
        run_tool("kafka.tools.StorageTool", "format", "-t", new_uuid(), "-c", str(file), "--add-scram", user)
    except RealPartMissing as missing:
        require(str(missing))


class Users:
    """What the user of a broker may do. Asserts that the user gets in, and nobody with another password."""

    def __init__(self, broker: Broker, address: str) -> None:
        self.session = Session(broker.bootstrap)
        """An administrator's."""
        self._address = address
        for password, is_let_in in ((PASSWORD, True), ("wrong", False)):
            with SaslClient(address) as client:
                assert self._gets_in(client, USER, password) == is_let_in

    @staticmethod
    def _gets_in(client: SaslClient, user: str, password: str, extensions: str = "") -> bool:
        try:
            client.log_in(MECHANISM, user, password, extensions)
        except LoginFailed:
            return False
        client.call(MetadataRequest([]), 12)
        return True

    def new_token(self) -> Token:
        with SaslClient(self._address) as client:
            client.log_in(MECHANISM, USER, PASSWORD)
            token = client.call(CreateDelegationTokenRequest(None, None, [], -1), 3)
        assert token.error_code == 0
        return token

    def is_let_in(self, token: Token) -> bool:
        with SaslClient(self._address) as client:
            password = base64.b64encode(token.hmac).decode()
            return self._gets_in(client, token.token_id, password, ",tokenauth=true")

    def produced(self, topic: str) -> tuple[int | None, bool]:
        """The error of a large record that the user writes, and whether that was throttled."""
        throttled: list[Any] = []
        errors: list[int | None] = []
        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": MECHANISM,
                "sasl.username": USER,
                "sasl.password": PASSWORD,
                "throttle_cb": throttled.append,
            }
        )
        producer.produce(
            topic, LARGE, on_delivery=lambda error, _: errors.append(None if error is None else error.code())
        )
        assert producer.flush(TIMEOUT_S) == 0
        producer.poll(0)
        return errors[0], bool(throttled)

    def until(self, topic: str, expected: tuple[int | None, bool]) -> None:
        """Produce until that is the outcome: Kafka's broker learns of ACLs and quotas a moment after its start."""
        deadline = now_ms() + 1000 * TIMEOUT_S
        while (found := self.produced(topic)) != expected:
            assert now_ms() < deadline, (topic, found)

    def allow(self, topic: str) -> None:
        acl = creation(TOPIC, topic, LITERAL, f"User:{USER}", "*", WRITE, ALLOW)
        made = self.session.call_unobserved("CreateAcls", 3, {"creations": [acl]})
        assert [row["error_code"] for row in made["results"]] == [0]


def listening(address: str) -> dict[str, str]:
    return {**PROPERTIES, "listeners": f"SASL_PLAINTEXT://{address}"}


DENIED, WRITTEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, False), (None, False)
THROTTLED = (None, True)


@exchanges.METADATA
def test_a_formatted_directory(tmp_path: pathlib.Path) -> None:
    """The user of its bootstrap.checkpoint logs in to oncelog, and to Kafka afterwards."""
    data_dir = tmp_path / "data"
    format_with_user(data_dir)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with Oncelog(listening(address), data_dir) as ours:
        users = Users(ours, address)
        users.session.topic("mine")
        users.until("mine", DENIED)
        users.allow("mine")
        users.until("mine", WRITTEN)
        users.session.end()
        assert ours.tracebacks == 0
    with RealKafka(listening(address), data_dir) as kafka:
        users = Users(kafka, address)
        users.session.wait_for_leaders("mine", 1)
        users.until("mine", WRITTEN)
        users.session.end()


@exchanges.METADATA
def test_a_used_directory_goes_to_oncelog_and_back(tmp_path: pathlib.Path) -> None:
    data_dir = tmp_path / "data"
    format_with_user(data_dir)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    user: Entity = {"user": USER}
    with RealKafka(listening(address), data_dir) as kafka:
        users = Users(kafka, address)
        for topic in ("mine", "theirs"):
            users.session.topic(topic)
        users.allow("mine")
        users.until("mine", WRITTEN)
        users.until("theirs", DENIED)
        Quotas(users.session).alter(user, {"producer_byte_rate": LIMIT})
        users.until("mine", THROTTLED)
        token = users.new_token()
        users.session.end()
    with Oncelog(listening(address), data_dir) as ours:
        users = Users(ours, address)
        assert users.produced("mine") == THROTTLED
        assert users.produced("theirs") == DENIED
        assert users.is_let_in(token)
        users.allow("theirs")
        Quotas(users.session).alter(user, {"producer_byte_rate": None})
        assert users.produced("theirs") == WRITTEN
        another = users.new_token()
        users.session.end()
        assert ours.tracebacks == 0
    with RealKafka(listening(address), data_dir) as again:
        users = Users(again, address)
        users.session.wait_for_leaders("theirs", 1)
        users.until("theirs", WRITTEN)
        users.until("mine", WRITTEN)
        assert [users.is_let_in(one) for one in (token, another)] == [True, True]
        admin = AdminClient({"bootstrap.servers": again.bootstrap})
        described = admin.describe_user_scram_credentials([USER])
        assert isinstance(described, dict)
        assert len(described[USER].result(TIMEOUT_S).scram_credential_infos) == 1
        users.session.end()
