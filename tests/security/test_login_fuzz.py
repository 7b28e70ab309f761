"""Random log-ins: nobody gets in without proof. `make soak` runs a hundred times as many."""

from __future__ import annotations

import pytest

from tests.security import login_fuzz, login_fuzz_tls

SEQUENCES = 10_000
TLS_SEQUENCES = 300


@pytest.mark.slow
def test_random_logins() -> None:
    assert login_fuzz.fuzz(SEQUENCES, 1) > SEQUENCES / 20


@pytest.mark.slow
def test_random_logins_over_tls() -> None:
    assert login_fuzz_tls.fuzz(TLS_SEQUENCES, 1) > TLS_SEQUENCES / 50
