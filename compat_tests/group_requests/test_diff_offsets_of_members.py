"""OffsetCommit, OffsetFetch and OffsetDelete in a group with classic members: which are accepted, which refused."""

import pytest

from compat_tests.differential import Pair, Session
from compat_tests.group_requests.classic_members import Member, subscription
from compat_tests.group_requests.committed_offsets import commit, fetch, fetch_body, wait_for_coordinator
from tests.common.definitions import Fields, versions_of

pytestmark = pytest.mark.also_on("proxy")

pytestmark = pytest.mark.slow


def commit_as_everyone(session: Session, version: int, topic: str | bytes, member: Member, when: str) -> None:
    """Commits as the member, as an unknown one and as none, with the current generation and others."""
    group, generation = member.group, member.generation
    instances: tuple[Fields, ...] = ({},)
    if version >= 7:
        instances = ({}, {"group_instance_id": member.instance}, {"group_instance_id": "stranger"})
    for who in (member.member_id, "stranger", ""):
        for sent in (generation, generation - 1, generation + 1, -1):
            for instance in instances:
                name = "itself" if who == member.member_id else repr(who)
                note = f"{when}: {name}, generation {sent - generation:+}, {instance}"
                commit(session, version, group, {topic: {0: 9}}, note, sent, member_id=who, **instance)


@pytest.mark.parametrize("version", versions_of("OffsetCommit"))
@pytest.mark.parametrize("instance", [None, "i"])
def test_commits(pair: Pair, name: str, version: int, instance: str | None) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, name)
        topic_id = session.topic(name)
        topic: str | bytes = topic_id if version >= 10 else name
        member = Member(session, name, "first", instance=instance, protocols={"range": subscription(name)})
        member.join_new()
        commit_as_everyone(session, version, topic, member, "completing")
        member.sync({member.member_id: b"all"})
        commit_as_everyone(session, version, topic, member, "stable")
        other = Member(session, name, "second", protocols={"range": subscription(f"{name}-2")})
        response = other.join("new")
        assert response["error_code"] == 79
        other.send_join()
        while session.call_unobserved("Heartbeat", 3, heartbeat(member))["error_code"] != 27:
            pass  # until the rebalance has begun
        commit_as_everyone(session, version, topic, member, "preparing")
        member.send_join()
        member.receive("joins")
        other.receive("joins")
        commit_as_everyone(session, version, topic, member, "completing again")
        other.leave()
        member.leave()
        commit_as_everyone(session, version, topic, member, "empty")
        fetch(session, 9, (name, None))

    pair.compare(scenario)


def heartbeat(member: Member) -> Fields:
    return {
        "group_id": member.group,
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": member.instance,
    }


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_deletes_and_fetches(pair: Pair, name: str, protocol_type: str) -> None:
    def scenario(session: Session) -> None:
        wait_for_coordinator(session, name)
        read, left = f"{name}-read", f"{name}-left"
        for topic in (read, left):
            session.topic(topic)
        commit(session, 8, name, {read: {0: 1}, left: {0: 2}}, "before")
        protocols = {"range": subscription(read)}
        member = Member(session, name, "first", protocol_type=protocol_type, protocols=protocols)

        def delete(note: str) -> None:
            rows = [{"name": topic, "partitions": [{"partition_index": 0}]} for topic in (read, left)]
            session.call("OffsetDelete", 0, {"group_id": name, "topics": rows}, note)
            fetch(session, 9, (name, None), note=note)

        member.join_new()
        delete("completing")
        member.sync({member.member_id: b"all"})
        commit(session, 8, name, {left: {0: 3}}, "again", member.generation, member_id=member.member_id)
        delete("stable")
        for who, epoch in ((member.member_id, member.generation), ("stranger", 5), (None, -1)):
            body = fetch_body(9, (name, {read: [0]}))
            body["groups"][0] |= {"member_id": who, "member_epoch": epoch}
            session.call("OffsetFetch", 9, body, f"epoch {epoch}")
        member.leave()
        delete("empty")

    pair.compare(scenario)
