"""Random log-ins: nobody gets in without proof. `make fuzz-login` runs a million."""

from __future__ import annotations

from tests.security.login_fuzz import fuzz

SEQUENCES = 10_000


def test_random_log_ins() -> None:
    assert fuzz(SEQUENCES, 1) > SEQUENCES / 20
