"""Prove every program of the zoo whole, and write what came out into docs/how-to/mistakes.md: `make prove`.

    python -m compat_tests.prove [--budget N] [NAME ...]

With names it proves only those, and stores in reproductions/ what repeats their failures. Exit code 1: a program
was judged otherwise than the table says.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

from compat_tests.prove.mends import PAGE
from compat_tests.prove.proofs import Proof, failures_of, prove, store
from compat_tests.prove.zoo import ZOO, Failure, Member
from tests.common.real_kafka import RealPartMissing

BEGIN, END = "<!-- the table: make prove -->", "<!-- its end -->"
HEAD = "| program | verdict | by which steps | trials |\n|---|---|---|---|\n"


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.prove")
    parser.add_argument("--budget", help="as of oncelog prove")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the zoo's table; all, if none is given")
    options = parser.parse_args()
    rows, wrong = [], 0
    for member in [ZOO[name] for name in options.names] or ZOO.values():
        with tempfile.TemporaryDirectory(prefix="oncelog-zoo-") as folder:
            try:
                proof = prove(
                    member,
                    pathlib.Path(folder),
                    *(("--budget", options.budget) if options.budget else ()),
                )
            except RealPartMissing as missing:
                print(f"{member.name}: not tried: {missing}", flush=True)
                continue
        faults = [f"misses {_text(one)}" for one in missed(member, proof, is_stored=bool(options.names))]
        if proof.verdict["verdict"] != member.verdict:
            faults.append(f"expected {member.verdict}")
        wrong += bool(faults)
        rows.append(_row(member, proof))
        print(f"{rows[-1]} {'; '.join(faults)}", flush=True)
        if faults:
            print(proof, flush=True)
    if not options.names:
        write(rows)
    return bool(wrong)


def missed(member: Member, proof: Proof, *, is_stored: bool) -> list[Failure]:
    """The failures of the table that a proof did not meet. `is_stored`: keep what repeats the others."""
    if is_stored:
        return store(member, proof)
    return [one for one in member.failures if one not in proof.failures]


def write(rows: list[str]) -> None:
    """Write the table into the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    table = "".join(f"{row}\n" for row in rows)
    PAGE.write_text(f"{before}{BEGIN}\n\n{HEAD}{table}\n{END}{after}")


def _row(member: Member, proof: Proof) -> str:
    verdict = proof.verdict
    steps = {_text(failure): None for one in verdict["findings"] for failure in failures_of(one)}
    late = f", readers wait {verdict['late_ms'] // 1000} s" if verdict["late_ms"] else ""
    return (
        f"| `{member.name}` | {verdict['verdict']}{late} | {'; '.join(sorted(steps))} | {verdict['trials']} |"
    )


def _text(failure: Failure) -> str:
    section = f" ([why](#{failure.mistake}))" if failure.mistake else ""
    return f"{failure.problem}: {failure.disturbance} {failure.api}{section}"


sys.exit(main())
