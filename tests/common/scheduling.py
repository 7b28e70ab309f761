"""How the workers of a run share its tests: the longest files first, file by file or test by test; what ends its worker
is not tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

APART = ("compat_tests/prove/",)
"""Whose tests go to workers one by one: they are long, and share nothing."""


class EachTestOnce(LoadFileScheduling):  # type: ignore[misc]
    """As ``--dist loadfile``. There the worker that takes another's place begins with the test that ended the other:
    one that hangs until its limit would end one worker after another.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(APART) else str(super()._split_scope(nodeid))

    def remove_node(self, node: Any) -> str | None:
        for tests in self.assigned_work.get(node, {}).values():
            for test, is_done in tests.items():
                if not is_done:
                    tests[test] = True
                    super().remove_node(node)
                    return str(test)
        super().remove_node(node)
        return None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return EachTestOnce(config, log) if config.getvalue("dist") == "loadfile" else None


def longest_first(items: list[pytest.Item], names: Sequence[str]) -> None:
    """Sort the items whose id contains one of `names` to the front, in that order.

    Otherwise one worker may begin a long file at the end, and all others wait for it.
    """

    def rank(item: pytest.Item) -> int:
        return next((place for place, name in enumerate(names) if name in item.nodeid), len(names))

    items.sort(key=rank)
