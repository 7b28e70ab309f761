"""Eight stock clients, unmodified, through the proxy: each commits a transaction and reads its record in a group."""

from collections.abc import Callable

import pytest

from compat_tests.brokers import SharedBrokers, check_after
from compat_tests.differential import make_topic
from compat_tests.nodes.oncelog_cluster import AnyCluster
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from compat_tests.security.logged_in_clients import CLIENTS, Case, Said, Way

TIMEOUT_S = 60.0


def check(run_case: Callable[[str, Case], Said], client: str, bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic)
    value = f"{client} through the proxy"
    said = run_case(client, Case(Way(bootstrap, "PLAINTEXT"), topic, value, TIMEOUT_S))
    assert said == Said(value), said.text


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("before", ["proxy", "proxy-oncelog"])
def test_before_one_node(
    brokers: SharedBrokers, before: str, client: str, name: str, run_case: Callable[[str, Case], Said]
) -> None:
    """A real Kafka, and oncelog itself."""
    for broker in check_after(brokers[before]):
        check(run_case, client, broker.bootstrap, name)


@pytest.mark.parametrize("client", CLIENTS)
def test_before_three_nodes(
    cluster: AnyCluster,
    proxy: OncelogProxy,
    client: str,
    name: str,
    run_case: Callable[[str, Case], Said],
) -> None:
    check(run_case, client, proxy.bootstrap, name)
    assert cluster.leader(name) > 0
