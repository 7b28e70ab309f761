"""A proxy with a data directory: its own users, ACLs, quotas and tokens outlive it, and nobody else's come in."""

from __future__ import annotations

import base64
import contextlib
import itertools
import random
from typing import Literal

import pytest
import trio.testing

from oncelog.broker.client.connection import ClientConnection
from oncelog.broker.client.errors import AuthenticationError
from oncelog.broker.client.opening import open_connection
from oncelog.broker.credentials.scram import SCRAM_MECHANISMS, salted_password
from oncelog.broker.log.data_directory import DataDirectoryError
from oncelog.broker.metadata.acl_changes import create
from oncelog.broker.proxy.own_metadata import OwnMetadata
from oncelog.broker.proxy.upstream import UpstreamError
from oncelog.broker.requests.request import CloseConnection
from oncelog.broker.seams.clock import MovableClock
from oncelog.broker.security.acl_text import parse_acls
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData, QuotaAlteration
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from oncelog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, EntityData
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.client.security.test_login import password
from tests.harness.clocks import VirtualWall
from tests.harness.log_lines import lines
from tests.harness.requests import produce_request
from tests.harness.sim_broker import EPOCH_MS, SimBroker
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import HOST, PORT, SimProxy
from tests.proxy.test_bad_upstream import single
from tests.proxy.test_logins import BOOTSTRAP, MECHANISMS
from tests.proxy.test_quotas import RECORDS, VERSION
from tests.sim.files import Fault, SimFileSystem, SimulatedCrash

__all__ = ["lines"]  # a fixture

DATA = "/kept"
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
CONFIG = {**MECHANISMS, **AUTHORIZER, "super.users": "User:admin", "delegation.token.secret.key": "a-secret"}
ADMIN = {"admin": "admin-secret"}
SCRAM = "SCRAM-SHA-256"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OK = [0]


def disk(seed: int = 0) -> SimFileSystem:
    files = SimFileSystem(random.Random(seed))
    files.makedirs(DATA)
    files.sync_dir("/")
    return files


def keeping(
    broker: SimBroker,
    files: SimFileSystem,
    config: dict[str, str] = CONFIG,
    *acls: str,
    users: dict[str, str] = ADMIN,
) -> SimProxy:
    return SimProxy(
        broker.open_transport,
        BOOTSTRAP,
        config,
        listeners=("SASL_PLAINTEXT",),
        users=users,
        acls=acls,
        files=files,
        data_dir=DATA,
    )


async def logged_in(
    proxy: SimProxy, name: str = "admin", secret: str = "admin-secret", *, more: str = "", port: int = PORT
) -> ClientConnection:
    return await open_connection(
        proxy.open_transport, HOST, port, security=password(SCRAM, name, secret, more)
    )


def scram(name: str, secret: str) -> AlterUserScramCredentialsRequest:
    mechanism = SCRAM_MECHANISMS[SCRAM]
    salted = salted_password(mechanism, secret, b"salt" * 4, 4096)
    row = ScramCredentialUpsertion(name, mechanism.number, 4096, b"salt" * 4, salted)
    return AlterUserScramCredentialsRequest(upsertions=[row])


def allowed(name: str, topic: str) -> CreateAclsRequest:
    return CreateAclsRequest([AclCreation(2, topic, 3, f"User:{name}", "*", 4, 3)])


def limited(name: str, rate: float) -> AlterClientQuotasRequest:
    entity = [EntityData("user", name)]
    return AlterClientQuotasRequest([QuotaAlteration(entity, [OpData("producer_byte_rate", rate, False)])])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["process", "power"])
def test_what_was_made_through_it_outlives_it(kind: Literal["process", "power"], seed: int) -> None:
    async def main() -> None:
        files = disk(seed)
        async with SimBroker() as broker:
            async with keeping(broker, files) as proxy:
                admin = await logged_in(proxy)
                await admin.call(MetadataRequest([MetadataRequestTopic(name=name) for name in ("t", "u")]))
                results = (await admin.call(scram("app", "app-secret"))).results
                assert [row.error_code for row in results] == OK
                assert [row.error_code for row in (await admin.call(allowed("app", "t"))).results] == OK
                assert [row.error_code for row in (await admin.call(limited("app", 1000))).entries] == OK
                token = await admin.call(CreateDelegationTokenRequest(max_lifetime_ms=-1))
                assert token.error_code == 0
                files.crash(kind)
            async with keeping(broker, files) as proxy:
                hmac = base64.b64encode(bytes(token.hmac)).decode()
                admin = await logged_in(proxy, token.token_id, hmac, more=' tokenauth="true"')
                [quota] = (await admin.call(DescribeClientQuotasRequest([], False))).entries or []
                assert [(row.key, row.value) for row in quota.values] == [("producer_byte_rate", 1000)]
                app = await logged_in(proxy, "app", "app-secret", port=PORT + 1)
                denied = await app.call(produce_request("u", RECORDS), VERSION)
                assert denied.responses[0].partition_responses[0].error_code == DENIED
                response = await app.call(produce_request("t", RECORDS), VERSION)
                assert response.responses[0].partition_responses[0].error_code == 0
                assert response.throttle_time_ms > 0
                # A right that was given before the restart can be taken after it.
                gone = await admin.call(DeleteAclsRequest([DeleteAclsFilter(2, "t", 3, None, None, 1, 1)]))
                assert len(gone.filter_results[0].matching_acls) == 1
                response = await (await logged_in(proxy, "app", "app-secret", port=PORT + 1)).call(
                    produce_request("t", RECORDS), VERSION
                )
                assert response.responses[0].partition_responses[0].error_code == DENIED

    simulated(main)()


THREE = [parse_acls([f"User:app Read topic:t{number}"], "test")[0] for number in range(3)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["process", "power"])
def test_whatever_step_it_dies_in_nothing_acknowledged_is_lost(
    kind: Literal["process", "power"], seed: int
) -> None:
    """Every step of a first start and of three changes."""
    acknowledged = 0
    first = disk().steps
    for step in itertools.count(first):
        files = disk(seed)
        files.crash_at = step
        acknowledged = changes_until_crash(files)
        has_died = files.is_dead
        files.crash(kind)
        found = list(opened(files).store.image.acls.by_id.values())
        assert found == THREE[: len(found)]
        assert acknowledged <= len(found) <= acknowledged + 1
        if not has_died:
            break
    assert step > first + 10
    assert acknowledged == len(THREE)


def changes_until_crash(files: SimFileSystem) -> int:
    """Start anew and make changes. Returns how many were acknowledged."""
    acknowledged = 0
    with contextlib.suppress(SimulatedCrash):
        own = opened(files)
        own.note_cluster("one")
        for acl in THREE:
            assert create(own.store, [acl]) == [None]
            acknowledged += 1
    return acknowledged


def opened(files: SimFileSystem, seed: int = 1) -> OwnMetadata:
    return OwnMetadata(DATA, files, MovableClock(VirtualWall(EPOCH_MS).now_ms), random.Random(seed))


@simulated
async def test_a_change_that_does_not_reach_the_disk_is_refused() -> None:
    files = disk()
    async with SimBroker() as broker, keeping(broker, files) as proxy:
        admin = await logged_in(proxy)
        files.faults.append(Fault("fsync", 5, lambda path: path.endswith(".log")))
        [row] = (await admin.call(allowed("app", "t"))).results
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not proxy.proxy.host.metadata.image.acls.by_id


@simulated
async def test_what_its_options_say_holds_at_each_start() -> None:
    files, acl = disk(), "User:app Read topic:t"
    async with SimBroker() as broker:
        async with keeping(broker, files, CONFIG, acl, users={**ADMIN, "app": "first"}) as proxy:
            admin = await logged_in(proxy)
            await admin.call(scram("app", "by a tool"))
            await admin.call(DeleteAclsRequest([DeleteAclsFilter(2, "t", 3, None, None, 1, 1)]))
            gone = ScramCredentialDeletion("admin", SCRAM_MECHANISMS["SCRAM-SHA-512"].number)
            await admin.call(AlterUserScramCredentialsRequest([gone]))
            assert not proxy.proxy.host.metadata.image.acls.by_id
            await logged_in(proxy, "app", "by a tool")
        async with keeping(broker, files, CONFIG, acl, users={**ADMIN, "app": "second"}) as proxy:
            await logged_in(proxy, "app", "second")
            with pytest.raises(AuthenticationError):
                await logged_in(proxy, "app", "by a tool")
            image = proxy.proxy.host.metadata.image
            assert ("admin", SCRAM_MECHANISMS["SCRAM-SHA-512"].number) in image.scram_credentials
            assert len(image.acls.by_id) == 1
        # What is left out stays, until a tool removes it.
        async with keeping(broker, files) as proxy:
            await logged_in(proxy, "app", "second")
            assert len(proxy.proxy.host.metadata.image.acls.by_id) == 1


async def refusal(proxy: SimProxy) -> BaseException:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with proxy:
            raise AssertionError("it has started")
    return single(caught.value)


@simulated
async def test_another_clusters_directory_is_refused() -> None:
    files = disk()
    async with SimBroker(1) as broker, keeping(broker, files):
        first = broker.node.cluster.cluster_id
    before = files.read_bytes(f"{DATA}/meta.properties")
    async with SimBroker(2) as broker:
        other = broker.node.cluster.cluster_id
        error = await refusal(keeping(broker, files))
        assert isinstance(error, UpstreamError)
        assert str(error) == (
            f"the upstream cannot be used: simulated:9092: it is cluster {other}, and the users and ACLs in {DATA} are "
            f"for cluster {first}: take another --data-dir, or change cluster.id in its meta.properties"
        )
        assert files.read_bytes(f"{DATA}/meta.properties") == before
        files.replace(f"{DATA}/meta.properties", before.replace(first.encode(), other.encode()))
        async with keeping(broker, files):
            pass


def test_a_cluster_that_is_told_late() -> None:
    files = disk()
    opened(files).close()
    own = opened(files)
    own.note_cluster("one")
    own.close()
    own = opened(files)
    own.note_cluster("one")
    with pytest.raises(CloseConnection, match="it is cluster two, and the users and ACLs"):
        own.note_cluster("two")


@simulated
async def test_two_proxies_on_one_directory() -> None:
    files = disk()
    async with SimBroker() as broker, keeping(broker, files):
        error = await refusal(keeping(broker, files))
        assert isinstance(error, DataDirectoryError)
        assert str(error) == f"the data directory {DATA} is in use by another process"


@simulated
async def test_a_proxy_that_could_not_start_lets_go_of_the_directory() -> None:
    files = disk()
    async with SimBroker() as broker:

        async def refused(host: str, port: int) -> None:
            raise ConnectionRefusedError(111, "Connection refused")

        proxy = SimProxy(refused, BOOTSTRAP, files=files, data_dir=DATA)  # type: ignore[arg-type]
        assert isinstance(await refusal(proxy), UpstreamError)
        async with keeping(broker, files):
            pass


@simulated
async def test_the_directory_of_a_broker_is_refused() -> None:
    async with SimBroker() as broker:
        await broker.stop()
        proxy = SimProxy(broker.open_transport, BOOTSTRAP, files=broker.files, data_dir="/data")
        error = await refusal(proxy)
        assert isinstance(error, DataDirectoryError)
        assert str(error) == "/data/meta.properties is of a broker: a proxy needs a data directory of its own"
        await broker.start()


@simulated
async def test_acls_that_are_not_in_force_are_told(lines: list[str]) -> None:
    files, said = disk(), "the ACLs in the data directory are not in force"
    async with SimBroker() as broker:
        async with keeping(broker, files, CONFIG, "User:app Read topic:t"):
            pass
        assert not [line for line in lines if said in line]
        async with keeping(broker, files, MECHANISMS):
            pass
        assert len([line for line in lines if said in line and "acls=1" in line]) == 1


@simulated
async def test_stored_quotas_of_hosts_hold_from_the_start() -> None:
    """The host's address is looked up anew. 127.1 is a name that needs no name server."""
    files, host = disk(), "127.1"
    async with SimBroker() as broker:
        async with keeping(broker, files) as proxy:
            admin = await logged_in(proxy)
            change = OpData("connection_creation_rate", 7, False)
            entry = QuotaAlteration([EntityData("ip", host)], [change])
            [row] = (await admin.call(AlterClientQuotasRequest([entry]))).entries
            assert row.error_code == 0
        async with keeping(broker, files) as proxy:
            await trio.testing.wait_all_tasks_blocked()
            names = proxy.proxy.host.host_names
            assert names.address(host) == "127.0.0.1"


@simulated
async def test_without_a_directory_nothing_is_kept() -> None:
    files = disk()
    async with SimBroker() as broker:
        for _ in range(2):
            proxy = SimProxy(
                broker.open_transport,
                BOOTSTRAP,
                CONFIG,
                listeners=("SASL_PLAINTEXT",),
                users=ADMIN,
                files=files,
            )
            async with proxy:
                with pytest.raises(KafkaError):
                    await logged_in(proxy, "app", "app-secret")
                await (await logged_in(proxy)).call(scram("app", "app-secret"))
                await logged_in(proxy, "app", "app-secret")
    assert files.listdir(DATA) == []
