"""Requests that a cluster of one node refuses: to unregister others, to add or remove voters."""

from __future__ import annotations

import pytest

from compat_tests.differential import Pair, Session
from tests.common.definitions import Fields, versions_of

DIRECTORY = bytes(range(16))
CONTROLLER = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}


def test_unregister_broker(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        for broker_id in (-1, 0, 7):
            session.call("UnregisterBroker", 0, {"broker_id": broker_id}, f"broker {broker_id}")

    pair.compare(scenario)


def test_unregister_controller(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        session.exact_error_messages = True
        for controller_id in (-1, 0, 1, 7):
            values = {"controller_id": controller_id}
            session.call("UnregisterController", 0, values, f"controller {controller_id}")

    pair.compare(scenario)


@pytest.mark.parametrize("version", versions_of("AddRaftVoter"))
def test_add_raft_voter(pair: Pair, version: int) -> None:
    def scenario(session: Session) -> None:
        cluster_id = session.call_unobserved("DescribeCluster", 0)["cluster_id"]
        new: Fields = {
            "cluster_id": None,
            "timeout_ms": 1000,
            "voter_id": 7,
            "voter_directory_id": DIRECTORY,
            "listeners": [CONTROLLER],
        }
        for note, changed in (
            ("new", {}),
            ("with the cluster's id", {"cluster_id": cluster_id}),
            ("itself", {"voter_id": 1}),
            ("another cluster", {"cluster_id": "x"}),
            ("no voter", {"voter_id": -1}),
            ("no directory", {"voter_directory_id": bytes(16)}),
            ("no listener", {"listeners": []}),
            ("another listener", {"listeners": [{**CONTROLLER, "name": "OTHER"}]}),
        ):
            response = session.call_unobserved("AddRaftVoter", version, {**new, **changed})
            session.observe(note, response["error_code"])

    pair.compare(scenario)


def test_remove_raft_voter(pair: Pair) -> None:
    def scenario(session: Session) -> None:
        voter: Fields = {"cluster_id": None, "voter_id": 1, "voter_directory_id": DIRECTORY}
        for note, changed in (
            ("itself", {}),
            ("another", {"voter_id": 7}),
            ("another cluster", {"cluster_id": "x"}),
            ("no voter", {"voter_id": -1}),
            ("no directory", {"voter_directory_id": bytes(16)}),
        ):
            session.call("RemoveRaftVoter", 0, {**voter, **changed}, note)

    pair.compare(scenario)
