"""The order of a suite's files, for runs in which several workers share them."""

from collections.abc import Sequence

import pytest


def longest_first(items: list[pytest.Item], names: Sequence[str]) -> None:
    """Sort the items whose id contains one of `names` to the front, in that order.

    Otherwise one worker may begin a long file at the end, and all others wait for it.
    """

    def rank(item: pytest.Item) -> int:
        return next((place for place, name in enumerate(names) if name in item.nodeid), len(names))

    items.sort(key=rank)
