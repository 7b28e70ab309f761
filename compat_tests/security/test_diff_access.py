"""ACLs, quotas and credentials where there are none, and their changes: both brokers respond alike."""

import math

import pytest

from compat_tests.differential import Pair, Session
from tests.common import facts
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields, versions_of

pytestmark = pytest.mark.also_on("proxy")

ACL: Fields = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}


@pytest.mark.parametrize("version", versions_of("DescribeAcls"))
def test_acls_without_an_authorizer(pair: Pair, name: str, version: int) -> None:
    """The errors by which MirrorMaker, kafka-acls and user interfaces recognise a cluster without ACLs."""

    def scenario(session: Session) -> None:
        for resource, pattern in ((2, 3), (2, 4), (4, 3), (1, 1)):
            shared = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
            acl_filter: Fields = {"resource_type_filter": resource, "resource_name_filter": None, **shared}
            acl_filter["pattern_type_filter"] = pattern
            session.call("DescribeAcls", version, acl_filter, f"describe {resource}, {pattern}")
            session.call(
                "DeleteAcls", version, {"filters": [acl_filter] * 2}, f"delete {resource}, {pattern}"
            )
        session.call("DeleteAcls", version, {"filters": []}, "delete nothing")
        for resource, text in ((2, name), (2, ""), (4, "other")):
            row = {"resource_type": resource, "resource_name": text, "resource_pattern_type": 3, **ACL}
            session.call("CreateAcls", version, {"creations": [row, row]}, f"create {resource}, {text}")
        session.call("CreateAcls", version, {"creations": []}, "create nothing")
        # An enum's UNKNOWN (0) closes the connection.
        for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
            row = {"resource_type": 2, "resource_name": name, "resource_pattern_type": 3, **ACL, field: 0}
            session.call("CreateAcls", version, {"creations": [row]}, f"create, unknown {field}")
        for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
            acl_filter = {
                "resource_type_filter": 2,
                "pattern_type_filter": 3,
                "operation": 3,
                "permission_type": 3,
            }
            acl_filter |= {"resource_name_filter": "a", "principal_filter": "b", "host_filter": "c", field: 0}
            session.call("DescribeAcls", version, acl_filter, f"describe, unknown {field}")
            session.call("DeleteAcls", version, {"filters": [acl_filter]}, f"delete, unknown {field}")

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("DescribeClientQuotas"))
def test_client_quotas_without_any(pair: Pair, version: int) -> None:
    def component(kind: str, match_type: int, match: str | None) -> Fields:
        return {"entity_type": kind, "match_type": match_type, "match": match}

    def scenario(session: Session) -> None:
        kinds = [component(kind, 1, None) for kind in ("user", "client-id", "ip", "group", "")]
        filters: list[list[Fields]] = [[], *([kind] for kind in kinds), kinds[:2], kinds[:3], kinds[1:3]]
        filters += [[kinds[0]] * 2, [kinds[3], kinds[4]], [kinds[4], kinds[3]]]
        filters += [
            [component("user", match_type, match)] for match_type in (0, 2, 3, -1) for match in ("a", None)
        ]
        for components in filters:
            for strict in (False, True):
                session.call(
                    "DescribeClientQuotas",
                    version,
                    {"components": components, "strict": strict},
                    f"{components}, {strict}",
                )

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("AlterClientQuotas"))
def test_client_quotas_are_altered_and_described(pair: Pair, version: int, name: str) -> None:
    def scenario(session: Session) -> None:
        def alter(
            step: str, *entries: tuple[Fields, dict[str, float | None]], validate: bool = False
        ) -> None:
            rows = [
                {
                    "entity": [{"entity_type": kind, "entity_name": one} for kind, one in entity.items()],
                    "ops": [
                        {"key": key, "value": value or 0.0, "remove": value is None}
                        for key, value in values.items()
                    ],
                }
                for entity, values in entries
            ]
            session.call("AlterClientQuotas", version, {"entries": rows, "validate_only": validate}, step)

        def describe(step: str, *components: tuple[str, int, str | None]) -> None:
            rows = [dict(zip(("entity_type", "match_type", "match"), one, strict=True)) for one in components]
            for strict in (False, True):
                session.call("DescribeClientQuotas", 1, {"components": rows, "strict": strict}, step)

        def until_seen(values: int) -> None:
            """Wait until the broker has heard of the controller's change: the user's entities have so many values."""
            rows = [{"entity_type": "user", "match_type": 0, "match": name}]
            deadline = now_ms() + WAIT_MS
            while True:
                found = session.call_unobserved(
                    "DescribeClientQuotas", 1, {"components": rows, "strict": False}
                )
                if sum(len(entry["values"]) for entry in found["entries"]) == values:
                    return
                assert now_ms() < deadline, found

        user: Fields = {"user": name}
        rate: dict[str, float | None] = {"producer_byte_rate": 1e9}
        alter("validate only", (user, rate), validate=True)
        describe("nothing yet", ("user", 0, name))
        refused: list[tuple[Fields, dict[str, float | None]]] = [
            ({}, rate),
            ({"user": ""}, rate),
            ({"group": name}, rate),
            ({"ip": "10.0.0.1", **user}, rate),
            ({"ip": "10.0.0.1"}, rate),
            ({"ip": "300.0.0.1"}, {"connection_creation_rate": 1.0}),
            ({"ip": "10.0.0.1"}, {"connection_creation_rate": 1.5}),
            ({"ip": "10.0.0.1"}, {"connection_creation_rate": 2.0**31}),
            ({"ip": "10.0.0.1"}, {"connection_creation_rate": 0.0}),
            (user, {"connection_creation_rate": 1.0}),
            (user, {"producer_byte_rate": -1.0}),
            (user, {"producer_byte_rate": 1.5}),
            (user, {"consumer_byte_rate": 1e19}),
            (user, {"controller_mutation_rate": -0.5}),
            (user, {"nonsense": 1.0}),
            (user, {"nonsense": None}),
            (user, {"producer_byte_rate": None}),
        ]
        for entity, values in refused:
            alter(f"{entity}, {values}", (entity, values))
        alter("set", (user, {**rate, "request_percentage": 1e6}))
        alter("the same", (user, rate))
        until_seen(2)
        describe("set", ("user", 0, name))
        alter("one of the user's", ({**user, "client-id": "no such"}, {"consumer_byte_rate": 1e9}))
        until_seen(3)
        describe("one of the user's", ("user", 0, name), ("client-id", 0, "no such"))
        describe("any of the user's", ("user", 0, name), ("client-id", 2, None))
        describe("the default of the user's", ("user", 0, name), ("client-id", 1, None))
        alter("twice", (user, rate), (user, rate))
        nothing: dict[str, float | None] = dict.fromkeys(("producer_byte_rate", "request_percentage"))
        alter("removed", (user, nothing))
        alter("all removed", ({**user, "client-id": "no such"}, {"consumer_byte_rate": None}))
        until_seen(0)
        describe("removed", ("user", 0, name))

    pair.compare(scenario)


def test_scram_credentials_of_unknown_users(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        for users in (None, [], ["a"], ["a", "a"], ["a", "a", "a"], [""]):
            rows = None if users is None else [{"name": user} for user in users]
            session.call("DescribeUserScramCredentials", 0, {"users": rows}, str(users))

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("SaslHandshake"))
def test_a_log_in_where_the_listener_wants_none(pair: Pair, version: int) -> None:
    def scenario(session: Session) -> None:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "GSSAPI", ""):
            session.call("SaslHandshake", version, {"mechanism": mechanism}, f"by {mechanism!r}")
        for token_version in versions_of("SaslAuthenticate"):
            for token in (b"\0app\0app-secret", b"n,,n=app,r=x", b""):
                session.call("SaslAuthenticate", token_version, {"auth_bytes": token}, f"{token!r}")
        session.call("SaslHandshake", version, {"mechanism": "PLAIN"}, "again")

    pair.compare(scenario)


@facts.needs(facts.REFUSES_INFINITE_QUOTAS, "check for infinite quotas")
def test_quotas_that_are_no_numbers(pair: Pair, name: str) -> None:
    """Checked before all else about a value, and nothing is changed."""

    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        for entity, key in (("user", "producer_byte_rate"), ("user", "request_percentage"), ("ip", "nix")):
            entity_name = None if entity == "ip" else name
            for value in (math.inf, -math.inf, math.nan, -1.0):
                rows = [
                    {
                        "entity": [{"entity_type": entity, "entity_name": entity_name}],
                        "ops": [{"key": key, "value": value, "remove": False}],
                    }
                ]
                values = {"entries": rows, "validate_only": False}
                session.call("AlterClientQuotas", 1, values, f"{entity} {key} {value}")
        ip = [{"entity_type": "ip", "entity_name": None}]
        ops = [{"key": "connection_creation_rate", "value": math.inf, "remove": False}]
        session.call("AlterClientQuotas", 1, {"entries": [{"entity": ip, "ops": ops}], "validate_only": True})
        user = [{"entity_type": "user", "match_type": 0, "match": name}]
        session.call("DescribeClientQuotas", 1, {"components": user, "strict": False})

    pair.compare(scenario)
