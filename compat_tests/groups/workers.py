"""Worker processes whose threads are members of consumer groups, and the events that they report.

A worker reads commands from its standard input, one line of JSON each: `do`, for most a `member`, and these fields:

    start       kind, config, topics (Java: or pattern, server_pattern)     a new member joins
    close       membership (Java: a GroupMembershipOperation)               the member leaves as its client does
    pause, resume                                                           the member does not poll in between
    subscribe   topics                                                      Java: change the subscription
    where                                                                   Java: replied by the event "where"
    tool        main, arguments                                             Java: run a tool; replied by "tool"
    remove      bootstrap, group, instances                                 Java: replied by "removed"

It writes events, one line of JSON each: `event`, `member`, `at` (ns of the system's monotonic clock), and these fields:

    assigned, revoked, lost     partitions: rows of topic, partition
    records                     topic, partition, offsets
    committed                   offsets: rows of topic, partition, offset
    commit_failed, warning      name
    error                       name, text; the member ends
    closed                      the member has ended
"""

import json
import pathlib
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from tests.common.jars import TOOL_TIMEOUT_S, tool_command
from tests.common.process import Lines
from tests.common.threads import join

ROOT = pathlib.Path(__file__).resolve().parents[2]
JAVA_SOURCES = sorted(pathlib.Path(__file__).parent.glob("*.java"))
END_TIMEOUT_S = 10.0
Partition = tuple[str, int]

changed = threading.Condition()
"""Notified at every event of any member: a test may wait for something that depends on several processes."""


class Member:
    """A member as its worker reports it. Hold `changed` to read its attributes while it may report events."""

    def __init__(self, name: str, kind: str, worker: "Worker") -> None:
        self.name = name
        self.kind = kind
        self.worker = worker
        self.instance = ""  # its group.instance.id
        self.events: list[dict[str, Any]] = []
        self.assignment: set[Partition] = set()
        self.records: list[tuple[str, int, int]] = []  # topic, partition, offset
        self.committed: dict[Partition, int] = {}
        self.error = ""
        self.closed = False

    def count(self, event: str) -> int:
        """The number of events of this kind."""
        return sum(1 for one in self.events if one["event"] == event)

    def generation(self) -> int:
        """The generation, or member epoch, of a Java member."""
        return int(self.worker.call_member(self, "where")["generation"])

    def partitions_of(self, event: str, since: int = 0) -> set[Partition]:
        """All partitions in events of this kind, from the `since`-th event on."""
        rows = (one["partitions"] for one in self.events[since:] if one["event"] == event)
        return {(topic, partition) for partitions in rows for topic, partition in partitions}

    def add_event(self, event: dict[str, Any]) -> None:
        """Keep an event, and update the attributes. The caller, a worker's reader, holds `changed`."""
        self.events.append(event)
        match event["event"]:
            case "assigned":
                self.assignment |= {(topic, partition) for topic, partition in event["partitions"]}
            case "revoked" | "lost":
                self.assignment -= {(topic, partition) for topic, partition in event["partitions"]}
            case "records":
                self.records += [(event["topic"], event["partition"], offset) for offset in event["offsets"]]
            case "committed":
                self.committed.update({(topic, part): offset for topic, part, offset in event["offsets"]})
            case "error":
                self.error = f"{event['name']}: {event['text']}"
            case "closed":
                self.mark_closed()

    def mark_closed(self) -> None:
        self.closed = True
        self.assignment = set()


def count_rebalances(member: Member) -> int:
    """How often the member's partitions were assigned, revoked or lost."""
    return sum(member.count(event) for event in ("assigned", "revoked", "lost"))


class Worker:
    """A process with members of one `kind` of client."""

    def __init__(self, kind: str, command: Sequence[str]) -> None:
        self.kind = kind
        self.members: dict[str, Member] = {}
        self._replies: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=ROOT,
        )
        assert self._popen.stderr is not None
        self._stderr = Lines(self._popen.stderr)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            event = json.loads(line)
            with changed:
                if event["member"]:
                    self.members[event["member"]].add_event(event)
                else:
                    self._replies.put(event)
                changed.notify_all()

    def send(self, command: str, member: str = "", **fields: Any) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"do": command, "member": member, **fields}) + "\n")
        self._popen.stdin.flush()

    def start_member(self, name: str, config: dict[str, Any], **subscription: Any) -> Member:
        """Start a member, which joins its group."""
        member = self.members[name] = Member(name, self.kind, self)
        self.send("start", name, kind=self.kind, config=config, **subscription)
        return member

    def call(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send a command to the worker itself; its reply. Raises queue.Empty after a timeout."""
        self.send(command, **fields)
        return self._replies.get(timeout=TOOL_TIMEOUT_S)

    def call_member(self, member: Member, command: str) -> dict[str, Any]:
        """Send a command to which `member` replies with an event of the same name; that event."""
        before = member.count(command)
        self.send(command, member.name)
        with changed:
            replied = changed.wait_for(lambda: member.count(command) > before, END_TIMEOUT_S)
            assert replied, f"no reply to {command}"
            return [event for event in member.events if event["event"] == command][-1]

    def tool(self, main: str, *arguments: str) -> tuple[int, str]:
        """Run a tool of Kafka's in the (Java) worker; its exit code and its standard output."""
        reply = self.call("tool", main=main, arguments=arguments)
        return reply["exit"], reply["out"]

    def kill(self) -> None:
        """Send SIGKILL: the members do not leave their groups, they only stop sending heartbeats."""
        self._popen.kill()
        self._finish()

    def close(self) -> None:
        """Close the worker's standard input, at which it exits; open members stop without leaving their groups."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self._finish()

    def _finish(self) -> None:
        self._popen.wait()
        join(self._reader)
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            if not pipe.closed:
                pipe.close()
        self._stderr.close()
        with changed:
            for member in self.members.values():
                member.mark_closed()
            changed.notify_all()

    def output(self) -> str:
        """The last lines of its standard error."""
        return self._stderr.text()


def java_command(classes: pathlib.Path) -> list[str]:
    """The command line of a Java worker; `classes` is the folder of the compiled JAVA_SOURCES."""
    return tool_command("GroupWorker", class_path=[classes])


PYTHON_COMMAND = [sys.executable, "-W", "ignore", "-m", "compat_tests.groups.python_worker"]
