"""`oncelog prove` with bad input, and with programs that cannot be judged: one line each, and nothing left running."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

import oncelog
from oncelog.broker.prove.judging.mistakes import MISTAKES, explained

pytestmark = pytest.mark.slow

SPEAKS_TLS = """
import os, socket, time
host, port = os.environ["KAFKA_BOOTSTRAP_SERVERS"].split(":")
connection = socket.create_connection((host, int(port)))
connection.sendall(bytes.fromhex("16030102000100"))
time.sleep(600)
"""
SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "orders.jsonl").write_text('{"key": "k", "value": "tea"}\n{"order": 2}\n')
    (tmp_path / "typo.jsonl").write_text('{"value": "tea", "partion": 1}\n')
    return tmp_path


def prove(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "oncelog", "prove", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(oncelog.__file__).parent.parent)},
    )


GOOD = (
    "--topic",
    "orders:1",
    "--topic",
    "receipts",
    "--input",
    "orders=orders.jsonl",
    "--output",
    "receipts",
)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--", "app"), "there is no input: say what the program reads (--input TOPIC=FILE, or inputs=)"),
        (GOOD, "there is no command: oncelog prove OPTIONS -- COMMAND"),
        ((*GOOD, "--", "no-such-app"), "the command 'no-such-app' does not exist"),
        ((*GOOD, "--output", "recipts", "--", "sh"), "output recipts: there is no topic"),
        (
            (*GOOD, "--topic", "orders:none", "--", "sh"),
            "--topic orders:none: expected NAME or NAME:PARTITIONS",
        ),
        ((*GOOD, "--input", "orders", "--", "sh"), "--input orders: expected TOPIC=FILE"),
        (
            (*GOOD, "--input", "orders=no.jsonl", "--", "sh"),
            "--input orders=no.jsonl: No such file or directory",
        ),
        ((*GOOD, "--budget", "soon", "--", "sh"), "--budget soon: expected a number of trials, or a time"),
        ((*GOOD, "--instances", "0", "--", "sh"), "instances 0: expected 1 to 8"),
        ((*GOOD, "--quiet", "0", "--", "sh"), "quiet 0: expected more than 0 and less"),
        ((*GOOD, "--ignore", "$", "--", "sh"), "--ignore: '$' is no path in a JSON value, such as $.time"),
        ((*GOOD, "--promis", "x", "--", "sh"), "unknown option --promis; did you mean --promise?"),
        ((*GOOD, "--judge", "nothing:here", "--", "sh"), "--judge nothing:here: expected MODULE:FUNCTION"),
        ((*GOOD, "--jobs", "0", "--", "sh"), "--jobs 0: expected more than 0"),
        (
            (*GOOD, "--reset", "echo boom; exit 3", "--", "sh"),
            "the reset command ended with exit code 3: boom",
        ),
        ((*GOOD, "python", "app.py"), "put -- before the program: -- python app.py"),
        (
            ("--again", "no.json", "--budget", "4"),
            "--again repeats a trial with the options that it had: --budget",
        ),
        (("--again", "no.json"), "no.json: No such file or directory"),
        (("--again", "orders.jsonl"), "orders.jsonl is no finding of oncelog prove"),
        (
            ("--again", "no.json", "--report", "there"),
            "--again repeats a trial with the options that it had: --report",
        ),
        (
            (*GOOD, "--", "sh", "{bootsrap}"),
            "there is no {bootsrap}; did you mean {bootstrap}? (the command has it)",
        ),
        (
            (*GOOD, "--check", "cat {dirr}", "--", "sh"),
            "there is no {dirr}; did you mean {dir}? (--check has it)",
        ),
        (
            (*GOOD, "--input", "orders=typo.jsonl", "--", "sh"),
            "typo.jsonl, line 1: a record has no 'partion'; did you mean partition?",
        ),
        (("--explain", "two-write"), "there is no mistake 'two-write'; did you mean two-writes?"),
    ],
)
def test_a_mistake_is_one_line(folder: pathlib.Path, arguments: tuple[str, ...], error: str) -> None:
    ended = prove(folder, *arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"oncelog: {error}"), line


def test_a_command_line_with_a_mistake_leaves_no_folder_for_a_report(folder: pathlib.Path) -> None:
    assert prove(folder, *GOOD, "--budget", "0", "--", "sh").returncode == 2
    assert not (folder / "oncelog-prove").exists()


def test_a_bad_line_of_an_input_is_named(folder: pathlib.Path) -> None:
    (folder / "orders.jsonl").write_text('{"value": "tea"}\n{"value": \n')
    ended = prove(folder, *GOOD, "--", "sh")
    assert ended.returncode == 2
    assert "orders.jsonl, line 2: " in ended.stderr


def test_the_last_words_of_a_program_are_shown(folder: pathlib.Path) -> None:
    """Of Java's stack trace, too, the exception says what happened, and not the outermost frame."""
    trace = (
        "echo begun; echo 'Exception: disk full' >&2; echo '\tat shop.Main.main(Main.java:92)' >&2; exit 1"
    )
    ended = prove(folder, *GOOD, "--logs", "--", "sh", "-c", trace)
    assert (
        (folder / "oncelog-prove" / "undisturbed.instance1-3.log")
        .read_text()
        .startswith("begun\nException: ")
    )
    assert "instance 1 ended with exit code 1: Exception: disk full" in ended.stdout
    lines = ["begun", "Exception: disk full", "    at shop.Main.main(Main.java:92)"]
    shown = "".join(f"      {line}\n" for line in lines)
    assert f"   instance 1, start 3, wrote last:\n{shown}" in ended.stdout
    page = (folder / "oncelog-prove" / "report.html").read_text()
    assert "<summary>Instance 1 wrote last</summary><pre>begun\nException: disk full" in page
    [wrote, *_] = json.loads((folder / "oncelog-prove" / "result.json").read_text())["last_words"]
    assert (wrote["instance"], wrote["run"], wrote["lines"][1]) == (1, 1, "Exception: disk full")


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(folder: pathlib.Path) -> None:
    ended = prove(folder, *GOOD, "--report", "orders.jsonl", "--", "sh", "-c", "touch ran")
    assert ended.returncode == 2
    assert ended.stderr.startswith("oncelog: --report orders.jsonl: File exists")
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_a_section(mistake: str) -> None:
    heading, _, text = explained(mistake).partition("\n\n")
    assert heading.startswith("## ")
    assert re.search(r"^    (#|//) \w+\.(py|mjs)$", text, re.MULTILINE), "a block of a program"
    assert "\n## " not in text


def test_a_mistake_is_explained(folder: pathlib.Path) -> None:
    ended = prove(folder, "--explain", "two-writes")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, explained("two-writes"), "")


def test_all_mistakes_are_listed_for_an_unknown_one(folder: pathlib.Path) -> None:
    ended = prove(folder, "--explain", "two-writers")
    assert ended.returncode == 2
    assert "'two-writers'; did you mean two-writes" in ended.stderr
    assert all(one in ended.stderr for one in MISTAKES)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            ["sh", "-c", r"printf '\033[31mbroken\033[0m\n\033[?25h\n' >&2; exit 3"],
            "the program ends by itself (instance 1 ended with exit code 3: broken)",
        ),
        (
            SLEEPS,
            "the program sent no request in 1 s: it has to connect to the address in KAFKA_BOOTSTRAP_SERVERS",
        ),
        (
            ["sh", "-c", "echo waiting for nothing; sleep 600"],
            "; instance 1 wrote last: waiting for nothing\n",
        ),
        (
            [sys.executable, "-c", SPEAKS_TLS],
            "; its connections are closed: this looks like a TLS handshake: this listener speaks plaintext\n",
        ),
        # It ignores SIGTERM, and starts another process of its group.
        (["sh", "-c", "trap '' TERM; sleep 6543 & sleep 6543"], "the program sent no request in 1 s"),
        # Another session is another group.
        (
            ["sh", "-c", "setsid sleep 6543 & sleep 600"],
            "note: a process of the program left its process group, and was killed at the end (sleep 6543, process ",
        ),
    ],
)
def test_a_program_that_cannot_be_judged(folder: pathlib.Path, command: list[str], reason: str) -> None:
    ended = prove(folder, *GOOD, "--timeout", "1", "--", *command)
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout.startswith("verdict: not judged (exactly-once: not judged)\n")
    assert reason in ended.stdout
    assert (folder / "oncelog-prove" / "report.html").is_file()
    assert b"sleep\x006543\x00" not in command_lines()


IMPORTS_UNTIL_CTRL_C = """
import sys

class CtrlC:
    def find_spec(self, name, path, target=None):
        if name == "oncelog.broker.prove.prover":
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
from oncelog.broker.command.cli import main

sys.exit(main(["prove", "--topic", "orders", "--", "sh"]))
"""


def test_ctrl_c_while_it_is_imported_breaks_no_promise() -> None:
    ended = subprocess.run([sys.executable, "-c", IMPORTS_UNTIL_CTRL_C], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (3, "")


def command_lines() -> set[bytes]:
    """The command lines of all processes."""
    found = set()
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.add(path.read_bytes())
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_proof_and_leaves_nothing_running(folder: pathlib.Path, number: int) -> None:
    pid_file = folder / "pid"
    os.mkfifo(pid_file)
    temporary = folder / "tmp"
    temporary.mkdir()
    process: Any = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "oncelog",
            "prove",
            *GOOD,
            "--",
            "sh",
            "-c",
            f"echo $$ > {pid_file}; exec sleep 600",
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(pathlib.Path(oncelog.__file__).parent.parent),
            "TMPDIR": str(temporary),
        },
        # A shell's background job, and all that it starts, ignores SIGINT; that of nohup, SIGHUP. Perhaps this is one.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    pid = int(pid_file.read_text())  # as soon as the program has begun
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "interrupted" in output
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(temporary.iterdir()) == []
