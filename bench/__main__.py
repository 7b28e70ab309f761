"""`python -m bench`: run the experiments, print the table."""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

from confluent_kafka import KafkaException

from bench import disturbed, groups, lifecycle, rebalance, reconcile, report, scale, throughput, transactions
from bench.experiment import Experiment, Lab, Row, temporary_directory
from bench.measure import OtherLoad, raise_open_files_limit
from bench.servers import COMPARED, Kind
from compat_tests.real_kafka import RealPartMissing, java, kafka_libs

EXPERIMENTS = (
    *throughput.EXPERIMENTS,
    *lifecycle.EXPERIMENTS,
    *disturbed.EXPERIMENTS,
    *scale.EXPERIMENTS,
    *groups.EXPERIMENTS,
    *rebalance.EXPERIMENTS,
    *reconcile.EXPERIMENTS,
    *transactions.EXPERIMENTS,
)
FAILURES = (RuntimeError, AssertionError, OSError, subprocess.SubprocessError, KafkaException)
QUICK_SCALE = 0.05
WARM_UP_SCALE = 0.25


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--rows", default="", metavar="PATTERN", help="only rows with this, or this|that, in their name"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the median is shown")
    parser.add_argument(
        "--quick", action="store_true", help="one round with small counts, to see that it runs"
    )
    parser.add_argument("--no-kafka", action="store_true", help="only ours")
    parser.add_argument("--no-ours", action="store_true", help="only Kafka")
    parser.add_argument(
        "--ceiling",
        choices=("with", "without", "only"),
        default="with",
        help="the stub that does nothing: where there is a row for it (default), nowhere, no other rows",
    )
    parser.add_argument(
        "--json", type=pathlib.Path, metavar="FILE", help="also write medians and samples there"
    )
    return parser.parse_args(arguments)


def kinds(options: argparse.Namespace) -> list[Kind]:
    """Which servers to run, where the experiment can. Exits where the real one's parts are missing."""
    left_out = {
        Kind.OURS: options.no_ours,
        Kind.KAFKA: options.no_kafka,
        Kind.CEILING: options.ceiling == "without",
    }
    chosen = [kind for kind in Kind if not left_out[kind]]
    if Kind.KAFKA in chosen:
        try:
            java()
            kafka_libs()
        except RealPartMissing as missing:
            sys.exit(f"{missing}\n(--no-kafka measures ours alone)")
    return chosen


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def stop_warm_servers(lab: Lab) -> None:
    """One that does not end must not take the results with it."""
    try:
        lab.stop_warm_servers()
    except (OSError, subprocess.SubprocessError) as error:
        say(f"a server did not stop: {error}")


def run(lab: Lab, experiment: Experiment, chosen: list[Kind], rounds: int) -> None:
    """The servers in turn, round after round: A B A B."""
    began = time.monotonic()
    chosen = [kind for kind in chosen if kind in COMPARED or experiment.ceiling]
    if experiment.warm:
        with lab.unrecorded(WARM_UP_SCALE):
            for kind in chosen:
                experiment.run(lab, kind)
    warmed = time.monotonic()
    rounds = min(rounds, experiment.rounds_max)
    for _ in range(rounds):
        for kind in chosen:
            experiment.run(lab, kind)
    ended = time.monotonic()
    say(f"{experiment.name}: {ended - began:.0f} s, {(ended - warmed) / rounds:.0f} s a round")


def main() -> None:
    options = parse()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # else a `timeout` leaves servers and gigabytes behind
    raise_open_files_limit()
    chosen = kinds(options)
    rounds = 1 if options.quick else options.rounds
    shown: list[Row] = []
    others = OtherLoad()
    failed: list[str] = []
    with temporary_directory() as root:
        lab = Lab(root, QUICK_SCALE if options.quick else 1)
        try:
            for experiment in sorted(EXPERIMENTS, key=lambda one: not one.warm):
                rows = report.selected(experiment, options.rows)
                if options.ceiling == "only" and not experiment.ceiling:
                    rows = []
                if not experiment.warm:
                    stop_warm_servers(lab)
                if not rows:
                    continue
                shown += rows
                try:
                    run(lab, experiment, chosen, rounds)
                except FAILURES as error:
                    failed.append(experiment.name)
                    say(f"{experiment.name} FAILED: {type(error).__name__}: {error}")
                    stop_warm_servers(lab)
        finally:
            stop_warm_servers(lab)
    lab.note(f"other processes took {others.cores():.2f} of {os.cpu_count()} cores meanwhile: best is 0")
    summaries = [report.summary(lab, row) for row in shown]
    report.print_table(summaries, lab.notes)
    if options.json:
        report.write_json(options.json, summaries, lab, rounds)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
