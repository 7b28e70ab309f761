"""Both targets with Kafka's StandardAuthorizer, and ACLs that are changed while they run.

There is one principal, User:ANONYMOUS, and two hosts: from `ADMIN` it may do everything, which the directories were
formatted with (a Kafka needs it for itself); what it may do from `CLIENT` a test says. Delegation tokens want a log-in:
by PLAIN, User:ANONYMOUS and the super user User:root can.
"""

import base64
import pathlib
import secrets
from collections.abc import Iterable, Iterator, Mapping

from compat_tests.brokers import UNDISTURBED, UNDISTURBED_KAFKA, Broker
from compat_tests.differential import Session
from compat_tests.oncelog_server import Oncelog
from oncelog.broker.metadata import snapshots
from oncelog.broker.seams.os_files import OsFileSystem
from oncelog.wire.stored.metadata import AccessControlEntryRecord, FeatureLevelRecord
from tests.common import facts
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields
from tests.common.real_kafka import RealKafka

ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
ANONYMOUS = "User:ANONYMOUS"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

ANY, ALL, ALLOW, LITERAL = 1, 2, 3, 3
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
CLUSTER_NAME = "kafka-cluster"

Acl = tuple[int, str, int]
"""Resource type, resource name and operation."""

FILTER_KEYS = (
    *("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter"),
    *("host_filter", "operation", "permission_type"),
)
CREATION_KEYS = (
    *("resource_type", "resource_name", "resource_pattern_type", "principal"),
    *("host", "operation", "permission_type"),
)

PROPERTIES = {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:root;User:other",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
}
PASSWORDS = {"ANONYMOUS": "anonymous-secret", "root": "root-secret"}


def login_properties(address: str) -> dict[str, str]:
    """Of a listener with PLAIN at the address, and of delegation tokens."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    return {
        "listeners": f"SASL_PLAINTEXT://{address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "delegation.token.secret.key": "the-key",
    }


def format_directory(
    data_dir: pathlib.Path,
    acls: Iterable[AccessControlEntryRecord],
    levels: Mapping[str, int] = facts.LEVELS,
) -> None:
    """Write what kafka-storage writes, with ACLs."""
    data_dir.mkdir(parents=True)
    cluster_id, directory_id = (
        base64.urlsafe_b64encode(b"o" + secrets.token_bytes(15)).decode().rstrip("=") for _ in range(2)
    )
    rows = {"version": 1, "cluster.id": cluster_id, "directory.id": directory_id, "node.id": 1}
    (data_dir / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    records = [FeatureLevelRecord(name, level) for name, level in levels.items()]
    snapshots.write(
        OsFileSystem(),
        str(data_dir / "bootstrap.checkpoint"),
        [(record, 0) for record in (*records, *acls)],
        epoch=0,
        timestamp=0,
        last_contained_log_timestamp=0,
    )


def admin_acls() -> Iterator[AccessControlEntryRecord]:
    """The records that let the only principal do everything from `ADMIN`."""
    resources = ((TOPIC, "*"), (GROUP, "*"), (CLUSTER, CLUSTER_NAME), (TRANSACTIONAL_ID, "*"))
    for resource_type, name in resources:
        yield AccessControlEntryRecord(
            b"o" + secrets.token_bytes(15), resource_type, name, LITERAL, ANONYMOUS, ADMIN, ALL, ALLOW
        )


def make_authorizing(
    target: str,
    folder: pathlib.Path,
    properties: Mapping[str, str] | None = None,
    levels: Mapping[str, int] = facts.LEVELS,
) -> Broker:
    """A broker of the target with an authorizer, not yet started."""
    data_dir = folder / target
    format_directory(data_dir, admin_acls(), levels)
    settings = {**UNDISTURBED, **PROPERTIES, **(properties or {})}
    if target == "oncelog":
        return Oncelog(settings, data_dir)
    return RealKafka({**UNDISTURBED_KAFKA, **settings}, data_dir)


class Acls:
    """The ACLs of `CLIENT` on one target; a session from `ADMIN` changes them."""

    def __init__(self, admin: Session) -> None:
        self._admin = admin
        self._now: set[Acl] = set()

    def change(self, wanted: Iterable[Acl]) -> None:
        """Return once they, and no others, are in force: Kafka's broker learns of them after the response."""
        after = set(wanted)
        gone, new = sorted(self._now - after), sorted(after - self._now)
        if new:
            rows = [
                {
                    "resource_type": resource_type,
                    "resource_name": name,
                    "resource_pattern_type": LITERAL,
                    "principal": ANONYMOUS,
                    "host": CLIENT,
                    "operation": operation,
                    "permission_type": ALLOW,
                }
                for resource_type, name, operation in new
            ]
            response = self._admin.call_unobserved("CreateAcls", 3, {"creations": rows})
            assert not any(row["error_code"] for row in response["results"]), response
        if gone:
            filters = [
                {
                    "resource_type_filter": resource_type,
                    "resource_name_filter": name,
                    "pattern_type_filter": LITERAL,
                    "principal_filter": ANONYMOUS,
                    "host_filter": CLIENT,
                    "operation": operation,
                    "permission_type": ALLOW,
                }
                for resource_type, name, operation in gone
            ]
            response = self._admin.call_unobserved("DeleteAcls", 3, {"filters": filters})
            assert [len(row["matching_acls"]) for row in response["filter_results"]] == [1] * len(gone)
        self._now = after
        deadline = now_ms() + WAIT_MS
        while (found := self._in_force()) != after:
            assert now_ms() < deadline, (found, after)

    def _in_force(self) -> set[Acl]:
        wanted: Fields = {
            "resource_type_filter": ANY,
            "resource_name_filter": None,
            "pattern_type_filter": ANY,
            "principal_filter": ANONYMOUS,
            "host_filter": CLIENT,
            "operation": ANY,
            "permission_type": ANY,
        }
        response = self._admin.call_unobserved("DescribeAcls", 3, wanted)
        assert response["error_code"] == 0, response
        return {
            (resource["resource_type"], resource["resource_name"], acl["operation"])
            for resource in response["resources"]
            for acl in resource["acls"]
        }


def acl_filter(*values: object) -> Fields:
    return dict(zip(FILTER_KEYS, values, strict=True))


def creation(*values: object) -> Fields:
    return dict(zip(CREATION_KEYS, values, strict=True))


def sorted_acls(response: Fields) -> list[tuple[object, ...]]:
    return sorted(
        (
            resource["resource_type"],
            resource["resource_name"],
            resource["pattern_type"],
            *(acl[key] for key in ("principal", "host", "operation", "permission_type")),
        )
        for resource in response["resources"]
        for acl in resource["acls"]
    )


def until_described(session: Session, wanted: Fields, count: int) -> list[tuple[object, ...]]:
    """The ACLs that match, once there are so many: Kafka's broker learns of a change after the response."""
    deadline = now_ms() + WAIT_MS
    while len(found := sorted_acls(session.call_unobserved("DescribeAcls", 3, wanted))) != count:
        assert now_ms() < deadline, found
    return found
