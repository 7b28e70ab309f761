"""A proxy with ACLs before an open Kafka answers as a Kafka with these ACLs, row by row of the table of rights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from compat_tests.brokers import UNDISTURBED, UNDISTURBED_KAFKA, Broker
from compat_tests.differential import Session, differences
from compat_tests.proxy.running_proxy import RunningProxy
from compat_tests.security.authorizing import (
    ADMIN,
    ANONYMOUS,
    CLIENT,
    PROPERTIES,
    Acls,
    login_properties,
    make_authorizing,
)
from compat_tests.security.rights import Case, Names
from compat_tests.security.rights_page import ALL_CASES
from compat_tests.security.test_rights import IDS, run
from tests.common.real_kafka import RealKafka, RealPartMissing, free_ports, require

_numbers = itertools.count()
OPEN = {key: text for key, text in PROPERTIES.items() if key not in ("authorizer.class.name", "super.users")}


@pytest.fixture(scope="module")
def proxy() -> Iterator[RunningProxy]:
    """Before an open Kafka, with the rights that the directories of `authorizing` begin with."""
    acls = [
        word
        for resource in ("topic:*", "group:*", "transactional-id:*", "cluster")
        for word in ("--acl", f"{ANONYMOUS} All {resource} from {ADMIN}")
    ]
    logins = {
        key: text for key, text in login_properties("x").items() if key.startswith(("listener.name", "d"))
    }
    settings = {"super.users": PROPERTIES["super.users"], "sasl.enabled.mechanisms": "PLAIN", **logins}
    words = [word for key, text in settings.items() for word in ("-c", f"{key}={text}")]
    try:
        with (
            RealKafka({**UNDISTURBED_KAFKA, **UNDISTURBED, **OPEN}) as kafka,
            RunningProxy(kafka.bootstrap, ["PLAINTEXT", "SASL_PLAINTEXT"], [*acls, *words]) as found,
        ):
            yield found
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """A Kafka with ACLs, and where clients log in."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    folder = tmp_path_factory.mktemp("judge")
    try:
        with make_authorizing("kafka", folder, login_properties(address)) as broker:
            yield broker, address
    except RealPartMissing as missing:
        require(str(missing))


@pytest.fixture(scope="module")
def admins(proxy: RunningProxy, judge: tuple[Broker, str]) -> Iterator[dict[str, tuple[Session, Acls]]]:
    sessions = {"proxy": Session(proxy.node), "kafka": Session(judge[0].bootstrap)}
    yield {name: (session, Acls(session)) for name, session in sessions.items()}
    for session in sessions.values():
        session.end()


CASES = [case for case in ALL_CASES if case.note != "for two-phase commit"]
"""All but an unstable version, which the cluster does not announce."""


@pytest.mark.parametrize("case", CASES, ids=[name for name in IDS if "two-phase" not in name])
def test_rights(
    case: Case,
    proxy: RunningProxy,
    judge: tuple[Broker, str],
    admins: dict[str, tuple[Session, Acls]],
) -> None:
    number = next(_numbers)
    names = Names(f"topic-{number}", f"missing-{number}", f"group-{number}", f"id-{number}")
    names = names._replace(owner=f"owner-{number}", share_group=f"share-{number}")
    where = {
        "kafka": (judge[0].bootstrap, judge[1]),
        "proxy": (proxy.node, proxy.addresses["SASL_PLAINTEXT"]),
    }
    observed = {name: run(case, names, *admins[name], *where[name])[0] for name in where}
    different = list(differences(observed["kafka"], observed["proxy"]))
    if case.note == "of a replica":  # by ids, which this request does not have: no client sends that
        different = [line for line in different if not line.startswith(("v13", "v14"))]
    if case.api == "AlterShareGroupOffsets":  # the proxy need not know the ids of topics that are denied
        different = [line for line in different if ".topic_id: " not in line]
    assert not different, "kafka != proxy\n" + "\n".join(different[:40])


def test_metrics_of_clients_need_no_right(proxy: RunningProxy, judge: tuple[Broker, str]) -> None:
    """Kafka does not announce these APIs without a plug-in that takes the metrics, but serves them."""
    codes = {}
    for name, bootstrap in (("kafka", judge[0].bootstrap), ("proxy", proxy.node)):
        client = Session(bootstrap, CLIENT)
        asked = client.call_unobserved("GetTelemetrySubscriptions", 0, {"client_instance_id": bytes(16)})
        push = {key: asked[key] for key in ("client_instance_id", "subscription_id")}
        pushed = client.call_unobserved("PushTelemetry", 0, {**push, "metrics": b""})
        codes[name] = asked["error_code"], pushed["error_code"]
        client.end()
    assert codes["kafka"] == codes["proxy"] == (0, 0)
