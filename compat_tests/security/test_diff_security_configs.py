"""SASL and TLS keys on brokers without SASL and TLS: both targets store and show them, without any effect.

The test suites of client libraries set such a key to show that a broker's configuration can be changed.
"""

from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields

BROKER = 4
NODE_ID = "1"
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_BROKER_CONFIG = 2

# Key -> a valid value that is not the default.
VALUES = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.jaas.config": "org.example.Module required;",
    "sasl.kerberos.service.name": "kafka",
    "sasl.kerberos.kinit.cmd": "/bin/kinit",
    "sasl.kerberos.ticket.renew.window.factor": "0.5",
    "sasl.kerberos.ticket.renew.jitter": "1",
    "sasl.kerberos.min.time.before.relogin": "58000",
    "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1],DEFAULT",
    "sasl.login.refresh.window.factor": "0.6",
    "sasl.login.refresh.window.jitter": "0.001",
    "sasl.login.refresh.min.period.seconds": "5",
    "sasl.login.refresh.buffer.seconds": "7",
    "ssl.client.auth": "requested",
    "ssl.protocol": "TLSv1.2",
    "ssl.provider": "",
    "ssl.enabled.protocols": "TLSv1.3",
    "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
    "ssl.keymanager.algorithm": "PKIX",
    "ssl.trustmanager.algorithm": "SunX509",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.secure.random.implementation": "SHA1PRNG",
}


def rows_of(session: Session, keys: list[str]) -> dict[str, Fields]:
    resource = {"resource_type": BROKER, "resource_name": NODE_ID, "configuration_keys": keys}
    response = session.call_unobserved(
        "DescribeConfigs", 4, {"resources": [resource], "include_synonyms": True}
    )
    return {row["name"]: row for row in response["results"][0]["configs"]}


def wait_for(session: Session, note: str, values: dict[str, str | None], *, dynamic: bool) -> None:
    """Wait until the keys have these values, and observe their rows.

    Kafka's broker learns of a change a moment after the response, and shows its source before its value.
    """
    deadline = now_ms() + WAIT_MS
    while True:
        rows = rows_of(session, sorted(values))
        sources = {row["config_source"] == DYNAMIC_BROKER_CONFIG for row in rows.values()}
        if sources == {dynamic} and {name: row["value"] for name, row in rows.items()} == values:
            session.observe(note, rows)
            return
        assert now_ms() < deadline, rows


def change(session: Session, note: str, *changes: tuple[str, int, str | None], name: str = NODE_ID) -> Any:
    rows = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": BROKER, "resource_name": name, "configs": rows}
    return session.call("IncrementalAlterConfigs", 1, {"resources": [resource]}, note)


def test_set_and_delete(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        before = {name: row["value"] for name, row in rows_of(session, sorted(VALUES)).items()}
        assert before.keys() == VALUES.keys()
        response = change(session, "set", *((key, SET, text) for key, text in VALUES.items()))
        assert response["responses"][0]["error_code"] == 0, response
        shown = {**VALUES, "sasl.jaas.config": None, "sasl.kerberos.ticket.renew.jitter": "1.0"}
        wait_for(session, "set", shown, dynamic=True)
        change(session, "delete", *((key, DELETE, None) for key in VALUES))
        wait_for(session, "deleted", before, dynamic=False)

    pair.compare(scenario)


def test_append_and_replace(pair: Pair) -> None:
    mechanisms, relogin = "sasl.enabled.mechanisms", "sasl.kerberos.min.time.before.relogin"

    def scenario(session: Session) -> None:
        change(session, "append", (mechanisms, APPEND, "PLAIN"), (relogin, SET, "1"))
        wait_for(session, "appended", {mechanisms: "GSSAPI,PLAIN", relogin: "1"}, dynamic=True)
        row = {"resource_type": BROKER, "resource_name": NODE_ID}
        configs = [{"name": relogin, "value": "58000"}]
        session.call("AlterConfigs", 2, {"resources": [{**row, "configs": configs}]}, "replace")
        wait_for(session, "replaced, goes", {mechanisms: "GSSAPI"}, dynamic=False)
        wait_for(session, "replaced, stays", {relogin: "58000"}, dynamic=True)
        session.call("AlterConfigs", 2, {"resources": [{**row, "configs": []}]}, "nothing left")
        wait_for(session, "nothing left", {mechanisms: "GSSAPI", relogin: "60000"}, dynamic=False)

    pair.compare(scenario)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("sasl.kerberos.min.time.before.relogin", "x"),
        ("sasl.kerberos.ticket.renew.jitter", "much"),
        ("sasl.login.refresh.min.period.seconds", "40000"),
        ("sasl.enabled.mechanisms", "PLAIN,,GSSAPI"),
        ("ssl.client.auth", "never"),
    ],
)
def test_invalid_values(pair: Pair, key: str, text: str) -> None:
    def scenario(session: Session) -> None:
        for name in (NODE_ID, ""):
            response = change(session, f"{name!r}", (key, SET, text), name=name)
            assert response["responses"][0]["error_code"] != 0, response

    pair.compare(scenario)


def test_cluster_wide_changes_are_refused(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        for key, text in VALUES.items():
            response = change(session, key, (key, SET, text), name="")
            assert response["responses"][0]["error_code"] != 0, response

    pair.compare(scenario)
