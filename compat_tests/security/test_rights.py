"""Every row of the table of rights on both targets, with every subset of the rights that an API asks for.

With a subset both answer alike, field by field; without a right the answer is the one of its row; and it does not
betray whether a topic exists.
"""

import itertools
import pathlib
from typing import Any

import pytest

from compat_tests.brokers import TARGETS
from compat_tests.differential import Observations, Pair, Session
from compat_tests.on_demand import OnDemand
from compat_tests.security.authorizing import CLIENT, CLUSTER_NAME, PASSWORDS, Acl, Acls
from compat_tests.security.rights import (
    ERRORS,
    LEFT_OUT,
    OPERATIONS,
    RESOURCES,
    TOPIC_FAILED,
    TOPIC_KEYS,
    ZERO,
    Case,
    Names,
    Right,
    in_order,
)
from compat_tests.security.rights_page import ALL_CASES, page
from oncelog.broker.handlers.table import HANDLERS
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields, api_key

IDS = [f"{case.api} v{case.version} {case.note}".strip() for case in ALL_CASES]
STILL = (14, 15, 16, 51)
"""Errors of a coordinator that is not there yet."""
UNKNOWN_TOPIC = 3
OWNER_MISMATCH = 63
ROOT = pathlib.Path(__file__).parents[2]


def until_ready(
    session: Session, api: str, version: int, values: Fields, still: tuple[int, ...] = STILL
) -> Any:
    """The response, once it has none of these errors."""
    deadline = now_ms() + WAIT_MS
    while True:
        response = session.call_unobserved(api, version, values)
        if not any(code in still for code in codes_of(response)):
            return response
        assert now_ms() < deadline, response


def codes_of(value: Any) -> list[int]:
    """All error codes of a response."""
    if isinstance(value, dict):
        return [
            code
            for key, one in value.items()
            for code in ([one] if key.endswith("error_code") else codes_of(one))
        ]
    return [code for one in value for code in codes_of(one)] if isinstance(value, list | tuple) else []


def prepare(admin: Session, names: Names) -> Names:
    """Make the topic, the group with an offset, and the transactional id. Returns the names with the topic's id."""
    topic_id = admin.topic(names.topic)
    for key_type, key in ((0, names.group), (1, names.id)):
        until_ready(admin, "FindCoordinator", 3, {"key_type": key_type, "key": key})
    row = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    commit: Fields = {"group_id": names.group, "generation_id_or_member_epoch": -1}
    commit["topics"] = [{"name": names.topic, "partitions": [row]}]
    assert codes_of(until_ready(admin, "OffsetCommit", 8, commit)) == [0]
    start: Fields = {"topic_name": names.topic}
    start["partitions"] = [{"partition_index": 0, "start_offset": 0}]
    alter = {"group_id": names.share_group, "topics": [start]}
    # A Kafka's group coordinator knows a new topic later than the partition's leader does.
    altered = until_ready(admin, "AlterShareGroupOffsets", 0, alter, (*STILL, UNKNOWN_TOPIC))
    assert set(codes_of(altered)) == {0}, altered
    init = {"transactional_id": names.id, "transaction_timeout_ms": 60000}
    assert codes_of(until_ready(admin, "InitProducerId", 4, init)) == [0]
    return names._replace(topic_id=topic_id)


def prepare_token(address: str, names: Names) -> Names:
    """Make a delegation token for the owner. Returns the names with it, once the broker knows it."""
    root = Session(address, user=("root", PASSWORDS["root"]))
    owner = {"owner_principal_type": "User", "owner_principal_name": names.owner, "max_lifetime_ms": -1}
    created = root.call_unobserved("CreateDelegationToken", 3, {**owner, "renewers": []})
    assert created["error_code"] == 0, created
    asked: Fields = {"owners": [{"principal_type": "User", "principal_name": names.owner}]}
    deadline = now_ms() + WAIT_MS
    while not root.call_unobserved("DescribeDelegationToken", 3, asked)["tokens"]:
        assert now_ms() < deadline
    root.end()
    return names._replace(token_id=created["token_id"], hmac=created["hmac"])


def acls_of(right: Right, names: Names) -> list[Acl]:
    """The ACLs that give the right on everything that the case is about."""
    about = {
        "topic": (names.topic, names.missing),
        "group": (names.group, names.missing, names.share_group),
        "cluster": (CLUSTER_NAME,),
        "transactional id": (names.id,),
        "delegation token": (names.token_id,),
        "user": (f"User:{names.owner}",),
    }
    kind, operation = RESOURCES[right.resource], OPERATIONS[right.operation]
    return [(kind, name, operation) for name in about[right.resource]]


def subsets(case: Case) -> list[tuple[Right, ...]]:
    """Every set of the rights that the API asks for, the smaller ones first."""
    groups = (case.also, *case.rights)
    by_key = {(one.operation, one.resource): one for group in groups for one in group}
    counts = range(len(by_key) + 1)
    return [some for count in counts for some in itertools.combinations(by_key.values(), count)]


def versions_of(case: Case) -> list[int]:
    """The other versions in which the request can be sent."""
    handler = HANDLERS[api_key(case.api)]
    low, high = max(handler.min_version, case.versions[0]), min(handler.max_version, case.versions[1])
    return [version for version in range(low, high + 1) if version != case.version]


def run(
    case: Case, names: Names, admin: Session, acls: Acls, bootstrap: str, login_address: str
) -> tuple[list[tuple[str, Any]], dict[frozenset[tuple[str, str]], Any]]:
    """The observations, and the responses by the rights that the client had."""
    names = prepare(admin, names)
    client = Session(bootstrap, CLIENT)
    if case.logged_in:
        names = prepare_token(login_address, names)
        client = Session(login_address, CLIENT, ("ANONYMOUS", PASSWORDS["ANONYMOUS"]))
    found: dict[frozenset[tuple[str, str]], Any] = {}
    try:
        for granted in subsets(case):
            acls.change(acl for right in granted for acl in acls_of(right, names))
            shown = ", ".join(f"{right.operation} {right.resource}" for right in granted) or "nothing"
            if not all(any(one in granted for one in group) for group in case.rights):
                for version in versions_of(case):
                    response = client.call_unobserved(case.api, version, case.values(names))
                    client.observe(f"v{version}, {shown}", in_order(case.observed(response, names)))
            response = client.call_unobserved(case.api, case.version, case.values(names))
            client.observe(shown, in_order(case.observed(response, names)))
            found[frozenset((right.operation, right.resource) for right in granted)] = response
    finally:
        client.end()
    return client.observations, found


def names_for(name: str) -> Names:
    """The names of a test, by the name of its topic."""
    names = Names(f"topic-{name}", f"missing-{name}", f"group-{name}", f"id-{name}")
    return names._replace(owner=f"owner-{name}", share_group=f"share-{name}")


@pytest.mark.parametrize("case", ALL_CASES, ids=IDS)
def test_rights(
    case: Case,
    name: str,
    authorized_pair: Pair,
    login_addresses: dict[str, str],
    admins: OnDemand[tuple[Session, Acls]],
) -> None:
    names = names_for(name)

    def observe(target: str) -> Observations:
        bootstrap, login_address = authorized_pair.bootstrap(target), login_addresses[target]
        observed, responses = run(case, names, *admins[target], bootstrap, login_address)
        check(case, names, responses)
        return observed

    authorized_pair.compare_with(observe)


def check(case: Case, names: Names, responses: dict[frozenset[tuple[str, str]], Any]) -> None:
    """Who lacks a right gets what the row says; of what he may not know, as much as of what does not exist."""
    if not case.rights:
        assert codes_of(responses[frozenset()]) == [OWNER_MISMATCH]
    asked = str(case.values(names))
    if names.topic in asked and names.missing in asked:
        nothing = responses[frozenset()]
        assert rows_about(nothing, names.topic) == rows_about(nothing, names.missing), nothing
    everything = responses[max(responses, key=len)]
    for group in case.rights:
        alternatives = {(one.operation, one.resource) for one in group}
        others = frozenset(key for key in max(responses, key=len) if key not in alternatives)
        check_denied(group[0].denied, responses[others], everything)


def rows_about(value: Any, name: str) -> list[str]:
    """The rows of a response that name a topic, without the name."""
    if isinstance(value, dict):
        if name in [value.get(key) for key in TOPIC_KEYS]:
            return [str(value).replace(name, "NAME")]
        return [row for one in value.values() for row in rows_about(one, name)]
    return [row for one in value for row in rows_about(one, name)] if isinstance(value, list) else []


def check_denied(denied: str, response: Any, allowed: Any) -> None:
    """The response is the one of the row; that to a client with all rights is not."""
    if denied == LEFT_OUT:
        assert len(str(response)) < len(str(allowed)), (response, allowed)
    elif denied == ZERO:
        assert (response["cluster_authorized_operations"], allowed["cluster_authorized_operations"] > 0) == (
            0,
            True,
        )
    else:
        assert ERRORS[denied] in codes_of(response), response
        assert ERRORS[denied] not in codes_of(allowed) or "__consumer_offsets" in str(allowed), allowed


@pytest.mark.parametrize("target", TARGETS)
def test_an_acknowledgement_needs_read_on_its_topic(
    target: str, name: str, admins: OnDemand[tuple[Session, Acls]]
) -> None:
    """It needs a share session, which a row of the table does not have."""
    [fetch] = [case for case in ALL_CASES if case.api == "ShareFetch"]
    admin, acls = admins[target]
    names = prepare(admin, names_for(name))
    read_group = acls_of(Right("READ", "group", ""), names)
    read_topic = acls_of(Right("READ", "topic", ""), names)
    acls.change([*read_group, *read_topic])
    client = Session(admin.bootstrap, CLIENT)
    begun = client.call_unobserved("ShareFetch", 1, fetch.values(names))
    assert begun["error_code"] == 0, begun

    def acknowledge(epoch: int) -> list[int]:
        batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
        partitions = [{"partition_index": 0, "acknowledgement_batches": batches}]
        body = {
            **{key: fetch.values(names)[key] for key in ("group_id", "member_id")},
            "share_session_epoch": epoch,
            "topics": [{"topic_id": names.topic_id, "partitions": partitions}],
        }
        return codes_of(client.call_unobserved("ShareAcknowledge", 1, body))

    acls.change(read_group)
    assert acknowledge(1) == [0, ERRORS[TOPIC_FAILED]]
    acls.change([*read_group, *read_topic])
    whole, row = acknowledge(2)
    assert (whole, row == ERRORS[TOPIC_FAILED]) == (0, False)
    client.end()


def test_every_api_that_is_served_is_in_the_table() -> None:
    """But for those that need no right."""
    asked = {api_key(case.api) for case in ALL_CASES}
    login = ("ApiVersions", "SaslHandshake", "SaslAuthenticate")
    metrics = ("GetTelemetrySubscriptions", "PushTelemetry")
    needs_none = {api_key(name) for name in (*login, *metrics)}
    assert asked | needs_none == HANDLERS.keys(), (
        "add its row to rights_topics.py, rights_admin.py or rights_tokens.py"
    )


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "reference" / "rights.md").read_text() == page(), "run make docs"
