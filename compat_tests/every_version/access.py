"""ACLs, log-ins, delegation tokens, and metrics of clients."""

from __future__ import annotations

from typing import Any

from compat_tests.differential import Session
from compat_tests.every_version.turn import Cases, Turn
from compat_tests.security.authorizing import (
    ALLOW,
    ANY,
    LITERAL,
    PASSWORDS,
    TOPIC,
    acl_filter,
    creation,
    until_described,
)
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields

READ, MATCH = 3, 2
NEW = bytes(16)


def _acl(turn: Turn, name: str | None = None) -> Fields:
    return creation(
        TOPIC, turn.name if name is None else name, LITERAL, f"User:{turn.name}", "*", READ, ALLOW
    )


def _filter(turn: Turn, name: str | None = None, operation: int = ANY) -> Fields:
    return acl_filter(TOPIC, name, ANY, f"User:{turn.name}", None, operation, ANY)


def describe_acls(turn: Turn) -> None:
    turn.prepare("CreateAcls", 3, {"creations": [_acl(turn)]})
    until_described(turn.session, _filter(turn), 1)
    turn.ask(_filter(turn))
    turn.ask(_filter(turn, turn.missing))
    turn.ask(_filter(turn, operation=99))
    turn.ask(_filter(turn, operation=0))


def create_acls(turn: Turn) -> None:
    turn.ask({"creations": [_acl(turn), _acl(turn), _acl(turn, "")]})
    turn.ask({"creations": [{**_acl(turn), "principal": "nobody"}]})


def delete_acls(turn: Turn) -> None:
    turn.prepare("CreateAcls", 3, {"creations": [_acl(turn)]})
    until_described(turn.session, _filter(turn), 1)
    turn.ask({"filters": [_filter(turn, turn.missing), _filter(turn), _filter(turn, operation=99)]})


def sasl_handshake(turn: Turn) -> None:
    """A session without an end is not renewed. Version 0 is followed by bare tokens, so nothing more is asked on its
    connection.
    """
    turn.ask({"mechanism": "PLAIN"}, by=turn.owner, note="in a session")
    for mechanism in ("PLAIN", "NONSENSE"):
        _new_connection(turn)
        turn.ask({"mechanism": mechanism}, by=turn.owner)
    _new_connection(turn)


def _new_connection(turn: Turn) -> None:
    turn.owner.close()
    turn.owner.user = None


def sasl_authenticate(turn: Turn) -> None:
    for password in (PASSWORDS["root"], "wrong"):
        _new_connection(turn)
        turn.prepare("SaslHandshake", 1, {"mechanism": "PLAIN"}, by=turn.owner)
        turn.ask({"auth_bytes": f"\0root\0{password}".encode()}, by=turn.owner)
    _new_connection(turn)


def _made(response: Fields) -> Fields:
    """What a token is, belongs to the target."""
    return {
        **response,
        **{key: bool(response[key]) for key in ("token_id", "hmac")},
        **{key: response[key] > 0 for key in response if key.endswith("_timestamp_ms")},
    }


def create_delegation_token(turn: Turn) -> None:
    asked: Fields = {"owner_principal_type": "User", "owner_principal_name": turn.name, "max_lifetime_ms": -1}
    response = turn.ask_unobserved({**asked, "renewers": []}, by=turn.owner)
    turn.observe(_made(response))
    wrong = [{"principal_type": "Nonsense", "principal_name": "x"}]
    turn.observe(_made(turn.ask_unobserved({**asked, "renewers": wrong}, by=turn.owner)), "renewers")
    turn.observe(_made(turn.ask_unobserved({**asked, "renewers": []})), "without a log-in")


def _token(turn: Turn) -> Any:
    """A token of the user `turn.name` that the broker knows."""
    asked: Fields = {"owner_principal_type": "User", "owner_principal_name": "root", "max_lifetime_ms": -1}
    made = turn.prepare("CreateDelegationToken", 3, {**asked, "renewers": []}, by=turn.owner)
    deadline = now_ms() + WAIT_MS
    while made["token_id"] not in [row["token_id"] for row in _tokens(turn.owner)]:
        assert now_ms() < deadline
    return made


def _tokens(owner: Session) -> list[Fields]:
    found: list[Fields] = owner.call_unobserved("DescribeDelegationToken", 3, {"owners": None})["tokens"]
    return found


def describe_delegation_token(turn: Turn) -> None:
    made = _token(turn)
    owners = [{"principal_type": "User", "principal_name": "root"}]
    response = turn.ask_unobserved({"owners": owners}, by=turn.owner)
    mine = [row for row in response["tokens"] if row["token_id"] == made["token_id"]]
    rows = [
        {**row, "token_id": "", "hmac": b""} | {key: row[key] > 0 for key in row if key.endswith("timestamp")}
        for row in mine
    ]
    turn.observe({**response, "tokens": rows})
    turn.ask({"owners": owners}, note="without a log-in")


def renew_delegation_token(turn: Turn) -> None:
    _change_token(turn, "renew_period_ms")


def expire_delegation_token(turn: Turn) -> None:
    _change_token(turn, "expiry_time_period_ms")


def _change_token(turn: Turn, field: str) -> None:
    hmac = _token(turn)["hmac"]
    for one in (hmac, b"nonsense"):
        response = turn.ask_unobserved({"hmac": one, field: 3_600_000}, by=turn.owner)
        turn.observe({**response, "expiry_timestamp_ms": response["expiry_timestamp_ms"] > 0})
    turn.ask({"hmac": hmac, field: -1}, note="without a log-in")


def get_telemetry_subscriptions(turn: Turn) -> None:
    response = turn.ask_unobserved({"client_instance_id": NEW})
    response["subscription_id"] = bool(response["subscription_id"])
    turn.observe(response)
    turn.ask_unobserved({"client_instance_id": response["client_instance_id"]})
    again = turn.ask_unobserved({"client_instance_id": response["client_instance_id"]})
    again["subscription_id"] = bool(again["subscription_id"])
    turn.observe(again, "too soon")


def push_telemetry(turn: Turn) -> None:
    asked = turn.prepare("GetTelemetrySubscriptions", 0, {"client_instance_id": NEW})
    for metrics, wrong in ((b"", 0), (b"", 1)):
        turn.ask(
            {
                "client_instance_id": asked["client_instance_id"],
                "subscription_id": asked["subscription_id"] + wrong,
                "metrics": metrics,
            }
        )
    turn.ask({"client_instance_id": NEW, "metrics": b""})


ACCESS_CASES: Cases = {
    "DescribeAcls": describe_acls,
    "CreateAcls": create_acls,
    "DeleteAcls": delete_acls,
    "SaslHandshake": sasl_handshake,
    "SaslAuthenticate": sasl_authenticate,
    "CreateDelegationToken": create_delegation_token,
    "DescribeDelegationToken": describe_delegation_token,
    "RenewDelegationToken": renew_delegation_token,
    "ExpireDelegationToken": expire_delegation_token,
    "GetTelemetrySubscriptions": get_telemetry_subscriptions,
    "PushTelemetry": push_telemetry,
}
