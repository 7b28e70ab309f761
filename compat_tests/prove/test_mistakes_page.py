"""docs/how-to/mistakes.md has the mistakes that the prover names, and lines of the zoo's programs."""

from __future__ import annotations

import re

from compat_tests.prove.mends import PAGE, blocks, sections
from compat_tests.prove.places import PROGRAMS
from compat_tests.prove.zoo import MENDED, WRONG, ZOO
from oncelog.broker.prove.judging.mistakes import MISTAKES

NO_MISTAKE = "the-zoo"


def test_every_mistake_that_the_prover_names_has_a_section() -> None:
    assert set(sections()) == {*MISTAKES, NO_MISTAKE}


def test_every_mistake_has_a_program_that_makes_it() -> None:
    made = {failure.mistake for member in ZOO.values() for failure in member.failures}
    assert made - {None} == set(MISTAKES)


def test_every_block_is_in_its_program_and_mends_it() -> None:
    assert {block.section for block in blocks()} == set(MISTAKES)
    for block in blocks():
        text = block.mended()
        if block.file.endswith(".py"):
            compile(text, block.file, "exec")


def test_every_wrong_python_program_is_mended_or_told_how() -> None:
    mended = {member.file.name for member in MENDED}
    text = PAGE.read_text()
    for member in WRONG:
        assert member.file.name in mended or member.file.name in text or member.file.suffix == ".java"


def test_every_program_that_the_page_names_is_there() -> None:
    for name in re.findall(r"`([\w/]+\.(?:py|java|go|mjs))`", PAGE.read_text()):
        assert (PROGRAMS / name).exists(), name
