"""Waits for metrics of clients that do not come say why."""

from __future__ import annotations

import pytest

import oncelog


def test_a_wait_says_why_there_are_no_metrics() -> None:
    with (
        oncelog.Broker(config={"oncelog.client.metrics.enable": True}) as kafka,
        pytest.raises(oncelog.WaitTimeoutError, match=r"pushed 0 times; there is no subscription"),
    ):
        kafka.wait_for_client_metrics(timeout=0)
