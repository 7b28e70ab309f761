"""A consumer group of a test: its members, in whatever processes, and what must be true of them together."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from compat_tests.batches import batch, now_ms
from compat_tests.differential import Session
from compat_tests.groups.settings import Settings, client_config
from compat_tests.groups.workers import Member, Worker, changed

DEADLINE_S = 30.0
ASK_AGAIN_S = 0.05
NEVER = 1 << 63  # ns
LOADING = (14, 15, 16)  # COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
_member_numbers = itertools.count()


class Group:
    """A group and its one topic. `workers` gives the shared process of a kind of client."""

    def __init__(self, bootstrap: str, topic: str, workers: Mapping[str, Worker]) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group_id = f"group-of-{topic}"
        self.members: list[Member] = []
        self.ends: list[int] = []  # of each partition, in records
        self._workers = workers
        self._refused: set[Member] = set()

    def make_topic(self, partitions: int) -> None:
        session = Session(self.bootstrap)
        session.topic(self.topic, partitions)
        session.close()
        self.ends = [0] * partitions
        # A broker makes the topic of the groups when it is first asked for a coordinator.
        self._ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [self.group_id]})
        assert self.committed() == self.ends

    def fill(self, count: int = 20) -> None:
        """`count` more records in every partition."""
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
        """A new member, subscribed to the topic unless `subscription` says another thing."""
        name = f"{kind}-{next(_member_numbers)}"
        settings = settings or Settings()
        config = client_config(kind, self.bootstrap, self.group_id, name, settings)
        process = self._workers[kind] if worker is None else worker
        wanted = subscription or {"topics": [self.topic]}
        member = process.start_member(name, {**config, **(extra or {})}, **wanted)
        member.instance = settings.instance
        self.members.append(member)
        return member

    @property
    def live(self) -> list[Member]:
        return [member for member in self.members if not member.closed and not member.error]

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait until `done`, asked again whenever a member told something; a member's error ends the wait."""

        def failed() -> bool:
            return any(member.error and member not in self._refused for member in self.members)

        with changed:
            changed.wait_for(lambda: done() or failed(), DEADLINE_S)
            assert not failed(), f"a member failed while waiting for {what}\n{self.story()}"
            assert done(), f"waited in vain for {what}\n{self.story()}"

    def wait_refused(self, member: Member, error: str) -> None:
        """Wait until `member` has ended with an error that says this; nobody minds that from now on."""
        self._refused.add(member)
        self.wait(lambda: member.closed, f"{member.name} to be refused")
        assert error in member.error, self.story()

    def owners(self) -> dict[int, list[str]]:
        """Who thinks to own each partition of the topic."""
        found: dict[int, list[str]] = {partition: [] for partition in range(len(self.ends))}
        for member in self.members:
            for topic, partition in member.assignment:
                if topic == self.topic:
                    found[partition].append(member.name)
        return found

    def is_shared(self, by: Iterable[Member] | None = None) -> bool:
        """Every partition has one owner, and exactly `by` (default: all that live) own some."""
        owners = self.owners()
        wanted = {member.name for member in (self.live if by is None else by)}
        return all(len(names) == 1 for names in owners.values()) and wanted == {
            name for names in owners.values() for name in names
        }

    def wait_shared(self, by: Iterable[Member] | None = None) -> None:
        """Wait until the partitions are shared by these members, and the broker says that no rebalance goes on.

        Members may have their partitions already and still have to call for them again: eager ones let go of them then.
        """
        members = None if by is None else list(by)
        self.wait(lambda: self.is_shared(members), "one owner of every partition")
        self.wait_stable()
        self.wait(lambda: self.is_shared(members), "one owner of every partition")

    def times_read(self) -> Counter[tuple[int, int]]:
        """How often each (partition, offset) of the topic was read, by whomever."""
        rows = itertools.chain.from_iterable(member.records for member in self.members)
        return Counter((partition, offset) for topic, partition, offset in rows if topic == self.topic)

    def wait_read(self) -> Counter[tuple[int, int]]:
        """Wait until every record was read by someone, and all progress committed; then compare with the broker's.

        Returns how often each record was read.
        """
        wanted = [(partition, offset) for partition, end in enumerate(self.ends) for offset in range(end)]

        def done() -> bool:
            told = self.told_committed()
            return [told.get(at, 0) for at in range(len(self.ends))] == self.ends and all(
                map(self.times_read().__contains__, wanted)
            )

        self.wait(done, "every record")
        assert self.committed() == self.ends
        return self.times_read()

    def read_exactly_once(self, count: int = 20) -> None:
        """Fill, and see each new record read by one member, once."""
        before = self.times_read()
        starts = list(self.ends)
        self.fill(count)
        news = self.wait_read() - before
        assert set(news.values()) == {1}, f"records were read twice\n{self.story()}"
        assert len(news) == count * len(starts)

    def check_handovers(self) -> None:
        """No partition had two owners at any time: each was told to be revoked before another member was given it.

        Not for members that were fenced or lost their place: they learn late that they are owners no more.
        """
        held: dict[tuple[str, int], list[tuple[int, int, str]]] = {}  # from, until (ns), by whom
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
                    f"{where} was {following}'s before {owner} let go of it\n{self.story()}"
                )

    def told_committed(self) -> dict[int, int]:
        """The highest offset per partition that a member was told to be committed."""
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
        (found,) = self._ask("OffsetFetch", 8, request)["groups"]
        (topic,) = found["topics"]
        assert all(row["error_code"] == 0 for row in topic["partitions"]), topic
        offsets = {row["partition_index"]: max(0, row["committed_offset"]) for row in topic["partitions"]}
        return [offsets[partition] for partition in range(len(self.ends))]

    def describe(self) -> dict[str, Any]:
        """The broker's DescribeGroups row (classic groups)."""
        (found,) = self._ask("DescribeGroups", 5, {"groups": [self.group_id]})["groups"]
        return dict(found)

    def member_count(self, protocol: str) -> int:
        """How many members the broker says that the group has."""
        if protocol == "classic":
            return len(self.describe()["members"])
        (found,) = self._ask("ConsumerGroupDescribe", 1, {"group_ids": [self.group_id]})["groups"]
        return len(found["members"])

    def listed(self) -> tuple[str, str]:
        """The group's type and state, as ListGroups tells; ("", "") where it lists none."""
        self.committed()  # its coordinator has loaded it
        rows = self._ask("ListGroups", 5, {"states_filter": [], "types_filter": []})["groups"]
        for row in rows:
            if row["group_id"] == self.group_id:
                return row["group_type"].lower(), row["group_state"].lower()
        return "", ""

    def wait_stable(self) -> None:
        """Ask until no rebalance goes on; again when a member told something, or in a moment."""
        deadline = now_ms() + int(DEADLINE_S * 1000)
        while self.listed()[1] != "stable":
            assert now_ms() < deadline, f"{self.listed()}\n{self.story()}"
            with changed:
                changed.wait(ASK_AGAIN_S)

    def _ask(self, api: str, version: int, request: dict[str, Any]) -> Any:
        """The response, asked again while the coordinator still makes its topic or loads it after a start."""
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
                    changed.wait(ASK_AGAIN_S)

    def leave(self, *members: Member, membership: str = "DEFAULT") -> None:
        """These members (default: all) leave as their clients do; returns when they have ended.

        `membership`: what a Java member says of it, LEAVE_GROUP or REMAIN_IN_GROUP.
        """
        leaving = list(members) or self.live
        for member in leaving:
            if not member.closed:
                member.worker.send("close", member.name, membership=membership)
        self.wait(lambda: all(member.closed for member in leaving), "members to leave")

    def end(self) -> None:
        """The test is over: all members leave, whatever became of them."""
        self._refused.update(self.members)
        self.leave()

    def story(self) -> str:
        """What the members told, for a failed test."""
        lines = []
        for member in self.members:
            lines.append(
                f"--- {member.name}: {sorted(member.assignment)} {'closed' if member.closed else ''}"
            )
            lines += [f"    {str(event)[:300]}" for event in member.events[-15:]]
            lines += [f"    stderr: {line}" for line in member.worker.output().splitlines()[-5:]]
        return "\n".join(lines)
