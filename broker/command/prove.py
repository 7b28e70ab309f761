"""The command ``oncelog prove``: says which crash makes a program lose or double a record.

Exit codes: 0 if the program keeps its promise, 1 if it breaks it, 2 for an invalid command line, 3 if it cannot be
judged.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any, Final

import trio

from oncelog.broker.command.cli import EXIT_NOT_JUDGED, serve_until_signal
from oncelog.broker.config.definitions import ConfigError
from oncelog.broker.config.options import Parser, UsageError, options_of, unknown_option
from oncelog.broker.control.errors import InvalidArgumentError, OncelogError
from oncelog.broker.prove.disturbances import Disturbance
from oncelog.broker.prove.judging.judge import Judge
from oncelog.broker.prove.judging.mistakes import explained
from oncelog.broker.prove.plan import (
    ADDRESS_VARIABLE,
    MECHANISM,
    PROMISES,
    QUIET_S,
    TIMEOUT_S,
    UPSTREAM_TIMEOUT_S,
    ProofPlan,
    nodes_of,
    records_of_lines,
)
from oncelog.broker.prove.prover import Budget, Progress, Prover
from oncelog.broker.prove.report import html_of, text_of
from oncelog.broker.prove.verdict import BROKEN, KEPT, NOT_JUDGED, Finding, Verdict, read_finding
from oncelog.broker.seams.error_groups import first_error
from oncelog.broker.seams.processes import CommandError, find_command
from oncelog.broker.security.user_options import parse_users
from oncelog.wire.errors import KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from oncelog.broker.prove.trials.trial_result import LastWords

EXIT_CODES: Final = {KEPT: 0, BROKEN: 1, NOT_JUDGED: EXIT_NOT_JUDGED}
HELP: Final = "see oncelog prove --help"
REPORT: Final = "oncelog-prove"
RESULT, PAGE = "result.json", "report.html"

EPILOG: Final = """\
The program gets the address of its broker in KAFKA_BOOTSTRAP_SERVERS (--env names another variable), or where its
arguments say {bootstrap}; the trial's folder in {dir} and ONCELOG_PROVE_DIR, and its name in {trial} and
ONCELOG_PROVE_TRIAL; the number of the instance in {instance} and ONCELOG_PROVE_INSTANCE. Docs: docs/how-to/prove.md.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. Raises UsageError."""
    own, command = _split(arguments)
    parser = _parser()
    try:
        options, unknown = parser.parse_known_args(own)
        if unknown and not unknown[0].startswith("-"):
            raise UsageError(f"put -- before the program: -- {shlex.join([*unknown, *command])}")
        if unknown:
            raise UsageError(unknown_option(unknown[0], options_of(parser), "oncelog prove"))
        if options.explain is not None:
            print(explained(options.explain), end="")
            return 0
        if options.again is not None:
            _check_again(options, parser)
            plan, disturbances = _of_finding(options, command)
        else:
            plan, disturbances = _plan(options, command), None
        plan.validate()
        if options.command_config is not None and plan.upstream is None:
            raise UsageError("--command-config is for a cluster, which --upstream names")
        find_command(plan.command[0])
        budget = _budget(options.budget)
        if disturbances is None:
            _make_report(options.report)
    except (UsageError, InvalidArgumentError, CommandError) as error:
        raise UsageError(f"{error}; {HELP}") from None
    return _prove(options, plan, budget, disturbances)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options, and the command behind ``--``."""
    if "--" not in arguments:
        return list(arguments), []
    at = list(arguments).index("--")
    return list(arguments[:at]), list(arguments[at + 1 :])


def _prove(
    options: argparse.Namespace, plan: ProofPlan, budget: Budget, disturbances: tuple[Disturbance, ...] | None
) -> int:
    prover = Prover(
        plan,
        _tell,
        budget=budget,
        depth=options.depth,
        jobs=options.jobs,
        command_config=options.command_config,
        judge=_judge(plan.judge),
        first=_failed_last(options.report, plan),
    )
    try:
        trio.run(_prove_until_signal, prover, disturbances)
    except KeyboardInterrupt:
        prover.verdict.is_interrupted = True
    except (OncelogError, KafkaError, CommandError) as error:
        raise UsageError(str(error)) from None
    verdict = prover.verdict
    if disturbances is not None:
        files, unsteady_files = {0: options.again}, {}
    else:
        # Files have no passwords.
        login = "" if plan.user is None else f" --user {plan.user}:PASSWORD"
        files, unsteady_files = (
            {number: _path(options.report, prefix, number) + login for number in range(len(findings))}
            for prefix, findings in _prefixed(verdict)
        )
    text = (
        json.dumps(verdict.to_data(), indent=2) + "\n"
        if options.json
        else text_of(verdict, files, unsteady_files)
    )
    print(text, end="", flush=True)
    if disturbances is None:
        page = html_of(verdict, files, unsteady_files)
        _write(options.report, verdict, page, with_logs=options.logs)
        print(f"oncelog: the report is {os.path.join(options.report, PAGE)}", file=sys.stderr)
    return EXIT_CODES[verdict.promise]


async def _prove_until_signal(prover: Prover, disturbances: tuple[Disturbance, ...] | None) -> None:
    """Prove, or repeat one trial, until it is done or a signal comes: SIGTERM, too, must not leave the program running.
    Raises as `Prover.run`.
    """
    is_done = False

    async def prove() -> None:
        nonlocal is_done
        await (prover.run() if disturbances is None else prover.again(disturbances))
        is_done = True

    try:
        await serve_until_signal(prove)
    except BaseExceptionGroup as group:
        raise first_error(group) from None
    if not is_done:
        prover.verdict.is_interrupted = True


def _tell(progress: Progress) -> None:
    """Write progress to standard error: each finding as a line, and on a terminal a count that is written over."""
    is_terminal = sys.stderr.isatty()
    if progress.text is not None:
        clear = "\r\033[K" if is_terminal else ""
        print(f"{clear}oncelog: {progress.done} of {progress.planned}: {progress.text}", file=sys.stderr)
    if is_terminal:
        print(
            f"\roncelog: {progress.done} of {progress.planned} trials ", end="", file=sys.stderr, flush=True
        )


# -- the report


def _make_report(report: str) -> None:
    """Make the folder of the report, before anything is tried. Raises UsageError."""
    try:
        os.makedirs(report, exist_ok=True)
        if not os.access(report, os.W_OK):
            raise UsageError(f"--report {report}: this folder cannot be written to")
    except OSError as error:
        raise UsageError(f"--report {report}: {error.strerror}") from None


def _prefixed(verdict: Verdict) -> tuple[tuple[str, list[Finding]], ...]:
    """Return the findings of each kind, with the prefix of their files' names."""
    return ("", verdict.findings), ("unsteady-", verdict.unsteady)


def _path(report: str, prefix: str, number: int, suffix: str = "") -> str:
    """Return the path of the file of a finding; ``number`` counts from 0 on."""
    return os.path.join(report, f"{prefix}{number + 1}{suffix}.json")


def _write(report: str, verdict: Verdict, page: str, *, with_logs: bool) -> None:
    """Write the verdict, its page, and a file for each finding; with its logs, if they are wanted."""
    try:
        for name in os.listdir(report):
            if re.fullmatch(r"(unsteady-)?\d+(\.rules)?\.json|.*\.instance\d+-\d+\.log", name):
                os.remove(os.path.join(report, name))
        if with_logs:
            _write_logs(report, "undisturbed", verdict.last_words)
        for prefix, findings in _prefixed(verdict):
            for number, finding in enumerate(findings):
                _write_json(_path(report, prefix, number), finding.to_data(verdict.plan))
                if with_logs:
                    _write_logs(report, f"{prefix}{number + 1}", finding.last_words)
                rules = finding.rules()
                if rules is not None:
                    _write_json(_path(report, prefix, number, ".rules"), {"rules": rules})
        _write_json(os.path.join(report, RESULT), verdict.to_data())
        with open(os.path.join(report, PAGE), "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        raise UsageError(f"--report {report}: {error.strerror}") from None


def _write_logs(report: str, name: str, last_words: Sequence[LastWords]) -> None:
    """Write a file for each process: ``1.instance2-1.log`` for the first start of instance 2 in the first finding."""
    for one in last_words:
        path = os.path.join(report, f"{name}.instance{one.instance}-{one.run}.log")
        with open(path, "w", encoding="utf-8") as file:
            file.write(one.output)


def _write_json(path: str, data: object) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=2)
        file.write("\n")


def _failed_last(report: str, plan: ProofPlan) -> list[tuple[Disturbance, ...]]:
    """Return the disturbances of the findings of the last proof of the same command."""
    try:
        with open(os.path.join(report, RESULT), encoding="utf-8") as file:
            findings = json.load(file)["findings"]
        return [_disturbances(one) for one in findings if one["plan"]["command"] == list(plan.command)]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _disturbances(finding: dict[str, Any]) -> tuple[Disturbance, ...]:
    return tuple(map(Disturbance.of_data, finding["disturbances"]))


# -- options


OF_AGAIN: Final = frozenset(
    ("again", "command_config", "from_snapshot", "json", "timeout", "upstream", "user")
)
"""Options beside ``--again`` that have an effect: a finding has the others."""


def _check_again(options: argparse.Namespace, parser: Parser) -> None:
    """Raises UsageError for an option that would have no effect."""
    for name, value in vars(options).items():
        if name not in OF_AGAIN and value != parser.get_default(name):
            option = "-c" if name == "settings" else f"--{name.replace('_', '-')}"
            raise UsageError(f"--again repeats a trial with the options that it had: {option} has no effect")


def _of_finding(options: argparse.Namespace, command: list[str]) -> tuple[ProofPlan, tuple[Disturbance, ...]]:
    """Return the plan and the disturbances of a finding's file; a command that is given takes the place of its own."""
    data = read_finding(options.again)
    try:
        found = _disturbances(data)
        timeout_s = None if options.timeout is options.upstream is None else _timeout(options)
        given = {
            "command": command,
            "upstream": options.upstream,
            "from_snapshot": options.from_snapshot,
            "timeout_s": timeout_s,
            "nodes": 1 if options.upstream is not None else None,
            **_login(options),
        }
        plan = ProofPlan.of_data({**data["plan"], **{name: value for name, value in given.items() if value}})
    except (ValueError, LookupError, TypeError):
        raise UsageError(f"{options.again} is no finding of oncelog prove") from None
    return plan, found


def _plan(options: argparse.Namespace, command: list[str]) -> ProofPlan:
    return ProofPlan(
        command=tuple(command),
        topics=dict(map(_topic, options.topic)),
        inputs=_inputs(options.input),
        outputs=tuple(options.output),
        promise=options.promise,
        instances=options.instances,
        nodes=nodes_of(options.nodes, options.upstream, options.from_snapshot),
        address_variable=options.env,
        until_exit=options.until_exit,
        quiet_s=options.quiet,
        timeout_s=_timeout(options),
        ignore=tuple(options.ignore),
        key=options.key,
        check=options.check,
        reset=options.reset,
        judge=options.judge,
        config=dict(map(_setting, options.settings)),
        seed=options.seed,
        upstream=options.upstream,
        mechanism=options.mechanism,
        tls=options.tls,
        from_snapshot=options.from_snapshot,
        **_login(options),
    )


def _login(options: argparse.Namespace) -> dict[str, str]:
    if options.user is None:
        return {}
    try:
        [(name, password)] = parse_users([options.user], "--user").items()
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return {"user": name, "password": password}


def _timeout(options: argparse.Namespace) -> float:
    if options.timeout is not None:
        return float(options.timeout)
    return TIMEOUT_S if options.upstream is None else UPSTREAM_TIMEOUT_S


def _judge(text: str | None) -> Judge | None:
    """Return the function ``MODULE:FUNCTION``, imported from where the command is given. Raises UsageError."""
    if text is None:
        return None
    from importlib import import_module

    module, _, name = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Judge = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--judge {text}: expected MODULE:FUNCTION: {error}; {HELP}") from None
    return found


def _topic(text: str) -> tuple[str, int]:
    name, colon, count = text.partition(":")
    if not name or (colon and not count.isdecimal()) or count == "0":
        raise UsageError(f"--topic {text}: expected NAME or NAME:PARTITIONS")
    return name, int(count or 1)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"-c {key}: expected KEY=VALUE")
    return key, value


def _inputs(given: Sequence[str]) -> dict[str, tuple[dict[str, Any], ...]]:
    inputs: dict[str, tuple[dict[str, Any], ...]] = {}
    for text in given:
        topic, equals, path = text.partition("=")
        if not equals:
            raise UsageError(f"--input {text}: expected TOPIC=FILE, a file with one JSON value on each line")
        try:
            with open(path, encoding="utf-8") as file:
                inputs[topic] = (*inputs.get(topic, ()), *records_of_lines(file, path))
        except OSError as error:
            raise UsageError(f"--input {text}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"--input {text}: the file is not UTF-8") from None
    return inputs


def _budget(text: str | None) -> Budget:
    if text is None:
        return Budget()
    found = re.fullmatch(r"(\d+)(s|m)?", text)
    if found is None or int(found[1]) == 0:
        raise UsageError(f"--budget {text}: expected a number of trials, or a time such as 90s or 5m")
    number = int(found[1])
    return (
        Budget(trials=number) if found[2] is None else Budget(seconds=number * (60 if found[2] == "m" else 1))
    )


def _parser() -> Parser:
    import argparse

    parser = Parser(
        prog="oncelog prove",
        usage="oncelog prove --topic TOPIC:PARTITIONS --input TOPIC=FILE --output TOPIC [OPTION ...] -- COMMAND ...\n"
        "       oncelog prove --again FILE\n"
        "       oncelog prove --explain MISTAKE",
        description="Run a program once for each step at which it, the broker or the network can fail, and say which "
        "of these loses, doubles or reorders a record.",
        epilog=EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--topic", action="append", default=[], metavar="NAME:PARTITIONS", help="a topic; may be repeated")
    add(
        "--input",
        action="append",
        default=[],
        metavar="TOPIC=FILE",
        help="records to read, a JSON value on each line",
    )
    add(
        "--output",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic that the program writes; may be repeated",
    )
    add("--promise", choices=PROMISES, default=PROMISES[0], help="what it promises (default: exactly-once)")
    add("--instances", type=int, default=1, metavar="N", help="how many instances run (default: 1)")
    add(
        "--nodes",
        type=int,
        metavar="N",
        help="how many nodes the broker has (default: 3, as in production; 1 from a snapshot)",
    )
    add(
        "--env",
        default=ADDRESS_VARIABLE,
        metavar="NAME",
        help=f"the variable of the address (default: {ADDRESS_VARIABLE})",
    )
    add(
        "--until-exit",
        action="store_true",
        help="the program ends when it is done; without it, it is a service",
    )
    add(
        "--quiet",
        type=float,
        default=QUIET_S,
        metavar="S",
        help=f"a service is done when it has read its input and has "
        f"changed nothing for so many seconds (default: {QUIET_S:g})",
    )
    add(
        "--timeout",
        type=float,
        metavar="S",
        help=f"a trial is stuck after so many seconds (default: {TIMEOUT_S:g}, {UPSTREAM_TIMEOUT_S:g} with --upstream)",
    )
    add(
        "--ignore",
        action="append",
        default=[],
        metavar="PATH",
        help="do not compare what is there in the JSON values of "
        "outputs ($.at), or headers, header:NAME, or the offsets of groups (offsets); may be repeated",
    )
    add(
        "--key",
        metavar="PATH",
        help="there is one output for each value of this path, or of the record's key (key), "
        "whatever else is in it",
    )
    add(
        "--judge",
        metavar="MODULE:FUNCTION",
        help="judges the outputs in place of the comparison: a function of the inputs, and of the outputs by topic, "
        "that returns what is wrong",
    )
    add(
        "--check",
        metavar="COMMAND",
        help="the output of this shell command counts, too, such as the rows of a database",
    )
    add("--reset", metavar="COMMAND", help="run this shell command before each trial")
    add("--from-snapshot", metavar="FILE", help="begin each trial with the data of this snapshot")
    add(
        "-c",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="set one of the broker's keys; may be repeated",
    )
    add(
        "--user",
        metavar="NAME:PASSWORD",
        help="the program logs in as this user: KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD, KAFKA_SASL_MECHANISM and "
        "KAFKA_SECURITY_PROTOCOL tell it so",
    )
    add("--mechanism", default=MECHANISM, metavar="NAME", help=f"how it logs in (default: {MECHANISM})")
    add(
        "--tls",
        action="store_true",
        help="the broker has TLS; KAFKA_SSL_CA_LOCATION is the path of the authority's certificate",
    )
    add(
        "--budget",
        metavar="N|TIME",
        help="try at most so many trials, or for so long: 100, 90s, 5m (default: everything)",
    )
    add(
        "--depth",
        type=int,
        choices=(1, 2),
        default=1,
        help="2: disturb, too, what only a failure shows (default: 1)",
    )
    add(
        "--jobs",
        type=int,
        metavar="N",
        help="trials side by side (default: as many as keep the cores busy)",
    )
    add(
        "--upstream",
        metavar="HOST:PORT,...",
        help="prove it on this Kafka cluster, through a proxy: its topics must not exist there, and are deleted after "
        "each trial, as its groups are. One trial runs at a time, in real time",
    )
    add(
        "--command-config",
        metavar="FILE",
        help="how to log in to that cluster: a file with the keys of Kafka's clients, as its tools take it",
    )
    add("--seed", type=int, default=0, metavar="N", help="of the broker's random ids (default: 0)")
    add("--report", default=REPORT, metavar="DIR", help=f"where the report is written (default: {REPORT})")
    add(
        "--logs",
        action="store_true",
        help="write what each process of a finding wrote, its last 64 kB, beside the finding",
    )
    add("--json", action="store_true", help="print the verdict as JSON")
    add(
        "--again",
        metavar="FILE",
        help="repeat the trial of a finding; a command behind -- takes the place of its own",
    )
    add("--explain", metavar="MISTAKE", help="print what a verdict's mistake is, and its mend")
    return parser
