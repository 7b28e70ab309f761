"""Membership and offsets of share groups (KIP-932) on both targets, field by field: joins, assignments, epochs,
fencing, other APIs' responses for such a group, offsets that administrators set and delete, requests that are refused.
"""

from typing import Any

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.consumer_members import Topics
from compat_tests.share.members import ShareMember, compare_share, counts, observe_share_group
from compat_tests.share.readers import share_version

pytestmark = [pytest.mark.slow, pytest.mark.also_on("proxy")]


def has(**wanted: int) -> Any:
    """Whether an assignment has as many partitions of each topic."""
    return lambda assigned: counts(assigned) == wanted


def test_members_share_a_topic(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 2)
        one = ShareMember(topics, name, "one", [name])
        one.join("one joins")
        one.heartbeat_until(has(**{name: 2}), "one has all")
        one.heartbeat_unobserved()
        one.heartbeat("one lives", member_epoch=one.epoch)
        observe_share_group(topics, name, "one")
        two, three = (ShareMember(topics, name, each, [name]) for each in ("two", "three"))
        two.join("two joins")
        two.heartbeat_until(has(**{name: 1}), "two has one")
        one.heartbeat_until(has(**{name: 1}), "one keeps one")
        three.join("three joins")
        for each in (one, two, three):
            each.heartbeat_unobserved()
        observe_share_group(topics, name, "three")
        one.leave("one leaves")
        observe_share_group(topics, name, "one is gone")
        for each in (two, three):
            each.leave(f"{each.member_id} leaves")
        observe_share_group(topics, name, "empty")
        two.leave("two leaves again")
        two.heartbeat("two is gone")

    compare_share(pair, name, scenario)


def test_wrong_epochs_and_members(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        one = ShareMember(topics, name, "one", [name])
        one.heartbeat("no group", member_epoch=5)
        one.leave("no group")
        for member_id in ("", " ", "m" * 36, "m" * 37):
            stranger = ShareMember(topics, name, member_id, [name])
            stranger.heartbeat(f"member id of {len(member_id)}", member_epoch=1)
        one.heartbeat("epoch -2", member_epoch=-2)
        one.heartbeat("no topics", member_epoch=0)
        one.heartbeat("empty topics", member_epoch=0, subscribed_topic_names=[])
        one.heartbeat("no rack", member_epoch=0, subscribed_topic_names=[name], rack_id="")
        one.join()
        one.heartbeat_until(has(**{name: 1}), "has all")
        epoch = one.epoch
        one.heartbeat("ahead", member_epoch=epoch + 1)
        one.heartbeat("the epoch before", member_epoch=epoch - 1)
        one.heartbeat("long ago", member_epoch=epoch - 2 or 1)
        ShareMember(topics, name, "nobody", [name]).heartbeat("a stranger", member_epoch=epoch)
        one.heartbeat("with a rack", rack_id="r", member_epoch=epoch)
        observe_share_group(topics, name, "with a rack")
        one.heartbeat("a topic that is not there", subscribed_topic_names=["nowhere"])
        observe_share_group(topics, name, "nothing to read")
        one.heartbeat("both", subscribed_topic_names=["nowhere", name])
        for group in ("", " ", "nowhere"):
            observe_share_group(topics, group, repr(group))
            ShareMember(topics, group, "one", [name]).heartbeat(f"group {group!r}", member_epoch=1)
        one.leave()

    # The epoch before the last may be the joining epoch.
    compare_share(pair, name, scenario, known=("long ago", r"member_epoch", "ahead: error"))


def test_other_apis_about_a_share_group(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)

        def listed(note: str, **fields: Any) -> None:
            rows = session.call_unobserved(
                "ListGroups", 5, {"states_filter": [], "types_filter": []} | fields
            )
            session.observe(note, [row for row in rows["groups"] if row["group_id"] == name])

        one = ShareMember(topics, name, "one", [name])
        one.join()
        one.heartbeat_until(has(**{name: 1}), "has all")
        listed("all")
        listed("share", types_filter=["share"])
        listed("Share", types_filter=["Share"])
        listed("consumer", types_filter=["consumer"])
        listed("stable", states_filter=["Stable"])
        for version in (5, 6):
            session.call("DescribeGroups", version, {"groups": [name]})
        session.call(
            "ConsumerGroupDescribe", 1, {"group_ids": [name], "include_authorized_operations": False}
        )
        rows = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        for version, generation in ((8, -1), (9, -1), (9, 1), (8, 1)):
            body = {
                "group_id": name,
                "generation_id_or_member_epoch": generation,
                "member_id": "one" if generation > 0 else "",
                "topics": rows,
            }
            session.call("OffsetCommit", version, body, f"at {generation}")
        fetched = {"group_id": name, "topics": [{"name": name, "partition_indexes": [0]}]}
        session.call("OffsetFetch", 9, {"groups": [fetched]}, "some")
        session.call("OffsetFetch", 9, {"groups": [{"group_id": name, "topics": None}]}, "all")
        deleted = {"group_id": name, "topics": [{"name": name, "partitions": [{"partition_index": 0}]}]}
        session.call("OffsetDelete", 0, deleted)
        body = {
            "group_id": name,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\0\0"}],
        }
        session.call("JoinGroup", 7, body, "in use")
        session.call("SyncGroup", 5, {"group_id": name, "generation_id": 1, "member_id": "one"})
        session.call("Heartbeat", 4, {"group_id": name, "generation_id": 1, "member_id": "one"})
        session.call("LeaveGroup", 5, {"group_id": name, "members": [{"member_id": "one"}]})
        session.call(
            "ConsumerGroupHeartbeat",
            1,
            {
                "group_id": name,
                "member_id": "m",
                "member_epoch": 0,
                "rebalance_timeout_ms": 1000,
                "subscribed_topic_names": [name],
                "topic_partitions": [],
                "subscribed_topic_regex": None,
            },
        )
        session.call("DeleteGroups", 2, {"groups_names": [name]}, "in use")
        one.leave()
        session.call("JoinGroup", 7, body, "empty")
        listed("empty")
        session.call("DeleteGroups", 2, {"groups_names": [name]}, "empty")
        listed("deleted")
        session.call(
            "OffsetCommit", 9, {"group_id": name, "generation_id_or_member_epoch": -1, "topics": rows}
        )
        ShareMember(topics, name, "one", [name]).join("a classic group")

    compare_share(pair, name, scenario)


def test_offsets(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topic_id = topics.make(name, 2)
        assert topic_id

        def described(note: str, rows: Any, version: int = 1, group: str = name) -> None:
            response = session.call_unobserved(
                "DescribeShareGroupOffsets", version, {"groups": [{"group_id": group, "topics": rows}]}
            )
            for row in response["groups"]:
                row["topics"].sort(key=lambda topic: topic["topic_name"])
                for topic in row["topics"]:
                    topic["partitions"].sort(key=lambda one: one["partition_index"])
            session.observe(f"{note} v{version}", response)

        def altered(note: str, rows: dict[str, dict[int, int]], group: str = name) -> None:
            body = {
                "group_id": group,
                "topics": [
                    {
                        "topic_name": topic,
                        "partitions": [
                            {"partition_index": at, "start_offset": offset} for at, offset in offsets.items()
                        ],
                    }
                    for topic, offsets in rows.items()
                ],
            }
            session.call("AlterShareGroupOffsets", 0, body, note)

        def deleted(note: str, names: list[str], group: str = name) -> None:
            rows = [{"topic_name": one} for one in names]
            session.call("DeleteShareGroupOffsets", 0, {"group_id": group, "topics": rows}, note)

        some = [{"topic_name": name, "partitions": [0, 1]}, {"topic_name": "nowhere", "partitions": [0]}]
        for version in (0, 1):
            described("no group", None, version)
            described("no group, some", some, version)
            described("no name", None, version, "")
        deleted("no group", [name])
        altered("no name", {name: {0: 1}}, "")
        deleted("no name", [name], "")
        altered("nowhere", {"nowhere": {0: 1}})
        described("still no group", None)
        altered("some", {name: {0: 3, 5: 1}, "nowhere": {0: 1}})
        observe_share_group(topics, name, "altered")
        described("altered", None)
        described("altered, some", some)
        one = ShareMember(topics, name, "one", [name])
        one.join()
        one.heartbeat_until(has(**{name: 2}), "has all")
        for version in (0, 1):
            described("in use", None, version)
        altered("in use", {name: {0: 1}})
        deleted("in use", [name])
        one.leave()
        altered("empty again", {name: {0: 2, 1: 0}})
        described("empty again", None)
        for start in (2**63 - 1, -1, -2, -(2**63)):
            altered(f"start {start}", {name: {1: start}})
            described(f"start {start}", None)
        described("nothing", [])
        deleted("empty", [name, "nowhere"])
        described("deleted", None)
        described("deleted", some)
        deleted("again", [name])
        session.call("DeleteGroups", 2, {"groups_names": [name]})
        described("no group", None)
        deleted("no group", [name])

    compare_share(pair, name, scenario)


def test_share_coordinators(pair: Pair, name: str) -> None:
    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        one = ShareMember(topics, name, "one", [name])
        one.join()
        one.heartbeat_until(has(**{name: 1}), "has all")
        good = "AAAAAAAAAAAAAAAAAAAAAQ"
        keys = [
            f"g:{good}:0", f"g:{good}:-1", f"g:{good}:+1", f"a:b:{good}:3", f"g:{good}:0:", f" :{good}:0", f":{good}:0",
            f"g:{good}:x", f"g:{good}:", f"g:{good}", "g", "", ":", f"g:{good}:2147483648",
            "g:AAAA:0", "g:?:0", f"g:{good}==:0",
        ]  # fmt: skip
        for version in (5, 6):
            session.call("FindCoordinator", version, {"key_type": 2, "coordinator_keys": keys})
        session.call("FindCoordinator", 3, {"key_type": 2, "key": keys[0]})

    compare_share(pair, name, scenario)


def test_the_feature_is_taken_back(pair: Pair, name: str) -> None:
    """With ``share.version`` 0 ApiVersions still lists the APIs, but they refuse every request."""

    def scenario(session: Session, topics: Topics) -> None:
        topics.make(name, 1)
        one = ShareMember(topics, name, "one", [name])
        one.join()
        one.heartbeat_until(has(**{name: 1}), "has all")
        with share_version(session, 0):
            one.heartbeat_until_error(35)
            one.heartbeat("switched off")
            observe_share_group(topics, name, "switched off")
            rows = [{"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 1}]}]
            session.call("AlterShareGroupOffsets", 0, {"group_id": name, "topics": rows})
            session.call("DeleteShareGroupOffsets", 0, {"group_id": name, "topics": [{"topic_name": name}]})
            session.call("DescribeShareGroupOffsets", 1, {"groups": [{"group_id": name, "topics": None}]})
            session.call("ListGroups", 5, {"states_filter": ["nowhere"], "types_filter": ["share"]})
        one.heartbeat_until_error(0)
        one.leave("switched on")

    compare_share(pair, name, scenario)
