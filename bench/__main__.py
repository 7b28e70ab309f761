"""`python -m bench`: run the experiments and print the table."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

from confluent_kafka import KafkaException

from bench import (
    disturbed,
    embedded,
    groups,
    idle_shares,
    lifecycle,
    logins,
    nodes,
    proofs,
    proxies,
    rebalance,
    reconcile,
    report,
    scale,
    shares,
    throughput,
    transactions,
)
from bench.experiment import Experiment, Harness, Row, temporary_directory
from bench.measure import OtherLoad, raise_open_files_limit
from bench.servers import COMPARED, PATHS, Kind
from tests.common.jars import RealPartMissing, java, kafka_libs

EXPERIMENTS = (
    *throughput.EXPERIMENTS,
    *logins.EXPERIMENTS,
    *lifecycle.EXPERIMENTS,
    *disturbed.EXPERIMENTS,
    *scale.EXPERIMENTS,
    *groups.EXPERIMENTS,
    *rebalance.EXPERIMENTS,
    *reconcile.EXPERIMENTS,
    *transactions.EXPERIMENTS,
    *shares.EXPERIMENTS,
    *idle_shares.EXPERIMENTS,
    *embedded.EXPERIMENTS,
    *nodes.EXPERIMENTS,
    *proxies.EXPERIMENTS,
    *proofs.EXPERIMENTS,
)
FAILURES = (RuntimeError, AssertionError, OSError, subprocess.SubprocessError, KafkaException)
QUICK_SCALE = 0.05
WARM_UP_SCALE = 0.25


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--rows",
        default="",
        metavar="PATTERN",
        help="only rows with this text, or one of this|that, in their name",
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; the table has their median")
    parser.add_argument(
        "--quick", action="store_true", help="one round with small counts, to check that everything runs"
    )
    parser.add_argument("--no-kafka", action="store_true", help="only oncelog")
    parser.add_argument("--no-ours", action="store_true", help="only Kafka")
    parser.add_argument(
        "--ceiling",
        choices=("with", "without", "only"),
        default="with",
        help="measure the stub, which does nothing: in the rows that have a ceiling (default), never, or only those",
    )
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE", help="also write medians and samples to this file"
    )
    return parser.parse_args(arguments)


def kinds(options: argparse.Namespace) -> list[Kind]:
    """The servers to measure, and with both of them the ways to a Kafka. Exits if Kafka's parts are missing."""
    excluded = {
        Kind.OURS: options.no_ours,
        Kind.KAFKA: options.no_kafka,
        Kind.CEILING: options.ceiling == "without",
    }
    chosen = [kind for kind in excluded if not excluded[kind]]
    if Kind.KAFKA in chosen:
        try:
            java()
            kafka_libs()
        except RealPartMissing as missing:
            sys.exit(f"{missing}\n(--no-kafka measures oncelog alone)")
    if {*COMPARED} <= {*chosen} and options.ceiling != "only":
        chosen += PATHS
    return chosen


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def stop_warm_servers(harness: Harness) -> None:
    """Stop the warm servers. A failure is only logged, because the results must not be lost."""
    try:
        harness.stop_warm_servers()
    except (OSError, subprocess.SubprocessError) as error:
        log(f"a server did not stop: {error}")


def run(harness: Harness, experiment: Experiment, chosen: list[Kind], rounds: int) -> None:
    """Run an experiment with the servers in turn, round after round: A B A B."""
    began = time.monotonic()
    also = (Kind.CEILING,) if experiment.ceiling else ()
    chosen = [kind for kind in chosen if kind in (*experiment.kinds, *also)]
    if experiment.warm:
        with harness.unrecorded(WARM_UP_SCALE):
            for kind in chosen:
                experiment.run(harness, kind)
    warmed = time.monotonic()
    rounds = min(rounds, experiment.rounds_max)
    for _ in range(rounds):
        for kind in chosen:
            experiment.run(harness, kind)
    ended = time.monotonic()
    log(f"{experiment.name}: {ended - began:.0f} s, {(ended - warmed) / rounds:.0f} s a round")


def main() -> None:
    options = parse()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # otherwise `timeout` would leave servers and gigabytes behind
    raise_open_files_limit()
    chosen = kinds(options)
    rounds = 1 if options.quick else options.rounds
    selected: list[tuple[Experiment, Row]] = []
    kinds_before: tuple[Kind, ...] = COMPARED
    other_load = OtherLoad()
    failed: list[str] = []
    with temporary_directory() as root:
        harness = Harness(root, QUICK_SCALE if options.quick else 1)
        try:
            for experiment in sorted(EXPERIMENTS, key=lambda one: (not one.warm, one.kinds != COMPARED)):
                rows = report.selected(experiment, options.rows)
                if options.ceiling == "only" and not experiment.ceiling:
                    rows = []
                if not {*experiment.kinds} & {*chosen}:
                    rows = []
                if not experiment.warm or experiment.kinds != kinds_before:
                    stop_warm_servers(harness)
                kinds_before = experiment.kinds
                if not rows:
                    continue
                selected += [(experiment, row) for row in rows]
                try:
                    run(harness, experiment, chosen, rounds)
                except FAILURES as error:
                    failed.append(experiment.name)
                    log(f"{experiment.name} FAILED: {type(error).__name__}: {error}")
                    stop_warm_servers(harness)
        finally:
            stop_warm_servers(harness)
    harness.note(
        f"other processes used {other_load.cores():.2f} of {os.cpu_count()} cores meanwhile: best is 0"
    )
    summaries = [report.summary(harness, row) for one, row in selected if one.kinds == COMPARED]
    paths = [report.paths_summary(harness, row) for one, row in selected if one.kinds != COMPARED]
    report.print_table(summaries)
    report.print_paths(paths)
    for note in harness.notes:
        print(f"note: {note}")
    if options.json:
        report.write_json(options.json, summaries + paths, harness, rounds)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
