"""Make the synchronous public classes from the asynchronous ones: ``broker/embedded/sync_api`` from ``async_api``.

python .ci/unasync.py           write them
python .ci/unasync.py --check   exit code 1 if they are not what would be written
"""

import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "broker/embedded"
NOTE = "# Made by .ci/unasync.py from {source}: edit that one.\n"
RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\basync (def|with|for)\b", r"\1"),
        (r"\bawait ", ""),
        (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
        (r"\bcall_async\b", "call"),
        (r"\basync_api\b", "sync_api"),
        (r"\bAsync(?=[A-Z])", ""),
    )
]


def synchronous(source: pathlib.Path) -> str:
    """Return the text of the synchronous module."""
    text = source.read_text()
    if source.name == "__init__.py":
        text = '"""The public classes for synchronous code."""\n'
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return NOTE.format(source=f"async_api/{source.name}") + text


def main() -> int:
    wanted = {path.name: synchronous(path) for path in sorted((FOLDER / "async_api").glob("*.py"))}
    target = FOLDER / "sync_api"
    if "--check" in sys.argv[1:]:
        found = {path.name: path.read_text() for path in sorted(target.glob("*.py"))}
        stale = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        for name in stale:
            print(f"broker/embedded/sync_api/{name} is not what .ci/unasync.py writes")
        return 1 if stale else 0
    for path in target.glob("*.py"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (target / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
