"""Subscriptions to metrics of clients, and levels of loggers, as configuration: what is stored, shown and refused."""

from __future__ import annotations

import pytest

from compat_tests.differential import Pair, Session
from tests.common.definitions import Fields, versions_of

BROKER_LOGGER, CLIENT_METRICS = 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(session: Session, kind: int, name: str, note: str, *changes: tuple[str, int, str | None]) -> None:
    configs = [{"name": key, "config_operation": what, "value": value} for key, what, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    session.call("IncrementalAlterConfigs", 1, {"resources": [resource]}, note)


@pytest.mark.parametrize("version", versions_of("DescribeConfigs"))
def test_subscriptions(pair: Pair, name: str, version: int) -> None:
    def scenario(session: Session) -> None:
        def describe(note: str, keys: list[str] | None = None, of: str = name) -> None:
            resource: Fields = {"resource_type": CLIENT_METRICS, "resource_name": of}
            resource["configuration_keys"] = keys
            request = {"resources": [resource], "include_synonyms": True}
            session.call("DescribeConfigs", version, request, note)

        def listed(note: str) -> None:
            for list_version in versions_of("ListConfigResources"):
                request = {"resource_types": [CLIENT_METRICS]} if list_version else {}
                found = session.call_unobserved("ListConfigResources", list_version, request)
                rows = [row for row in found["config_resources"] if row["resource_name"] == name]
                session.observe(f"{note} {list_version}", rows)

        def until_described(key: str, value: str) -> None:
            """Kafka's broker learns of a change a moment later."""
            resource: Fields = {"resource_type": CLIENT_METRICS, "resource_name": name}
            resource["configuration_keys"] = [key]
            while True:
                response = session.call_unobserved("DescribeConfigs", version, {"resources": [resource]})
                if response["results"][0]["configs"][0]["value"] == value:
                    return

        describe("nothing yet")
        describe("without a name", of="")
        listed("nothing yet")
        alter(session, CLIENT_METRICS, "", "without a name", ("metrics", SET, "a"))
        for note, change in {
            "unknown": ("nonsense", SET, "1"),
            "no number": ("interval.ms", SET, "x"),
            "too short": ("interval.ms", SET, "99"),
            "too long": ("interval.ms", SET, "3600001"),
            "no expression": ("match", SET, "client_id"),
            "two equal signs": ("match", SET, "client_id=a=b"),
            "unknown fact": ("match", SET, "color=a"),
            "wrong expression": ("match", SET, "client_id=["),
            "append": ("metrics", APPEND, "a"),
            "subtract": ("match", SUBTRACT, "a"),
            "null": ("metrics", SET, None),
        }.items():
            alter(session, CLIENT_METRICS, name, note, change)
        alter(
            session,
            CLIENT_METRICS,
            name,
            "set",
            ("metrics", SET, "org.apache.kafka.producer., org.apache.kafka.consumer."),
            ("match", SET, "client_id=nobody.*,client_software_name=x"),
        )
        until_described("match", "client_id=nobody.*,client_software_name=x")
        describe("set")
        describe("one key", ["interval.ms", "nonsense"])
        listed("set")
        alter(session, CLIENT_METRICS, name, "interval", ("interval.ms", SET, "3600000"))
        until_described("interval.ms", "3600000")
        alter(session, CLIENT_METRICS, name, "gone", *((key, DELETE, None) for key in ("metrics", "match")))
        alter(session, CLIENT_METRICS, name, "all gone", ("interval.ms", DELETE, None))
        until_described("interval.ms", "300000")
        describe("gone")
        listed("gone")

    pair.compare(scenario)


def test_levels_of_loggers(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        def level(logger: str) -> list[Fields]:
            resource = {"resource_type": BROKER_LOGGER, "resource_name": "1", "configuration_keys": [logger]}
            [result] = session.call_unobserved("DescribeConfigs", 4, {"resources": [resource]})["results"]
            assert result["error_code"] == 0
            return list(result["configs"])

        before = level("root")[0]["value"]
        for note, name, change in (
            ("no name", "", ("root", SET, "INFO")),
            ("no number", "x", ("root", SET, "INFO")),
            ("another node", "7", ("root", SET, "INFO")),
            ("no such logger", "1", ("nonsense", SET, "INFO")),
            ("no such level", "1", ("root", SET, "LOUD")),
            ("remove root", "1", ("root", DELETE, None)),
            ("append", "1", ("root", APPEND, "INFO")),
            ("unknown operation", "1", ("root", 9, "INFO")),
        ):
            alter(session, BROKER_LOGGER, name, note, change)
            resource = {"resource_type": BROKER_LOGGER, "resource_name": name, "configuration_keys": ["root"]}
            if name != "1":
                session.call("DescribeConfigs", 4, {"resources": [resource]}, f"describe: {note}")
        old = {
            "resource_type": BROKER_LOGGER,
            "resource_name": "1",
            "configs": [{"name": "root", "value": "INFO"}],
        }
        session.call("AlterConfigs", 2, {"resources": [old]}, "AlterConfigs")
        alter(session, BROKER_LOGGER, "1", "set", ("root", SET, "ERROR"))
        session.observe("set", level("root"))
        session.observe("unknown", level("nonsense"))
        alter(session, BROKER_LOGGER, "1", "set back", ("root", SET, before))
        found = session.call_unobserved("ListConfigResources", 1, {"resource_types": [BROKER_LOGGER]})
        session.observe("listed", found["config_resources"])

    pair.compare(scenario, known=("v1 unknown operation: .*error_code: -1 != 42",))
