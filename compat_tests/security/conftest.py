"""Both targets with an authorizer, shared by the tests of rights and ACLs."""

import contextlib
from collections.abc import Iterator

import pytest

from compat_tests.brokers import Broker, check_after
from compat_tests.differential import Session
from compat_tests.security.authorizing import Acls, login_properties, make_authorizing
from tests.common.real_kafka import RealPartMissing, free_ports, require


@pytest.fixture(scope="package")
def login_addresses() -> dict[str, str]:
    """The addresses at which clients log in to the brokers of `authorizing`, by target."""
    return {name: f"127.0.0.1:{port}" for name, port in zip(("kafka", "oncelog"), free_ports(2), strict=True)}


@pytest.fixture(scope="package")
def authorizing(
    tmp_path_factory: pytest.TempPathFactory, login_addresses: dict[str, str]
) -> Iterator[dict[str, Broker]]:
    """The brokers by target. oncelog logs no traceback."""
    folder = tmp_path_factory.mktemp("authorizing")
    with contextlib.ExitStack() as stack:
        try:
            found = {
                name: stack.enter_context(make_authorizing(name, folder, login_properties(address)))
                for name, address in login_addresses.items()
            }
        except RealPartMissing as missing:
            require(str(missing))
        for _ in check_after(found["oncelog"]):
            yield found


@pytest.fixture(scope="package")
def admins(authorizing: dict[str, Broker]) -> Iterator[dict[str, tuple[Session, Acls]]]:
    """By target, a session of an administrator, and the ACLs of the client."""
    sessions = {name: Session(broker.bootstrap) for name, broker in authorizing.items()}
    yield {name: (session, Acls(session)) for name, session in sessions.items()}
    for session in sessions.values():
        session.end()
