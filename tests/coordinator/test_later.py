"""`Later`: an answer that is given once, and told to whoever listens, whether before or after."""

from __future__ import annotations

import pytest

from oncelog.coordinator.later import Later


def test_told_at_once_or_when_it_comes() -> None:
    later: Later[int] = Later()
    heard: list[str] = []
    later.listen(lambda: heard.append("waited"))
    assert not later.done
    assert heard == []
    later.resolve(5)
    assert (later.done, later.value, heard) == (True, 5, ["waited"])
    later.listen(lambda: heard.append("at once"))
    assert heard == ["waited", "at once"]


def test_an_answer_is_given_once() -> None:
    later: Later[int] = Later()
    later.resolve(5)
    with pytest.raises(AssertionError):
        later.resolve(6)
    assert later.value == 5
