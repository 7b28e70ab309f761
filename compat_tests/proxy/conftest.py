"""The proxy before a cluster of three nodes; the stock clients' programs."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from compat_tests.nodes.oncelog_cluster import AnyCluster
from compat_tests.proxy.oncelog_proxy import OncelogProxy
from compat_tests.security.client_programs import running
from compat_tests.security.logged_in_clients import Case, Said
from tests.common.jars import RealPartMissing, require


@pytest.fixture(scope="module")
def proxy(cluster: AnyCluster) -> Iterator[OncelogProxy]:
    """A proxy before the module's cluster; it logs no traceback."""
    with OncelogProxy(cluster.bootstrap_servers) as started:
        yield started
        assert not started.tracebacks, started.output()[-3000:]
        assert started.running, started.output()[-3000:]


@pytest.fixture(scope="package")
def run_case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Case], Said]]:
    """`run_case(client, case)`: what the stock client said; its program starts when it is first asked for."""
    started: dict[str, Callable[[Case], Said]] = {}
    folder = tmp_path_factory.mktemp("programs")
    with contextlib.ExitStack() as stack:

        def run(client: str, case: Case) -> Said:
            if client not in started:
                try:
                    started[client] = stack.enter_context(running(client, folder))
                except RealPartMissing as missing:
                    require(str(missing))
            return started[client](case)

        yield run
