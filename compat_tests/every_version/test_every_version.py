"""Every API in every version, in success and in failure: both targets respond with the same bytes.

Responses are decoded by Kafka's definitions and compared field by field; `Connection.receive` sees to it that no other
bytes have the same fields. Only what the rules of `Session` name, and what a case leaves out with a reason, may differ.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from compat_tests.brokers import Broker, checked
from compat_tests.differential import Observations, Pair, Session
from compat_tests.every_version.access import ACCESS_CASES
from compat_tests.every_version.cluster import CLUSTER_CASES
from compat_tests.every_version.groups import GROUP_CASES
from compat_tests.every_version.records import RECORD_CASES
from compat_tests.every_version.share_state import SHARE_STATE_CASES
from compat_tests.every_version.transactions import TRANSACTION_CASES
from compat_tests.every_version.turn import Cases, Turn
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from compat_tests.on_demand import OnDemand
from compat_tests.security.authorizing import PASSWORDS, login_properties, make_authorizing
from oncelog.broker.handlers.table import HANDLERS
from tests.common.definitions import api_key
from tests.common.process import free_ports
from tests.common.recorded.recorder import Recorder

CASES: Cases = (
    RECORD_CASES | GROUP_CASES | SHARE_STATE_CASES | TRANSACTION_CASES | CLUSTER_CASES | ACCESS_CASES
)

EVERY = range(100)
NEVER_SUCCEED: dict[str, tuple[range, str]] = {
    "UnregisterBroker": (EVERY, "there is one broker"),
    "UnregisterController": (EVERY, "there is one controller"),
    "AddRaftVoter": (EVERY, "there is one node"),
    "RemoveRaftVoter": (EVERY, "there is one node"),
    "ElectLeaders": (range(1), "no partition lacks its leader, and the response as a whole has no error"),
}
"""By API the versions in which no request of these tests succeeds, and why."""
NEVER_FAIL: dict[str, tuple[range, str]] = {
    "ApiVersions": (range(3), "the request is empty"),
    "DescribeCluster": (range(1), "the request has nothing that could be wrong"),
    "DescribeGroups": (range(6), "a group that is not there is described as dead"),
    "DescribeLogDirs": (EVERY, "partitions that are not there are left out"),
    "FindCoordinator": (range(1), "every group has a coordinator"),
    "ListConfigResources": (range(1), "the request is empty"),
    "ListGroups": (EVERY, "unknown states are of no group"),
    "ListPartitionReassignments": (EVERY, "partitions that do not move are left out"),
    "ListTransactions": (range(2), "unknown states are told beside the list"),
    "OffsetFetch": (range(9), "what has no offset has the offset -1"),
}
"""Likewise those in which every request succeeds, but for one that is denied (security/test_rights.py)."""
KNOWN = {
    "DescribeShareGroupOffsets": "no name: .*(error_code: -1 != 24)",
    "ShareAcknowledge": "unknown topic: ",
}
"""Differences on purpose (docs/reference/differences.md)."""


class Target(NamedTuple):
    broker: Broker
    login_address: str
    """Where clients log in."""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnDemand[Target]]:
    """Both with an authorizer, which lets the tests do everything. oncelog takes metrics of clients, as Kafka does."""
    folder = tmp_path_factory.mktemp("every_version")
    metrics = {"oncelog": {"oncelog.client.metrics.enable": "true"}, "kafka": {}}

    @contextlib.contextmanager
    def make(name: str) -> Iterator[Target]:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        with make_authorizing(name, folder, login_properties(address) | metrics[name]) as broker:
            with contextlib.closing(Session(broker.bootstrap)) as session:
                wait_for_coordinator(session, name)
            yield Target(broker, address)

    with OnDemand(make) as found, checked(found["oncelog"].broker):
        yield found


@pytest.mark.parametrize("api", CASES)
def test_every_version(answers: Recorder, targets: OnDemand[Target], name: str, api: str) -> None:
    handler = HANDLERS[api_key(api)]
    unexpected = []

    def observe(target: str) -> Observations:
        broker, login_address = targets[target]
        found: Observations = []
        for version in range(handler.min_version, handler.max_version + 1):
            session = Session(broker.bootstrap)
            owner = Session(login_address, user=("root", PASSWORDS["root"]))
            turn = Turn(session, owner, api, version, f"{name}-{version}")
            try:
                CASES[api](turn)
            finally:
                session.end()
                owner.end()
            found += session.observations
            if turn.succeeded == (version in NEVER_SUCCEED.get(api, ((), ""))[0]):
                unexpected.append(f"{target} v{version}: succeeded is {turn.succeeded}")
            if turn.failed == (version in NEVER_FAIL.get(api, ((), ""))[0]):
                unexpected.append(f"{target} v{version}: failed is {turn.failed}")
        return found

    known = (KNOWN[api],) if api in KNOWN else ()
    Pair(answers, lambda target: targets[target].broker.bootstrap).compare_with(observe, known=known)
    assert not unexpected, "\n".join(unexpected)


def test_every_api_that_is_served_has_a_case() -> None:
    assert {api_key(api) for api in CASES} == HANDLERS.keys()
