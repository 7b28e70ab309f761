"""`Promise`: resolved once; a listener is called whether it came before or after."""

from __future__ import annotations

import pytest

from oncelog.coordinator.promise import Promise


def test_listeners_before_and_after_the_resolution() -> None:
    promise: Promise[int] = Promise()
    heard: list[str] = []
    promise.listen(lambda: heard.append("waited"))
    assert not promise.done
    assert heard == []
    promise.resolve(5)
    assert (promise.done, promise.value, heard) == (True, 5, ["waited"])
    promise.listen(lambda: heard.append("at once"))
    assert heard == ["waited", "at once"]


def test_a_promise_is_resolved_once() -> None:
    promise: Promise[int] = Promise()
    promise.resolve(5)
    with pytest.raises(AssertionError):
        promise.resolve(6)
    assert promise.value == 5
