"""`prove`: the proof of a program from Python, as ``oncelog prove`` is on the command line."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import trio

from oncelog.broker.control.errors import InvalidArgumentError
from oncelog.broker.control.options import config_texts
from oncelog.broker.prove.disturbances import Disturbance
from oncelog.broker.prove.judging.judge import Judge
from oncelog.broker.prove.plan import (
    ADDRESS_VARIABLE,
    FOLDER_VARIABLE,
    MECHANISM,
    PROMISES,
    QUIET_S,
    TIMEOUT_S,
    UPSTREAM_TIMEOUT_S,
    Promise,
    ProofPlan,
    nodes_of,
    record_data,
)
from oncelog.broker.prove.prover import Budget, Progress, Prover
from oncelog.broker.prove.verdict import Finding, read_finding
from oncelog.broker.seams.machine_time import MachineClock
from oncelog.broker.seams.processes import (
    CommandError,
    find_command,
    has_variable,
)

if TYPE_CHECKING:
    from oncelog.broker.control.types import RecordGiven
    from oncelog.broker.prove.verdict import Verdict

CALL_MODULE = "oncelog.broker.prove.call"


P = ParamSpec("P")
T = TypeVar("T")


def _without_own_frames(function: Callable[P, T]) -> Callable[P, T]:
    """Let a mistake in the arguments be reported where the call is: pytest would show a hundred lines of docstring."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except InvalidArgumentError as error:
            raise error.with_traceback(None) from error.__cause__

    return called


@_without_own_frames
def prove(
    program: str | Sequence[str] | Callable[..., object],
    *,
    topics: Mapping[str, int] | Iterable[str],
    inputs: Mapping[str, Iterable[RecordGiven]],
    outputs: str | Iterable[str] = (),
    promise: Promise = "exactly-once",
    instances: int = 1,
    nodes: int | None = None,
    env: str = ADDRESS_VARIABLE,
    until_exit: bool = False,
    quiet: float = QUIET_S,
    timeout: float | None = None,
    ignore: Iterable[str] = (),
    key: str | None = None,
    judge: Judge | None = None,
    check: str | None = None,
    reset: str | None = None,
    config: Mapping[str, object] | None = None,
    user: tuple[str, str] | None = None,
    mechanism: str = MECHANISM,
    tls: bool = False,
    from_snapshot: str | bytes | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    depth: int = 1,
    jobs: int | None = None,
    seed: int = 0,
    upstream: str | None = None,
    command_config: Mapping[str, object] | str | None = None,
    again: str | PathLike[str] | Finding | Iterable[Mapping[str, Any]] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Verdict:
    """Run a program once for each step at which it, the broker or the network can fail; return what that has shown.

    program: a command, as a list or as one text, or a function of a module, which runs in a process of its own and is
        given the broker's address if it takes an argument.
    topics: partitions by name, or names.
    inputs: records by topic, each as ``kafka.produce_many`` takes it.
    outputs: the topics whose records are compared.
    promise: what the program promises: ``exactly-once``, ``at-least-once`` or ``at-most-once``.
    instances: how many instances run.
    nodes: how many nodes each trial has, whose leaders and coordinators move, and which die; by default 3, and 1 from a
        snapshot.
    env: the variable of the environment that has the broker's address.
    until_exit: whether the program ends when it is done; if not, it is a service.
    quiet: for how many seconds a service that is done changes nothing.
    timeout: seconds after which a trial is stuck; by default 20, with ``upstream`` 180.
    ignore: JSON paths of the outputs' values, ``headers`` or ``header:NAME``, and ``offsets`` of groups, that are not
        compared.
    key: the JSON path, or ``key``, of which there is one output for each value.
    judge: a function of the inputs and of the outputs by topic, whose texts say what is wrong, in place of the
        comparison.
    check: a shell command whose output counts, too.
    reset: a shell command that runs before each trial.
    config: configuration of the broker.
    user: the name and the password with which the program logs in, by ``mechanism``; it finds them in the variables
        ``KAFKA_SASL_USERNAME`` and ``KAFKA_SASL_PASSWORD``.
    tls: the listeners have TLS; the variable ``KAFKA_SSL_CA_LOCATION`` has the path of the authority's certificate.
    from_snapshot: the path of a snapshot, or its content, with whose data each trial begins.
    trials, seconds: how much is tried at most.
    depth: 2 disturbs, too, what only a failure shows.
    jobs: how many trials run side by side; by default as many as keep the cores busy.
    seed: of the broker's random ids.
    upstream: the address of a Kafka cluster on which the program is proved, in place of brokers of oncelog.
    command_config: how to log in there, by the keys of Kafka's clients, or the path of a file of them.
    again: a finding, its file, or its ``again``; only that trial runs.
    tell: called with a line about each finding.

    It blocks. Raises InvalidArgumentError, UnsupportedError, SnapshotError, KafkaError.
    """
    if trio.lowlevel.in_trio_run():
        raise InvalidArgumentError("prove() blocks: call it in a thread (trio.to_thread.run_sync)")
    if has_variable(FOLDER_VARIABLE):
        raise InvalidArgumentError(
            "prove() was called by a program that is proved: the module of a function is imported in a process of its "
            'own; put the call of prove() behind if __name__ == "__main__":'
        )
    if promise not in PROMISES:
        raise InvalidArgumentError(f"promise={promise!r}: expected one of {', '.join(PROMISES)}")
    _check_types(topics, inputs, user, judge)
    names = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
    plan = ProofPlan(
        command=_command(program),
        topics=dict(names),
        inputs={topic: tuple(map(record_data, records)) for topic, records in inputs.items()},
        outputs=(outputs,) if isinstance(outputs, str) else tuple(outputs),
        promise=promise,
        instances=instances,
        nodes=nodes_of(nodes, upstream, from_snapshot),
        address_variable=env,
        until_exit=until_exit,
        quiet_s=quiet,
        timeout_s=timeout if timeout is not None else TIMEOUT_S if upstream is None else UPSTREAM_TIMEOUT_S,
        ignore=tuple(ignore),
        key=key,
        check=check,
        reset=reset,
        config=config_texts(config or {}),
        seed=seed,
        user=None if user is None else user[0],
        password=None if user is None else user[1],
        mechanism=mechanism,
        tls=tls,
        upstream=upstream,
        from_snapshot=from_snapshot,
    )
    plan.validate()

    def on_progress(progress: Progress) -> None:
        if tell is not None and progress.text is not None:
            tell(progress.text)

    try:
        disturbances = () if again is None else _again(again)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from None
    prover = Prover(
        plan,
        on_progress,
        budget=Budget(trials, seconds),
        depth=depth,
        jobs=jobs,
        command_config=command_config,
        judge=judge,
    )
    try:
        find_command(plan.command[0])
        if again is not None:
            return trio.run(prover.again, disturbances, clock=MachineClock())
        return trio.run(prover.run, clock=MachineClock())
    except (CommandError, ValueError) as error:
        raise InvalidArgumentError(str(error)) from None


def _check_types(topics: object, inputs: object, user: object, judge: object) -> None:
    """Raises InvalidArgumentError for what Python would take as something else, such as a text as its letters."""
    if isinstance(topics, str | bytes):
        raise InvalidArgumentError(f"topics={topics!r}: expected names, or partitions by name")
    if not isinstance(inputs, Mapping):
        raise InvalidArgumentError(f"inputs={inputs!r}: expected records by topic")
    for topic, records in inputs.items():
        if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
            raise InvalidArgumentError(f"inputs={{{topic!r}: {records!r}}}: expected a list of records")
    if user is not None and not (
        isinstance(user, tuple | list) and len(user) == 2 and all(isinstance(one, str) for one in user)
    ):
        raise InvalidArgumentError("user: expected a pair of name and password")
    if judge is not None and not callable(judge):
        raise InvalidArgumentError(f"judge={judge!r}: expected a function")


def _again(again: str | PathLike[str] | Finding | Iterable[Mapping[str, Any]]) -> tuple[Disturbance, ...]:
    """Return the disturbances of a finding, of its file, or of `Finding.again`. Raises InvalidArgumentError."""
    if isinstance(again, Finding):
        return again.disturbances
    rows = read_finding(str(again))["disturbances"] if isinstance(again, str | PathLike) else again
    return tuple(map(Disturbance.of_data, rows))


def _command(program: str | Sequence[str] | Callable[..., object]) -> tuple[str, ...]:
    """Return the command of a program. Raises InvalidArgumentError."""
    if isinstance(program, str):
        return tuple(shlex.split(program))
    if isinstance(program, Iterable):
        return tuple(map(str, program))
    if not callable(program):
        raise InvalidArgumentError(f"program={program!r}: expected a command or a function")
    name: str = getattr(program, "__qualname__", "")
    path = inspect.getsourcefile(program) if inspect.isfunction(program) else None
    if path is None or not name or "<" in name:
        raise InvalidArgumentError(
            f"program={program!r}: expected a command, or a function that a module has by name: "
            "it is imported in a process of its own"
        )
    paths = [one for one in sys.path if one]
    return sys.executable, "-m", CALL_MODULE, str(Path(path).absolute()), name, "{bootstrap}", *paths
