"""Calls a function in a process of its own: ``python -m`` this module, then `main`'s arguments."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import PurePath


def main(path: str, name: str, address: str, *import_paths: str) -> None:
    """Call the function ``name`` of the file ``path``, with the broker's ``address`` if it takes an argument.
    ``import_paths`` are those of the process that proves.
    """
    file = PurePath(path)
    sys.path[:0] = [str(file.parent), *import_paths]
    spec = importlib.util.spec_from_file_location(file.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = module
    for part in name.split("."):
        function = getattr(function, part)
    assert callable(function)
    function(*[address][: len(inspect.signature(function).parameters)])


if __name__ == "__main__":
    main(*sys.argv[1:])
