"""Prove programs of the zoo whole, and write what came out into the table of docs/how-to/mistakes.md: `make prove`.

    python -m compat_tests.prove [--budget N] [NAME ...]

Without a name it proves all. It also stores in reproductions/ what repeats their failures. Exit code 1: a program was
judged otherwise than zoo.py says.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

from compat_tests.prove.mends import PAGE
from compat_tests.prove.proofs import Proof, failures_of, prove, store
from compat_tests.prove.zoo import ZOO, Failure, Member
from tests.common.jars import RealPartMissing

BEGIN, END = "<!-- the table: make prove -->", "<!-- its end -->"
HEAD = "| program | verdict | by which steps | trials |\n|---|---|---|---|\n"


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.prove")
    parser.add_argument("--budget", help="as of oncelog prove; the table stays as it is then")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of zoo.py; all, if none is given")
    options = parser.parse_args()
    budget = () if options.budget is None else ("--budget", options.budget)
    judged = [judge(member, *budget) for member in [ZOO[name] for name in options.names] or ZOO.values()]
    return 0 if all(judged) else 1


def judge(member: Member, *budget: str) -> bool:
    """Prove one program, and print what came out. Returns whether it is what is known."""
    with tempfile.TemporaryDirectory(prefix="oncelog-zoo-") as folder:
        try:
            proof = prove(member, pathlib.Path(folder), *budget)
        except RealPartMissing as missing:
            print(f"{member.name}: not tried: {missing}", flush=True)
            return True
    # A proof tells the first trial of those that fail alike.
    told = {(one.problem, one.mistake) for one in proof.failures}
    missed = [one for one in store(member, proof) if (one.problem, one.mistake) not in told]
    faults = [f"misses {_text(one)}" for one in missed]
    if proof.verdict["verdict"] != member.verdict:
        faults.append(f"expected {member.verdict}")
    row = _row(member, proof)
    print(f"{row} {'; '.join(faults)}", flush=True)
    if faults:
        print(proof, flush=True)
    if not budget:
        write(member, row)
    return not faults


def write(member: Member, row: str) -> None:
    """Write a row into the table of the page, in the place that zoo.py gives it."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    rows = {line.split(" | ")[0]: line for line in table.splitlines() if line.startswith("| `")}
    rows[_label(member)] = row
    kept = "".join(f"{rows[_label(one)]}\n" for one in ZOO.values() if _label(one) in rows)
    PAGE.write_text(f"{before}{BEGIN}\n\n{HEAD}{kept}\n{END}{after}")


def _label(member: Member) -> str:
    """Return the beginning of its row; a program that the page mends has the name of the wrong one."""
    name = member.name if member.mend is None else member.name.removesuffix("_mended")
    return f"| `{name}`" + ("" if member.mend is None else ", mended")


def _row(member: Member, proof: Proof) -> str:
    verdict = proof.verdict
    steps = {_text(failure): None for one in verdict["findings"] for failure in failures_of(one)}
    late = f", readers wait up to {verdict['late_ms'] // 1000} s" if verdict["late_ms"] else ""
    shown = "; ".join(sorted(steps))
    return f"{_label(member)} | {verdict['verdict']}{late} | {shown} | {verdict['trials']} |"


def _text(failure: Failure) -> str:
    section = f" ([why](#{failure.mistake}))" if failure.mistake else ""
    step = f"{failure.disturbance} {failure.api}".strip() or "undisturbed"
    return f"{failure.problem}: {step}{section}"


if __name__ == "__main__":
    sys.exit(main())
