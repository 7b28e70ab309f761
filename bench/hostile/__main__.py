"""`python -m bench.hostile`: how long do requests that were made to be costly delay other connections?

It sends every attack of `bench.hostile.attacks` to oncelog and then to a Kafka, and prints a table. Another connection
sends ApiVersions all the time: its longest wait is the first number, and what oncelog's loop computed meanwhile the
second. Each is the median of the repetitions. With ``--arrays`` it sends oncelog generated requests instead, for every
API and every array in it; with ``--arrays --denied`` as a user without any right.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench.hostile import servers
from bench.hostile.arrays import GROUP, PARTITIONS, TOPIC, add_options, generated
from bench.hostile.attacks import ATTACKS, MEMORY, THROUGH_A_PROXY, Attack, connect, one_request
from bench.hostile.bystander import Bystander, Memory, Row, measured
from bench.hostile.servers import Server
from bench.hostile.snapshot import SNAPSHOT, refused_snapshot
from tests.common.jars import RealPartMissing

Run = Callable[[], contextlib.AbstractContextManager[Server]]
MIB = 1 << 20
SETTLE_S = 2


class Cells(NamedTuple):
    """What the tables have of one attack on one server."""

    size: int
    row: Row
    memory: tuple[int, int, int] | None = None
    """Resident bytes before, at most and afterwards."""

    def shown(self, *, with_busy: bool) -> str:
        """The cells, in Markdown."""
        row = self.row
        if self.memory is not None:
            before, most, after = (f"{value // MIB:,}" for value in self.memory)
            return f"{before} | {most} | {after} | {row.outcome}"
        busy = f" {row.busy * 1000:.0f} |" if with_busy else ""
        return f"{row.waited * 1000:.0f} |{busy} {row.took:.2f} | {row.outcome}"


def results(
    run: Run, attacks: list[Attack], repetitions: int | None, *, memory: bool = False
) -> Iterator[tuple[str, Cells | None]]:
    """Start a server, and send it the attacks."""
    if not attacks:
        return
    with run() as server:
        bystander = Bystander(server.bootstrap, server.pid)
        bystander.start()
        for attack in attacks:
            try:
                sending = attack.prepare(server)
                if sending is None:
                    yield attack.name, None
                    continue
                held = Memory(server.pid)
                before = held.now()
                held.begin()
                row = measured(bystander, sending.send, repetitions or attack.repetitions)
                most = held.most()
                if memory:
                    time.sleep(SETTLE_S)
                cells = Cells(sending.size, row, (before, most, held.now()) if memory else None)
            except (OSError, AssertionError) as error:  # the server may have ended
                print(f"{server.name}: {attack.name}: {error!r}", file=sys.stderr)
                yield attack.name, None
                continue
            print(
                server.name, attack.name, cells.shown(with_busy=True), sep=" | ", file=sys.stderr, flush=True
            )
            yield attack.name, cells


def print_table(
    title: str, ours: dict[str, Cells | None], theirs: dict[str, Cells | None], *, memory: bool = False
) -> None:
    """Print the rows of both servers side by side."""
    if not ours:
        return
    columns = (
        ("before", "at most", "after", "outcome") if memory else ("others waited", "request took", "outcome")
    )
    front = columns if memory else (columns[0], "computed meanwhile", *columns[1:])
    names = [f"oncelog: {name}" for name in front] + (
        [f"Kafka: {name}" for name in columns] if theirs else []
    )
    print(f"\n{title}\n\n| request | bytes | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
    for name, cells in ours.items():
        other = theirs.get(name)
        row = [name, f"{cells.size:,}" if cells else (f"{other.size:,}" if other else "")]
        row.append(cells.shown(with_busy=True) if cells else " | ".join("-" * len(front)))
        if theirs:
            row.append(other.shown(with_busy=False) if other else " | ".join("-" * len(columns)))
        print(f"| {' | '.join(row)} |")


def send_attacks(options: argparse.Namespace) -> None:
    """Send the attacks to each server."""

    def chosen(attacks: tuple[Attack, ...]) -> list[Attack]:
        return [one for one in attacks if options.only.lower() in one.name.lower()]

    def both(attacks: tuple[Attack, ...], *, memory: bool = False) -> list[dict[str, Cells | None]]:
        runs: list[Run] = [servers.oncelog] if options.no_kafka else [servers.oncelog, servers.kafka]
        return [dict(results(run, chosen(attacks), options.repeat, memory=memory)) for run in runs]

    title = "Milliseconds of others, seconds of the request."
    if options.part in ("all", "time"):
        ours, *theirs = both(ATTACKS)
        print_table(title, ours, theirs[0] if theirs else {})
    if options.part in ("all", "proxy"):
        rows = dict(results(servers.proxy, chosen(THROUGH_A_PROXY), options.repeat))
        print_table(f"Through a proxy with ACLs. {title}", rows, {})
    if options.part in ("all", "memory"):
        ours, *theirs = both(MEMORY, memory=True)
        print_table("MiB of memory.", ours, theirs[0] if theirs else {}, memory=True)
        if options.only.lower() in SNAPSHOT.lower():
            print(f"\n{SNAPSHOT}: {refused_snapshot()}")


def send_arrays(options: argparse.Namespace) -> None:
    """Send oncelog the generated requests; print the rows with the longest waits."""
    found = []
    with servers.oncelog() as server:
        with connect(server) as connection:
            topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
            response = connection.call("CreateTopics", 7, {"topics": [topic], "timeout_ms": 9000})
            topic_id = response["topics"][0]["topic_id"]
            for key_type in (0, 1):  # creates the internal topics
                connection.call("FindCoordinator", 4, {"key_type": key_type, "coordinator_keys": [GROUP]})
        bystander = Bystander(server.bootstrap, server.pid)
        bystander.start()
        for one in generated(options, topic_id):
            sending = one_request(server, one.api, one.version, one.body, as_user=options.denied)
            row = measured(bystander, sending.send, options.repeat or 1)
            text = (
                f"{row.waited * 1000:5.0f} ms, computed {row.busy * 1000:.0f} ms: {one.label} in "
                f"{sending.size:,} bytes, {row.took:.2f} s: {row.outcome}"
            )
            print(text, file=sys.stderr, flush=True)
            found.append((row.waited, text))
    for _, text in sorted(found, reverse=True)[: options.rows]:
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="only attacks with this text in their name")
    parser.add_argument(
        "--part", choices=("all", "time", "proxy", "memory"), default="all", help="which attacks"
    )
    parser.add_argument("--no-kafka", action="store_true", help="only oncelog")
    parser.add_argument(
        "--repeat", type=int, help="how often each is sent, instead of the attack's own number"
    )
    parser.add_argument(
        "--arrays", action="store_true", help="generated requests; the options below choose them"
    )
    parser.add_argument("--denied", action="store_true", help="as a user without any right")
    parser.add_argument("--rows", type=int, default=20, help="the number of rows in the output")
    add_options(parser)
    options = parser.parse_args()
    try:
        (send_arrays if options.arrays else send_attacks)(options)
    except RealPartMissing as missing:
        parser.error(f"no Kafka: {missing} (--no-kafka leaves it out)")


if __name__ == "__main__":
    main()
