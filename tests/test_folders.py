"""The folders of both suites: each has a row in its README, with the minutes that its tests took in a run."""

import pathlib
import runpy

import pytest

from tests.common.archives import ROOT

MINUTES = runpy.run_path(str(ROOT / ".ci" / "minutes.py"))
REPORT = """<testsuites><testsuite>
<testcase classname="compat_tests.groups.test_static" name="test_a[oncelog]" time="70.0"/>
<testcase classname="compat_tests.groups.test_static" name="test_a[kafka]" time="50.0"/>
<testcase classname="compat_tests.logs.test_cleanup.TestOfAClass" name="test_b" time="12.0"/>
<testcase classname="tests.test_docs" name="test_c" time="1.0"/>
</testsuite></testsuites>"""


def test_every_test_beside_kafka_is_in_a_folder() -> None:
    assert list((ROOT / "compat_tests").glob("test_*.py")) == []


@pytest.mark.parametrize("suite", ["tests", "compat_tests"])
def test_every_folder_is_in_the_table(suite: str) -> None:
    folders = {
        path.parent.relative_to(ROOT / suite).parts[0] for path in (ROOT / suite).glob("*/**/test_*.py")
    }
    page = (ROOT / suite / "README.md").read_text()
    rows = [line.split("`")[1] for line in page.splitlines() if "/` | " in line[:40]]
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
    shown = MINUTES["with_minutes"](page, "compat_tests", found)
    assert shown == "| `groups/` | 2 | members |\n| `logs/` | 0.2 | records |\n| `share/` | 1.5 | others |\n"
