"""The broker's handlers that a proxy calls with its `Host`: mypy checks here that they use nothing that it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.handlers import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_delegation_token,
    describe_user_scram_credentials,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
)
from oncelog.broker.proxy.own_access import LOGIN_AND_TOKEN_APIS, OWN_APIS

if TYPE_CHECKING:
    from oncelog.broker.proxy.own_access import AccessHandle

HANDLES: list[AccessHandle] = [
    alter_client_quotas.handle,
    alter_user_scram_credentials.handle,
    create_acls.handle,
    create_delegation_token.handle,
    delete_acls.handle,
    describe_acls.handle,
    describe_client_quotas.handle,
    describe_delegation_token.handle,
    describe_user_scram_credentials.handle,
    expire_delegation_token.handle,
    renew_delegation_token.handle,
    sasl_authenticate.handle,
    sasl_handshake.handle,
]


def test_each_handler_that_a_proxy_calls_is_one_of_these() -> None:
    names = {handle.__module__.rpartition(".")[2] for handle in HANDLES}
    assert names == {*OWN_APIS, *LOGIN_AND_TOKEN_APIS}
