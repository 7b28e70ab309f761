"""docs/how-to/prove.md: its first example, by its command."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from compat_tests.pages.recipes import recipes
from compat_tests.prove.places import ROOT
from oncelog.broker.prove.judging.mistakes import explained

PAGE = ROOT / "docs" / "how-to" / "prove.md"
TITLE = "Try it"


def test_the_example_is_judged_as_the_page_says(tmp_path: pathlib.Path) -> None:
    section = PAGE.read_text().partition(f"\n## {TITLE}\n")[2].partition("\n## ")[0]
    recipes(PAGE)[TITLE].write(tmp_path)
    orders = re.findall(r'(?m)^    (\{"key".+)$', section)
    (tmp_path / "orders.jsonl").write_text("\n".join(orders))
    [command] = re.findall(r"(?m)^    \$ oncelog (prove .+)$", section)
    words = [sys.executable if word == "python" else word for word in shlex.split(command)]
    ended = subprocess.run(
        [sys.executable, "-m", "oncelog", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 1, ended.stderr
    found = json.loads((tmp_path / "oncelog-prove" / "result.json").read_text())
    assert {one["mistake"] for one in found["findings"]} == set(
        re.findall(r"prove --explain ([\w-]+)\)", section)
    )
    [word] = re.findall(r"(?m)^    verdict: (.+) \(exactly-once: broken\)$", section)
    assert found["verdict"] == word
    page = (tmp_path / "oncelog-prove" / "report.html").read_text()
    for one in found["findings"]:
        heading = explained(one["mistake"]).splitlines()[0].removeprefix("## ")
        assert f"<h3>{heading}</h3>" in page
