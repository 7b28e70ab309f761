"""CRC-32C (Castagnoli), which covers a record batch from its attributes to its end.

The ``crc32c`` package computes it in C with the processor's own instruction. Its ``__init__`` also imports
``importlib.metadata`` for a version string, which is most of a start's budget, so the extension module is
loaded by itself; where the package is laid out differently the ordinary import is used.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

_EXTENSION = "crc32c._crc32c"


def _load_extension() -> Any:
    """The package's extension module, its ``__init__`` not run; None where there is none to be found."""
    if _EXTENSION in sys.modules:
        return sys.modules[_EXTENSION]
    package = PathFinder.find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    module = spec.loader.create_module(spec)
    if module is None:  # a Python module: not the layout that is known to need no package around it
        return None
    spec.loader.exec_module(module)
    sys.modules[_EXTENSION] = module  # a later ``import crc32c`` finds it, and does not load it twice
    return module


def _find() -> Any:
    function = getattr(_load_extension(), "crc32c", None)
    if function is None:
        from crc32c import crc32c as function
    return function


if TYPE_CHECKING:

    def crc32c(buffer: Buffer, value: int = 0, /) -> int:
        """CRC-32C of ``buffer`` as an unsigned 32-bit number; ``value`` is that of the bytes before it."""
        raise NotImplementedError
else:
    crc32c = _find()

__all__ = ["crc32c"]
