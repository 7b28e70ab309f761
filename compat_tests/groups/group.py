"""A test's consumer group: its members in worker processes, and assertions about all of them together."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from compat_tests.differential import Session
from compat_tests.groups.settings import Settings, client_config
from compat_tests.groups.workers import Member, Worker, changed
from tests.common.batches import batch, now_ms

DEADLINE_S = 30.0
RETRY_S = 0.05
NEVER = 1 << 63  # ns
LOADING = (14, 15, 16)  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
_member_numbers = itertools.count()


class Group:
    """A group and its only topic. `workers` has the shared worker of each kind of client."""

    def __init__(self, bootstrap: str, topic: str, workers: Mapping[str, Worker]) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group_id = f"group-of-{topic}"
        self.members: list[Member] = []
        self.ends: list[int] = []  # the log end offset of each partition
        self._workers = workers
        self._refused: set[Member] = set()

    def make_topic(self, partitions: int) -> None:
        session = Session(self.bootstrap)
        session.topic(self.topic, partitions)
        session.close()
        self.ends = [0] * partitions
        # A broker creates __consumer_offsets at the first FindCoordinator.
        self._call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [self.group_id]})
        assert self.committed() == self.ends

    def fill(self, count: int = 20) -> None:
        """Produce `count` records to every partition."""
        with contextlib.closing(Session(self.bootstrap)) as session:
            session.wait_for_leaders(self.topic, len(self.ends))
            for partition, end in enumerate(self.ends):
                row = session.produce(self.topic, batch(count), partition=partition)
                assert (row["error_code"], row["base_offset"]) == (0, end), row
                self.ends[partition] += count

    def join(
        self,
        kind: str,
        settings: Settings | None = None,
        *,
        worker: Worker | None = None,
        extra: Mapping[str, Any] | None = None,
        **subscription: Any,
    ) -> Member:
        """Start a member, by default subscribed to the topic."""
        name = f"{kind}-{next(_member_numbers)}"
        settings = settings or Settings()
        config = client_config(kind, self.bootstrap, self.group_id, name, settings)
        process = self._workers[kind] if worker is None else worker
        member = process.start_member(
            name, {**config, **(extra or {})}, **(subscription or {"topics": [self.topic]})
        )
        member.instance = settings.instance
        self.members.append(member)
        return member

    @property
    def live(self) -> list[Member]:
        return [member for member in self.members if not member.closed and not member.error]

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait until `done`, which is called after every event. Asserts that no member fails meanwhile."""

        def failed() -> bool:
            return any(member.error and member not in self._refused for member in self.members)

        with changed:
            changed.wait_for(lambda: done() or failed(), DEADLINE_S)
            assert not failed(), f"a member failed while waiting for {what}\n{self.event_log()}"
            assert done(), f"timeout while waiting for {what}\n{self.event_log()}"

    def wait_until_refused(self, member: Member, error: str) -> None:
        """Wait until `member` has ended with this error, which later waits then accept."""
        self._refused.add(member)
        self.wait(lambda: member.closed, f"{member.name} to be refused")
        assert error in member.error, self.event_log()

    def owners(self) -> dict[int, list[str]]:
        """By partition of the topic: the names of the members that have it in their assignment."""
        found: dict[int, list[str]] = {partition: [] for partition in range(len(self.ends))}
        for member in self.members:
            for topic, partition in member.assignment:
                if topic == self.topic:
                    found[partition].append(member.name)
        return found

    def is_shared(self, by: Iterable[Member] | None = None) -> bool:
        """Whether every partition has one owner, and the owners are exactly `by` (default: all live members)."""
        owners = self.owners()
        expected = {member.name for member in (self.live if by is None else by)}
        return all(len(names) == 1 for names in owners.values()) and expected == {
            name for names in owners.values() for name in names
        }

    def wait_until_shared(self, by: Iterable[Member] | None = None) -> None:
        """Wait until `is_shared`, and until the broker reports a stable group.

        Members may have their partitions and still have to join again, at which eager members give them up: so
        `is_shared` must hold again afterwards.
        """
        members = None if by is None else list(by)
        self.wait(lambda: self.is_shared(members), "one owner of every partition")
        self.wait_until_stable()
        self.wait(lambda: self.is_shared(members), "one owner of every partition")

    def times_read(self) -> Counter[tuple[int, int]]:
        """How often each (partition, offset) of the topic was read, by all members together."""
        rows = itertools.chain.from_iterable(member.records for member in self.members)
        return Counter((partition, offset) for topic, partition, offset in rows if topic == self.topic)

    def wait_until_read(self) -> Counter[tuple[int, int]]:
        """Wait until every record is read and every partition's end is committed; returns `times_read`.

        Asserts that the broker's committed offsets agree.
        """
        expected = [(partition, offset) for partition, end in enumerate(self.ends) for offset in range(end)]

        def done() -> bool:
            committed = self.reported_commits()
            return [committed.get(partition, 0) for partition in range(len(self.ends))] == self.ends and all(
                map(self.times_read().__contains__, expected)
            )

        self.wait(done, "every record")
        assert self.committed() == self.ends
        return self.times_read()

    def assert_read_exactly_once(self, count: int = 20) -> None:
        """Produce `count` records to every partition, and assert that each is read once, by one member."""
        before = self.times_read()
        starts = list(self.ends)
        self.fill(count)
        new_reads = self.wait_until_read() - before
        assert set(new_reads.values()) == {1}, f"records were read twice\n{self.event_log()}"
        assert len(new_reads) == count * len(starts)

    def assert_single_owners(self) -> None:
        """Assert that no partition ever had two owners: it was revoked from one before it was assigned to the next.

        Not for members that were fenced or removed: they learn too late that they are no longer the owners.
        """
        held: dict[tuple[str, int], list[tuple[int, int, str]]] = {}  # from, until (ns), owner
        for member in self.members:
            since: dict[tuple[str, int], int] = {}
            for event in member.events:
                rows = {(topic, partition) for topic, partition in event.get("partitions", ())}
                if event["event"] == "assigned":
                    since |= dict.fromkeys(rows, event["at"])
                elif event["event"] in ("revoked", "closed"):
                    for where in rows & set(since) if event["event"] == "revoked" else set(since):
                        held.setdefault(where, []).append((since.pop(where), event["at"], member.name))
            for where, start in since.items():
                held.setdefault(where, []).append((start, NEVER, member.name))
        for where, times in held.items():
            for (_, until, owner), (start, _, following) in itertools.pairwise(sorted(times)):
                assert until <= start, (
                    f"{where} was assigned to {following} before {owner} gave it up\n{self.event_log()}"
                )

    def reported_commits(self) -> dict[int, int]:
        """The highest offset per partition that members reported as committed."""
        found: dict[int, int] = {}
        for member in self.members:
            for (topic, partition), offset in member.committed.items():
                if topic == self.topic:
                    found[partition] = max(found.get(partition, 0), offset)
        return found

    def committed(self) -> list[int]:
        """The broker's committed offset of each partition; 0 where it has none."""
        rows = {"name": self.topic, "partition_indexes": list(range(len(self.ends)))}
        request = {"groups": [{"group_id": self.group_id, "topics": [rows]}], "require_stable": False}
        (found,) = self._call("OffsetFetch", 8, request)["groups"]
        (topic,) = found["topics"]
        assert all(row["error_code"] == 0 for row in topic["partitions"]), topic
        offsets = {row["partition_index"]: max(0, row["committed_offset"]) for row in topic["partitions"]}
        return [offsets[partition] for partition in range(len(self.ends))]

    def describe(self) -> dict[str, Any]:
        """The broker's DescribeGroups row (classic groups)."""
        (found,) = self._call("DescribeGroups", 5, {"groups": [self.group_id]})["groups"]
        return dict(found)

    def describe_members(self) -> list[tuple[str, ...]]:
        """The members of a stable classic group, without their subscriptions, which contain a generation."""
        self.wait_until_stable()
        fields = ("member_id", "group_instance_id", "client_id", "member_assignment")
        return sorted(tuple(row[field] for field in fields) for row in self.describe()["members"])

    def member_count(self, protocol: str) -> int:
        """The number of members according to the broker."""
        if protocol == "classic":
            return len(self.describe()["members"])
        (found,) = self._call("ConsumerGroupDescribe", 1, {"group_ids": [self.group_id]})["groups"]
        return len(found["members"])

    def type_and_state(self) -> tuple[str, str]:
        """The group's type and state in ListGroups; ("", "") if it is not listed."""
        self.committed()  # waits until the coordinator has loaded the group
        rows = self._call("ListGroups", 5, {"states_filter": [], "types_filter": []})["groups"]
        for row in rows:
            if row["group_id"] == self.group_id:
                return row["group_type"].lower(), row["group_state"].lower()
        return "", ""

    def wait_until_stable(self) -> None:
        """Wait until the broker reports the group as stable."""
        deadline = now_ms() + int(DEADLINE_S * 1000)
        while self.type_and_state()[1] != "stable":
            assert now_ms() < deadline, f"{self.type_and_state()}\n{self.event_log()}"
            with changed:
                changed.wait(RETRY_S)

    def _call(self, api: str, version: int, request: dict[str, Any]) -> Any:
        """The response; the request is repeated while the coordinator creates or loads its topic."""
        deadline = now_ms() + int(DEADLINE_S * 1000)
        with contextlib.closing(Session(self.bootstrap)) as session:
            while True:
                response = session.call_unobserved(api, version, request)
                rows = response.get("groups") or response.get("coordinators") or [response]
                errors = [row.get("error_code", 0) for row in rows]
                if not any(error in LOADING for error in errors):
                    assert not any(errors), response
                    return response
                assert now_ms() < deadline, response
                with changed:
                    changed.wait(RETRY_S)

    def leave(self, *members: Member, membership: str = "DEFAULT") -> None:
        """Close these members (default: all), and wait until they have ended.

        `membership` is a Java member's GroupMembershipOperation: LEAVE_GROUP or REMAIN_IN_GROUP.
        """
        leaving = list(members) or self.live
        for member in leaving:
            if not member.closed:
                member.worker.send("close", member.name, membership=membership)
        self.wait(lambda: all(member.closed for member in leaving), "members to leave")

    def close(self) -> None:
        """Close all members at the end of a test, and ignore their errors."""
        self._refused.update(self.members)
        self.leave()

    def event_log(self) -> str:
        """The last events of every member, for the message of a failed test."""
        lines = []
        for member in self.members:
            lines.append(
                f"--- {member.name}: {sorted(member.assignment)} {'closed' if member.closed else ''}"
            )
            lines += [f"    {str(event)[:300]}" for event in member.events[-15:]]
            lines += [f"    stderr: {line}" for line in member.worker.output().splitlines()[-5:]]
        return "\n".join(lines)
