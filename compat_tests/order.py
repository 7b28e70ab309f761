"""In which order the files of a suite begin, where several workers share them."""

from collections.abc import Sequence

import pytest


def longest_first(items: list[pytest.Item], names: Sequence[str]) -> None:
    """Those whose id holds one of `names` first, in that order, so that no worker is left alone with one at the end."""

    def rank(item: pytest.Item) -> int:
        return next((place for place, name in enumerate(names) if name in item.nodeid), len(names))

    items.sort(key=rank)
