"""Both targets with an authorizer, shared by the tests of rights and ACLs."""

import contextlib
from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, checked
from compat_tests.differential import Pair, Session
from compat_tests.on_demand import OnDemand
from compat_tests.security.authorizing import Acls, login_properties, make_authorizing
from tests.common.process import free_ports
from tests.common.recorded.recorder import Recorder


@pytest.fixture(scope="package")
def login_addresses() -> dict[str, str]:
    """The addresses at which clients log in to the brokers of `authorizing`, by target."""
    return {name: f"127.0.0.1:{port}" for name, port in zip(("kafka", "oncelog"), free_ports(2), strict=True)}


@pytest.fixture(scope="package")
def authorizing(
    tmp_path_factory: pytest.TempPathFactory, login_addresses: dict[str, str]
) -> Iterator[OnDemand[Broker]]:
    """The brokers by target. oncelog logs no traceback."""
    folder = tmp_path_factory.mktemp("authorizing")

    def make(name: str) -> Broker:
        return make_authorizing(name, folder, login_properties(login_addresses[name]))

    with OnDemand(make) as found, checked(found["oncelog"]):
        yield found


@pytest.fixture(scope="package")
def admins(authorizing: OnDemand[Broker]) -> Iterator[OnDemand[tuple[Session, Acls]]]:
    """By target, a session of an administrator, and the ACLs of the client."""

    @contextlib.contextmanager
    def make(name: str) -> Iterator[tuple[Session, Acls]]:
        session = Session(authorizing[name].bootstrap)
        yield session, Acls(session)
        session.end()

    with OnDemand(make) as found:
        yield found


@pytest.fixture
def authorized_pair(answers: Recorder, authorizing: OnDemand[Broker]) -> Pair:
    """Both of `authorizing`."""
    return Pair(answers, lambda target: authorizing[target].bootstrap)
