"""A proxy with ACLs before an open Kafka answers as a Kafka with these ACLs, row by row of the table of rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from compat_tests.brokers import UNDISTURBED, UNDISTURBED_KAFKA, make_broker
from compat_tests.differential import Observations, Pair, Session
from compat_tests.on_demand import OnDemand
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
from compat_tests.security.rights import Case
from compat_tests.security.rights_page import ALL_CASES
from compat_tests.security.test_rights import IDS, names_for, run
from tests.common.process import free_ports
from tests.common.recorded.recorder import Recorder

OPEN = {key: text for key, text in PROPERTIES.items() if key not in ("authorizer.class.name", "super.users")}


@pytest.fixture(scope="module")
def proxy(upstream: str) -> Iterator[RunningProxy]:
    """Before an open broker, with the rights that the directories of `authorizing` begin with."""
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
    more = UNDISTURBED_KAFKA if upstream == "kafka" else {"oncelog.client.metrics.enable": "true"}
    with (
        OnDemand(lambda target: make_broker(target, {**more, **UNDISTURBED, **OPEN})) as brokers,
        RunningProxy(brokers[upstream].bootstrap, ["PLAINTEXT", "SASL_PLAINTEXT"], [*acls, *words]) as found,
    ):
        yield found


class Way(NamedTuple):
    """How clients reach the proxy, or a Kafka with ACLs."""

    bootstrap: str
    login_address: str
    admin: Session
    acls: Acls


@pytest.fixture(scope="module")
def ways(proxy: RunningProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDemand[Way]]:
    @contextlib.contextmanager
    def make(target: str) -> Iterator[Way]:
        with contextlib.ExitStack() as stack:
            bootstrap, address = proxy.node, proxy.addresses["SASL_PLAINTEXT"]
            if target == "kafka":
                address = f"127.0.0.1:{free_ports(1)[0]}"
                judge = make_authorizing("kafka", tmp_path_factory.mktemp("judge"), login_properties(address))
                bootstrap = stack.enter_context(judge).bootstrap
            session = Session(bootstrap)
            stack.callback(session.end)
            yield Way(bootstrap, address, session, Acls(session))

    with OnDemand(make) as found:
        yield found


@pytest.fixture
def pair(answers: Recorder, ways: OnDemand[Way]) -> Pair:
    return Pair(answers, lambda target: ways[target].bootstrap, ["proxy"])


CASES = [case for case in ALL_CASES if case.note != "for two-phase commit"]
"""All but an unstable version, which the cluster does not announce."""


@pytest.mark.parametrize("case", CASES, ids=[name for name in IDS if "two-phase" not in name])
def test_rights(case: Case, name: str, pair: Pair, ways: OnDemand[Way]) -> None:
    def observe(target: str) -> Observations:
        way = ways[target]
        return run(case, names_for(name), way.admin, way.acls, way.bootstrap, way.login_address)[0]

    known = []
    if case.note == "of a replica":  # by ids, which this request does not have: no client sends that
        known.append("^v1[34]")
    if case.api == "AlterShareGroupOffsets":  # the proxy need not know the ids of topics that are denied
        known.append(r"\.topic_id: ")
    pair.compare_with(observe, known=tuple(known))


def test_metrics_of_clients_need_no_right(pair: Pair) -> None:
    """Kafka does not announce these APIs without a plug-in that takes the metrics, but serves them."""

    def observe(target: str) -> Observations:
        client = Session(pair.bootstrap(target), CLIENT)
        asked = client.call_unobserved("GetTelemetrySubscriptions", 0, {"client_instance_id": bytes(16)})
        push = {key: asked[key] for key in ("client_instance_id", "subscription_id")}
        pushed = client.call_unobserved("PushTelemetry", 0, {**push, "metrics": b""})
        client.end()
        assert (asked["error_code"], pushed["error_code"]) == (0, 0)
        return [("asked", asked["error_code"]), ("pushed", pushed["error_code"])]

    pair.compare_with(observe)
