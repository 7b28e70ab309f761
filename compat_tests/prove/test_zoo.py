"""`oncelog prove` judges the programs of the zoo as they are known to be, by the step that is known.

Here are the stored reproductions of all, the page's mends in turn, and of each language a part of the proof of one
right program, in turn. `make prove` proves every program whole, which takes an hour.
"""

from __future__ import annotations

import pathlib

import pytest

from compat_tests.prove.proofs import KEPT, Proof, again, prove, reproduction
from compat_tests.prove.zoo import RIGHT, WRONG, ZOO, Member
from oncelog.broker.prove.prover import REPEATS
from tests.common.jars import RealPartMissing, require

STORED = [
    (member.name, number)
    for member in ZOO.values()
    for number in range(len(member.failures))
    if reproduction(member, number).exists()
]
TRIALS = {"python": "16", "javascript": "8", "go": "8", "java": "4"}
"""As many as there is time for. With 16 a program in Python has been killed at each of its kinds of requests."""
RIGHT_OF_CLIENTS = [one.name for one in RIGHT if one.language in TRIALS]
MENDS_A_DAY = 8
WITH_A_MEND = [
    (wrong.name, number)
    for wrong in WRONG
    if f"{wrong.name}_mended" in ZOO
    for number in range(len(wrong.failures))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where programs are made, once for all tests."""
    return tmp_path_factory.mktemp("zoo")


def repeat(member: Member, folder: pathlib.Path, stored: pathlib.Path) -> Proof:
    """Repeat a stored trial, or skip the test if the machine lacks what the program needs."""
    try:
        return again(member, folder, stored)
    except RealPartMissing as missing:
        require(str(missing))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), STORED)
def test_a_known_failure_is_met_again(name: str, number: int, folder: pathlib.Path) -> None:
    """One of REPEATS suffices, as in a proof: whether a record that was not flushed is lost depends on the machine."""
    member = ZOO[name]
    for _ in range(REPEATS):
        proof = repeat(member, folder, reproduction(member, number))
        if member.failures[number] in proof.failures:
            break
    assert member.failures[number] in proof.failures, proof
    assert proof.verdict["verdict"] != "exactly once"


@pytest.mark.slow
@pytest.mark.in_turn(MENDS_A_DAY)
@pytest.mark.parametrize(("name", "number"), WITH_A_MEND)
def test_the_mend_of_the_page_passes_where_the_mistake_fails(
    name: str, number: int, folder: pathlib.Path
) -> None:
    wrong, mended = ZOO[name], ZOO[f"{name}_mended"]
    proof = repeat(mended, folder, reproduction(wrong, number))
    assert wrong.failures[number].problem not in {one.problem for one in proof.failures}, proof
    assert proof.verdict["trials"] == 1, proof


@pytest.mark.slow
@pytest.mark.in_turn(1, of=lambda name: ZOO[name].language)
@pytest.mark.parametrize("name", RIGHT_OF_CLIENTS)
def test_a_right_program_keeps_its_promise(name: str, folder: pathlib.Path) -> None:
    member: Member = ZOO[name]
    try:
        proof = prove(member, folder, "--budget", TRIALS[member.language], "--jobs", "2")
    except RealPartMissing as missing:
        require(str(missing))
    assert proof.run.returncode == KEPT, proof
    assert proof.verdict["verdict"] in (member.verdict, "exactly once"), proof


@pytest.mark.slow
def test_depth_2_disturbs_the_way_back(folder: pathlib.Path) -> None:
    member = ZOO["at_least_once"]
    classes, depths = set(), set()
    for depth in ("1", "2"):
        verdict = prove(member, folder, "--depth", depth, "--budget", "2").verdict
        classes.add(verdict["classes_in_all"])
        depths.add(verdict["depth"])
    assert depths == {1, 2}
    assert len(classes) == 2


def test_every_failure_that_is_known_has_a_reproduction() -> None:
    known = {
        reproduction(member, number) for member in ZOO.values() for number in range(len(member.failures))
    }
    assert {path for path in known if not path.exists()} == set()
    assert set(next(iter(known)).parent.glob("*.json")) == known
