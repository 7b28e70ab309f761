"""How to install what an extra of oncelog brings."""

from __future__ import annotations

import re


def install_command(extra: str) -> str:
    """Return the command for the packages of an extra, such as ``pip install 'pyyaml>=6'``. It names them, and not
    oncelog, as that holds however this oncelog came here: from an index, a wheel or a clone.
    """
    import importlib.metadata  # which takes 20 ms, and only an error needs it

    try:
        rows = importlib.metadata.requires("oncelog") or []
    except importlib.metadata.PackageNotFoundError:  # a zip of the sources
        rows = []
    of_extra = re.compile(rf"""extra\s*==\s*["']{extra}["']""")
    packages = [row.partition(";")[0].strip() for row in rows if of_extra.search(row)]
    return "pip install " + " ".join(f"'{one}'" for one in packages or [f"oncelog[{extra}]"])
