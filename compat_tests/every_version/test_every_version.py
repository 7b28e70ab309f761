"""Every API in every version, in success and in failure: both targets respond with the same bytes.

Responses are decoded by Kafka's definitions and compared field by field; `Connection.receive` sees to it that no other
bytes have the same fields. Only what the rules of `Session` name, and what a case leaves out with a reason, may differ.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from compat_tests.brokers import Broker, check_after
from compat_tests.differential import Session, differences
from compat_tests.every_version.access import ACCESS_CASES
from compat_tests.every_version.cluster import CLUSTER_CASES
from compat_tests.every_version.groups import GROUP_CASES
from compat_tests.every_version.records import RECORD_CASES
from compat_tests.every_version.share_state import SHARE_STATE_CASES
from compat_tests.every_version.transactions import TRANSACTION_CASES
from compat_tests.every_version.turn import Cases, Turn
from compat_tests.group_requests.committed_offsets import wait_for_coordinator
from compat_tests.security.authorizing import PASSWORDS, login_properties, make_authorizing
from oncelog.broker.handlers.table import HANDLERS
from tests.common.definitions import api_key
from tests.common.real_kafka import RealPartMissing, free_ports, require

CASES: Cases = (
    RECORD_CASES | GROUP_CASES | SHARE_STATE_CASES | TRANSACTION_CASES | CLUSTER_CASES | ACCESS_CASES
)
_numbers = itertools.count()

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
"""Differences on purpose (docs/differences.md)."""


class Target(NamedTuple):
    broker: Broker
    login_address: str
    """Where clients log in."""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    """Both with an authorizer, which lets the tests do everything. oncelog takes metrics of clients, as Kafka does."""
    folder = tmp_path_factory.mktemp("every_version")
    metrics = {"oncelog": {"oncelog.client.metrics.enable": "true"}, "kafka": {}}
    with contextlib.ExitStack() as stack:
        found = {}
        for name, port in zip(("kafka", "oncelog"), free_ports(2), strict=True):
            address = f"127.0.0.1:{port}"
            try:
                broker = make_authorizing(name, folder, login_properties(address) | metrics[name])
                found[name] = Target(stack.enter_context(broker), address)
                session = Session(broker.bootstrap)
                wait_for_coordinator(session, name)
                session.end()
            except RealPartMissing as missing:
                require(str(missing))
        for _ in check_after(found["oncelog"].broker):
            yield found


@pytest.mark.parametrize("api", CASES)
def test_every_version(targets: dict[str, Target], api: str) -> None:
    name = f"every-{next(_numbers)}"
    handler = HANDLERS[api_key(api)]
    observed: dict[str, list[tuple[str, Any]]] = {}
    unexpected = []
    for target, (broker, login_address) in targets.items():
        observed[target] = []
        for version in range(handler.min_version, handler.max_version + 1):
            session = Session(broker.bootstrap)
            owner = Session(login_address, user=("root", PASSWORDS["root"]))
            turn = Turn(session, owner, api, version, f"{name}-{version}")
            try:
                CASES[api](turn)
            finally:
                session.end()
                owner.end()
            observed[target] += session.observations
            if turn.succeeded == (version in NEVER_SUCCEED.get(api, ((), ""))[0]):
                unexpected.append(f"{target} v{version}: succeeded is {turn.succeeded}")
            if turn.failed == (version in NEVER_FAIL.get(api, ((), ""))[0]):
                unexpected.append(f"{target} v{version}: failed is {turn.failed}")
    different = [
        one
        for one in differences(observed["kafka"], observed["oncelog"])
        if api not in KNOWN or not re.search(KNOWN[api], one)
    ]
    assert not different, "kafka != oncelog\n" + "\n".join(different[:40])
    assert not unexpected, "\n".join(unexpected)


def test_every_api_that_is_served_has_a_case() -> None:
    assert {api_key(api) for api in CASES} == HANDLERS.keys()
