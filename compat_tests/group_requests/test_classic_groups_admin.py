"""Administration of classic groups on both targets, and the records that their coordinator stores."""

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.classic_members import DELETE, LEAVE, Member, compare, observe_group
from compat_tests.group_requests.committed_offsets import commit_body
from compat_tests.group_requests.offset_records import as_fields, batches_of
from oncelog.wire.stored.coordinator import decode_key, decode_value
from oncelog.wire.stored.groups import KEY_TYPES, VALUE_TYPES
from tests.common.definitions import versions_of

pytestmark = pytest.mark.also_on("proxy")

pytestmark = pytest.mark.slow


def test_several_members_are_removed_at_once(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        members = [Member(session, name, f"m{at}", instance=f"i{at}") for at in range(3)]
        members[0].found_group()
        for member in members[1:]:
            member.send_join()
            members[0].heartbeat_while(0)
            for other in members[: members.index(member)]:
                other.send_join()
            for other in members[: members.index(member) + 1]:
                other.receive()
        pending = Member(session, name, "pending")
        pending.join("new")
        rows = [
            {"member_id": "", "group_instance_id": None},
            {"member_id": "stranger", "group_instance_id": None},
            {"member_id": "", "group_instance_id": "nobody's"},
            {"member_id": "", "group_instance_id": "i0", "reason": "because"},
            {"member_id": members[2].member_id, "group_instance_id": "i1"},
            {"member_id": members[1].member_id, "group_instance_id": None},
            {"member_id": members[1].member_id, "group_instance_id": "i1"},
            {"member_id": pending.member_id, "group_instance_id": None},
        ]
        session.call("LeaveGroup", LEAVE, {"group_id": name, "members": rows})
        observe_group(session, name)
        session.call("LeaveGroup", LEAVE, {"group_id": name, "members": []}, "nobody")
        session.call("LeaveGroup", LEAVE, {"group_id": "", "members": rows[:1]}, "no group")
        session.call("LeaveGroup", LEAVE, {"group_id": "nobody", "members": rows[:2]}, "unknown group")
        session.call("LeaveGroup", 0, {"group_id": "nobody", "member_id": "m"}, "unknown group")
        session.call("LeaveGroup", 2, {"group_id": "", "member_id": "m"}, "no group")

    compare(pair, name, scenario)


def test_lists_and_descriptions(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        session.topic(name)
        stable = Member(session, f"{name}-stable", "one")
        stable.found_group()
        completing = Member(session, f"{name}-completing", "two", protocol_type="connect")
        completing.join_new()
        gone = Member(session, f"{name}-empty", "three")
        gone.found_group()
        gone.leave()
        session.call("OffsetCommit", 8, commit_body(8, f"{name}-simple", {name: {0: 1}}))
        filters: list[tuple[list[str], list[str]]] = [
            ([], []), (["Stable"], []), (["stable", " EMPTY "], []), (["CompletingRebalance"], ["classic"]),
            (["Nonsense"], []), ([], ["Classic"]), ([], ["consumer"]), ([], ["share", "CLASSIC"]), ([], ["nonsense"]),
            ([""], []), ([], [""]), (["Dead"], []), (["preparingrebalance"], [" classic"]),
        ]  # fmt: skip
        for version in versions_of("ListGroups"):
            for states, types in filters:
                if (version < 4 and states) or (version < 5 and types):
                    continue
                body = ({"states_filter": states} if version >= 4 else {}) | (
                    {"types_filter": types} if version >= 5 else {}
                )
                response = session.call_unobserved("ListGroups", version, body)
                rows = [row for row in response["groups"] if row["group_id"].startswith(name)]
                rows.sort(key=lambda row: str(row["group_id"]))
                session.observe(f"ListGroups v{version} {states} {types}", response | {"groups": rows})
        for version in versions_of("DescribeGroups"):
            for group in ("stable", "completing", "empty", "simple", "nobody"):
                observe_group(session, f"{name}-{group}", group, version)
            observe_group(session, "", "no name", version)
            session.call("DescribeGroups", version, {"groups": []}, "none")
        for version in versions_of("DeleteGroups"):
            session.call("DeleteGroups", version, {"groups_names": []}, "none")
            session.call("DeleteGroups", version, {"groups_names": [""]}, "no name")
            for group in ("stable", "completing", "nobody"):
                session.call("DeleteGroups", version, {"groups_names": [f"{name}-{group}"]}, group)
        rows = [f"{name}-{group}" for group in ("simple", "empty", "stable", "simple")]
        response = session.call_unobserved("DeleteGroups", DELETE, {"groups_names": rows})
        session.observe("deleted", sorted(response["results"], key=lambda row: str(row["group_id"])))
        fetched = {"groups": [{"group_id": f"{name}-simple", "topics": None}]}
        session.call("OffsetFetch", 8, fetched, "its offsets are gone")

    compare(pair, name, scenario)


def test_stored_records(pair: Pair, name: str) -> None:
    def scenario(session: Session) -> None:
        Member(session, name, "nobody").join("no protocols", protocols=[])
        one = Member(session, name, "one", instance="i1", rebalance_ms=40_000)
        one.found_group()
        again = Member(session, name, "again", instance="i1", session_ms=20_000)
        again.join("a restart")
        two = Member(session, name, "two")
        two.join("new")
        two.send_join()
        again.heartbeat_while(0)
        again.join()
        two.receive()
        two.send_sync()
        again.sync({again.member_id: b"1"})
        two.receive()
        two.leave()
        again.leave()
        session.call_unobserved("DeleteGroups", DELETE, {"groups_names": [name]})
        for batch, records in batches_of(session, name):
            session.observe("batch", (batch.attributes, batch.record_count, batch.producer_id))
            for record in records:
                key = decode_key(record.key or b"", KEY_TYPES)
                assert key is not None
                value = None
                if record.value is not None:
                    value = as_fields(decode_value(record.value, VALUE_TYPES[key.API_KEY]))
                    value["members"].sort(key=lambda row: row["client_id"])
                    session.observe("version", record.value[:2])
                session.observe("record", {"key": as_fields(key), "value": value})

    compare(pair, name, scenario)
