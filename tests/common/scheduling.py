"""How the workers of a run share its tests: file by file, and a test that ends its worker is not tried again."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


class EachTestOnce(LoadFileScheduling):  # type: ignore[misc]
    """As ``--dist loadfile``. There the worker that takes another's place begins with the test that ended the other:
    one that hangs until its limit would end one worker after another.
    """

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
