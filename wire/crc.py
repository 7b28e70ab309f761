"""CRC-32C (Castagnoli), which covers a record batch from its attributes to its end.

The ``crc32c`` package computes it in C with the processor's instruction. Its ``__init__`` also imports
``importlib.metadata`` for a version string, which takes most of the broker's start-up time. So only its extension
module is loaded; if the package has another layout, it is imported as usual.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer

_EXTENSION = "crc32c._crc32c"


def _load_extension() -> Any:
    """Load the package's extension module without its ``__init__``; None if it is not found."""
    if _EXTENSION in sys.modules:
        return sys.modules[_EXTENSION]
    package = PathFinder.find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    module = spec.loader.create_module(spec)
    if module is None:  # a Python module, which may need its package
        return None
    spec.loader.exec_module(module)
    sys.modules[_EXTENSION] = module  # so that a later ``import crc32c`` does not load it again
    return module


def _find() -> Any:
    function = getattr(_load_extension(), "crc32c", None)
    if function is None:
        from crc32c import crc32c as function
    return function


if TYPE_CHECKING:

    def crc32c(buffer: Buffer, value: int = 0, /) -> int:
        """CRC-32C of ``buffer`` as an unsigned 32-bit number. ``value``: the CRC of preceding bytes."""
        raise NotImplementedError
else:
    crc32c = _find()

__all__ = ["crc32c"]
