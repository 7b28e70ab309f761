"""Look for words of the glossary's last column: each of these things has another name
(docs/contributing/glossary.md)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs/contributing/glossary.md"
FOLDERS = ("broker", "coordinator", "wire", "docs")


def never() -> list[str]:
    """Return the words that stand in the last column of the glossary's table."""
    rows = (line.strip("|").split("|") for line in GLOSSARY.read_text().splitlines() if line.startswith("|"))
    return [word for row in rows if len(row) == 3 for word in re.findall(r"`([^`]+)`", row[2])]


def main() -> int:
    words = never()
    assert words
    pattern = re.compile("|".join(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])" for word in words))
    found = 0
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".md") or path == GLOSSARY or "messages" in path.parts:
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for match in pattern.finditer(line):
                    found += 1
                    print(
                        f"{path.relative_to(ROOT)}:{number}: {match[0]!r} has another name, "
                        f"see {GLOSSARY.relative_to(ROOT)}"
                    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
