"""Processes whose threads are members of consumer groups, and what they told so far.

A worker obeys lines of JSON on its standard input (`do`, mostly a `member`, and what follows here):

    start       kind, config, topics (Java: or pattern, server_pattern)     a new member joins
    close       membership (Java: a GroupMembershipOperation)               it leaves as its client does, and ends
    pause, resume                                                           it does not even poll in between
    subscribe   topics                                                      Java: another subscription
    where                                                                   Java: told by "where"
    tool        main, arguments                                             Java: one of Kafka's tools; told by "tool"
    remove      bootstrap, group, instances                                 Java: told by "removed"

and tells, a line of JSON each (`event`, `member`, `at` in ns of the system's monotonic clock, and what follows here):

    assigned, revoked, lost     partitions: rows of topic, partition
    records                     topic, partition, offsets
    committed                   offsets: rows of topic, partition, offset
    commit_failed, warning      name
    error                       name, text: the member is done
    closed                      it has ended
"""

import json
import pathlib
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from compat_tests.process import Lines
from compat_tests.real_kafka import TOOL_TIMEOUT_S, RealPartMissing, java, kafka_libs, tool_command

ROOT = pathlib.Path(__file__).resolve().parents[2]
JAVA_SOURCES = sorted(pathlib.Path(__file__).parent.glob("*.java"))
END_TIMEOUT_S = 10.0
Partition = tuple[str, int]

changed = threading.Condition()
"""Notified, and held, whenever any member told something: what a test waits for may depend on several processes."""


class Member:
    """One member as its worker tells of it. Read its attributes while holding `changed`, or when nothing changes."""

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
        """How many events of this kind it told."""
        return sum(1 for one in self.events if one["event"] == event)

    def partitions_of(self, event: str, since: int = 0) -> set[Partition]:
        """All partitions that events of this kind named, from the `since`-th event on."""
        told = (one["partitions"] for one in self.events[since:] if one["event"] == event)
        return {(topic, partition) for partitions in told for topic, partition in partitions}

    def take(self, told: dict[str, Any]) -> None:
        """Keep an event; called by the worker's reader, which holds `changed`."""
        self.events.append(told)
        match told["event"]:
            case "assigned":
                self.assignment |= {(topic, partition) for topic, partition in told["partitions"]}
            case "revoked" | "lost":
                self.assignment -= {(topic, partition) for topic, partition in told["partitions"]}
            case "records":
                self.records += [(told["topic"], told["partition"], offset) for offset in told["offsets"]]
            case "committed":
                self.committed.update({(topic, part): offset for topic, part, offset in told["offsets"]})
            case "error":
                self.error = f"{told['name']}: {told['text']}"
            case "closed":
                self.end()

    def end(self) -> None:
        self.closed = True
        self.assignment = set()


class Worker:
    """A process with members; `kind` is the client they are made with."""

    def __init__(self, kind: str, command: Sequence[str]) -> None:
        self.kind = kind
        self.members: dict[str, Member] = {}
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
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
            told = json.loads(line)
            with changed:
                if told["member"]:
                    self.members[told["member"]].take(told)
                else:
                    self._answers.put(told)
                changed.notify_all()

    def send(self, do: str, member: str = "", **fields: Any) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"do": do, "member": member, **fields}) + "\n")
        self._popen.stdin.flush()

    def start_member(self, name: str, config: dict[str, Any], **subscription: Any) -> Member:
        """A member of this name, which joins now."""
        member = self.members[name] = Member(name, self.kind, self)
        self.send("start", name, kind=self.kind, config=config, **subscription)
        return member

    def response(self, do: str, **fields: Any) -> dict[str, Any]:
        """Send a command that no member answers, and return its response. Raises queue.Empty after a deadline."""
        self.send(do, **fields)
        return self._answers.get(timeout=TOOL_TIMEOUT_S)

    def ask(self, member: Member, do: str) -> dict[str, Any]:
        """Send a command that `member` answers by an event of the same name; that event."""
        before = member.count(do)
        self.send(do, member.name)
        with changed:
            assert changed.wait_for(lambda: member.count(do) > before, END_TIMEOUT_S), f"no response to {do}"
            return [one for one in member.events if one["event"] == do][-1]

    def tool(self, main: str, *arguments: str) -> tuple[int, str]:
        """Run a tool of Kafka's in the (Java) worker: its exit code, and its standard output."""
        response = self.response("tool", main=main, arguments=arguments)
        return response["exit"], response["out"]

    def kill(self) -> None:
        """SIGKILL: its members leave no group, they just fall silent."""
        self._popen.kill()
        self._finish()

    def close(self) -> None:
        """The end of its input is the end of the worker; members that were not closed fall silent."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self._finish()

    def _finish(self) -> None:
        self._popen.wait()
        self._reader.join()
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            if not pipe.closed:
                pipe.close()
        self._stderr.close()
        with changed:
            for member in self.members.values():
                member.end()
            changed.notify_all()

    def output(self) -> str:
        """The last lines of its standard error."""
        return self._stderr.text()


def compile_java(folder: pathlib.Path) -> pathlib.Path:
    """Compile the Java files beside this one into `folder`. Raises RealPartMissing where Java has no compiler."""
    compiler = pathlib.Path(java()).resolve().with_name("javac")
    if not compiler.exists():
        raise RealPartMissing("no javac beside java (a JDK, not only its runtime)")
    command = [str(compiler), "-d", str(folder), "-cp", f"{kafka_libs()}/*", *map(str, JAVA_SOURCES)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    assert run.returncode == 0, run.stderr
    return folder


def java_command(classes: pathlib.Path) -> list[str]:
    """The command line of a Java worker; `classes` is what compile_java gave."""
    return tool_command("GroupWorker", class_path=[classes])


PYTHON_COMMAND = [sys.executable, "-W", "ignore", "-m", "compat_tests.groups.python_worker"]
