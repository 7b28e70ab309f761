"""The folders of `compat_tests`: each has a row in its README, with the minutes that its tests took in a run."""

import pathlib
import runpy

from tests.common.archives import ROOT

SUITE = ROOT / "compat_tests"
MINUTES = runpy.run_path(str(ROOT / ".ci" / "minutes.py"))
REPORT = """<testsuites><testsuite>
<testcase classname="compat_tests.groups.test_static" name="test_a[oncelog]" time="70.0"/>
<testcase classname="compat_tests.groups.test_static" name="test_a[kafka]" time="50.0"/>
<testcase classname="compat_tests.logs.test_cleanup.TestOfAClass" name="test_b" time="12.0"/>
<testcase classname="tests.test_docs" name="test_c" time="1.0"/>
</testsuite></testsuites>"""


def test_every_test_is_in_a_folder_and_every_folder_in_the_table() -> None:
    assert list(SUITE.glob("test_*.py")) == []
    folders = {path.parent.relative_to(SUITE).parts[0] for path in SUITE.glob("*/**/test_*.py")}
    rows = [
        line.split("`")[1] for line in (SUITE / "README.md").read_text().splitlines() if "/` | " in line[:40]
    ]
    assert rows == sorted(f"{folder}/" for folder in folders)


def test_the_minutes_are_those_of_the_run(tmp_path: pathlib.Path) -> None:
    report = tmp_path / "compat_tests.xml"
    report.write_text(REPORT)
    found = MINUTES["seconds_by_folder"](report)
    assert found == {
        "compat_tests/groups": (2, 120.0),
        "compat_tests/logs": (1, 12.0),
        "tests": (1, 1.0),
    }
    page = "| `groups/` | 7 | members |\n| `logs/` | ? | records |\n| `share/` | 1.5 | others |\n"
    shown = MINUTES["with_minutes"](page, found)
    assert shown == "| `groups/` | 2 | members |\n| `logs/` | 0.2 | records |\n| `share/` | 1.5 | others |\n"
