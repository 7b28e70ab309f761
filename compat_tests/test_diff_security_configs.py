"""Keys for SASL and TLS, set on a broker that has neither: kept and shown, and nothing comes of them on either side.

Client libraries' own test suites set such a key to show that a broker's configuration can be changed.
"""

from typing import Any

import pytest

from compat_tests.batches import now_ms
from compat_tests.definitions import Fields
from compat_tests.differential import Pair, Session

BROKER = 4
NODE_ID = "1"
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_BROKER_CONFIG = 2

# Key -> a text that it may have, and that is not its default.
TEXTS = {
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
    wanted = {"resource_type": BROKER, "resource_name": NODE_ID, "configuration_keys": keys}
    response = session.call_unobserved(
        "DescribeConfigs", 4, {"resources": [wanted], "include_synonyms": True}
    )
    return {row["name"]: row for row in response["results"][0]["configs"]}


def wait_for(session: Session, note: str, values: dict[str, str | None], *, dynamic: bool) -> None:
    """Remember the keys' rows once they say this; Kafka's broker learns of it a moment later, source before value."""
    deadline = now_ms() + 20_000
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


def test_set_and_deleted(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        before = {name: row["value"] for name, row in rows_of(session, sorted(TEXTS)).items()}
        assert before.keys() == TEXTS.keys()
        response = change(session, "set", *((key, SET, text) for key, text in TEXTS.items()))
        assert response["responses"][0]["error_code"] == 0, response
        shown = {**TEXTS, "sasl.jaas.config": None, "sasl.kerberos.ticket.renew.jitter": "1.0"}
        wait_for(session, "set", shown, dynamic=True)
        change(session, "delete", *((key, DELETE, None) for key in TEXTS))
        wait_for(session, "deleted", before, dynamic=False)

    pair.compare(scenario)


def test_lists_and_replaced(pair: Pair) -> None:
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
def test_values_that_are_none(pair: Pair, key: str, text: str) -> None:
    def scenario(session: Session) -> None:
        for name in (NODE_ID, ""):
            response = change(session, f"{name!r}", (key, SET, text), name=name)
            assert response["responses"][0]["error_code"] != 0, response

    pair.compare(scenario)


def test_only_for_one_broker(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        for key, text in TEXTS.items():
            response = change(session, key, (key, SET, text), name="")
            assert response["responses"][0]["error_code"] != 0, response

    pair.compare(scenario)
