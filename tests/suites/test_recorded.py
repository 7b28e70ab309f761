"""What Kafka answered is kept, and Kafka is asked again where its answer can have changed (tests/common/recorded)."""

import pathlib
import re

import pytest

from tests.suites.project import RECORDED, Project

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """With what Kafka has answered."""
    found = Project(tmp_path_factory.mktemp("first"))
    shown = found.run("--kafka=record")
    assert "3 passed, 2 deselected" in shown
    return found


@pytest.fixture
def project(first: Project, tmp_path: pathlib.Path) -> Project:
    return Project(tmp_path, first)


def test_what_is_recorded(project: Project) -> None:
    first, *lines = project.recorded().splitlines()
    assert first.startswith("# Kafka 4.")
    tests = [line.partition(" ")[2] for line in lines if not line.startswith("\t")]
    assert tests == ["test_comparison[a]", "test_comparison[b]", "test_fact[kafka]"]
    assert lines[1:3] == ["\t-", "\t'hello world'"]


def test_no_kafka_is_asked_that_has_answered(project: Project) -> None:
    project.write("kafka", "somebody else")
    project.has_java(False)
    shown = project.run()
    assert "3 passed, 2 deselected" in shown  # its half, and what only the whole run has
    assert "asked" not in shown


@pytest.mark.parametrize(
    ("file", "old", "new", "count"),
    [
        ("compat_tests/test_kafka.py", 'else "world"', 'else str("world")', 2),
        ("compat_tests/helpers.py", 'GREETING = "hello"', 'GREETING = str("hello")', 3),
        ("compat_tests/helpers.py", "{GREETING} ", "{GREETING!s} ", 3),
        ("compat_tests/conftest.py", "def kafka():\n", "def kafka():\n    assert True\n", 3),
        ("requirements.lock", "2.16.1", "2.17.0", 3),
    ],
    ids=["test", "constant", "helper", "fixture", "client"],
)
def test_kafka_is_asked_where_something_has_changed(
    project: Project, file: str, old: str, new: str, count: int
) -> None:
    project.change(file, old, new)
    project.write("kafka", "somebody else")
    shown = project.run()
    assert f"{count} failed" in shown
    assert f"make record T=compat_tests/test_kafka.py  # {count}" in shown


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("compat_tests/helpers.py", "return 1", "return 2"),
        ("compat_tests/helpers.py", "import confluent_kafka", "import confluent_kafka, os"),
        (
            "compat_tests/helpers.py",
            "def greet(answer):\n",
            "# why\ndef greet(answer: str) -> str:\n    'Greet.'\n",
        ),
    ],
    ids=["what no test uses", "imports", "texts"],
)
def test_what_does_not_count(project: Project, file: str, old: str, new: str) -> None:
    project.change(file, old, new)
    project.write("kafka", "somebody else")
    assert "3 passed, 2 deselected" in project.run()


def test_without_java_a_test_that_must_ask_is_skipped(project: Project) -> None:
    project.change("compat_tests/helpers.py", 'GREETING = "hello"', "GREETING = 'hello '.strip()")
    project.has_java(False)
    shown = project.run()
    assert "1 passed, 3 skipped" in shown
    assert "recorded of another state of this test, and there is no Java 17" in shown
    shown = project.run(ci=True)
    assert "missing in CI: what Kafka answered is recorded of another state" in shown
    assert "2 failed, 1 passed, 1 deselected, 1 error" in shown


def test_a_plain_run_writes_nothing(project: Project) -> None:
    before = project.recorded()
    project.change("compat_tests/helpers.py", 'GREETING = "hello"', "GREETING = 'hello '.strip()")
    project.run()
    project.run("--kafka=asked")
    assert project.recorded() == before


def test_the_whole_run_holds_kafka_against_what_is_recorded(project: Project) -> None:
    assert "5 passed" in project.run("--kafka=asked")
    (project.folder / "kafka").write_text("somebody else")
    shown = project.run("--kafka=asked")
    assert "Kafka no longer gives the recorded answer" in shown
    assert re.search(r"'hello world'\s+(E\s+)?now 'hello somebody else'", shown)


def test_an_answer_that_was_edited_is_found(project: Project) -> None:
    project.change(RECORDED, "hello world", "hello nobody")
    assert "2 failed" in project.run()
    assert "Kafka no longer gives the recorded answer" in project.run("--kafka=asked")


def test_record_asks_for_what_does_not_fit_and_forgets_what_is_no_more(project: Project) -> None:
    assert "5 deselected" in project.run("--kafka=record")
    project.change("compat_tests/test_kafka.py", '["a", "b"]', '["a", "c"]')
    before = project.recorded()
    project.run("--kafka=record", "-n2", "--dist=loadfile")
    assert "test_comparison[b]" not in project.recorded()
    assert "test_comparison[c]" in project.recorded()
    assert project.recorded() != before


def test_a_part_that_nobody_finds_is_no_record(project: Project) -> None:
    """A function that is called by a name made at run time could change unseen."""
    hidden = "    import sys\n    getattr(sys.modules[greet.__module__], 'of_' + 'nobody')()\n"
    project.change("compat_tests/test_kafka.py", "    assert both[", f"{hidden}    assert both[")
    shown = project.run("--kafka=record")
    assert "ingredients.py does not find these" in shown
    assert "compat_tests.helpers.of_nobody" in shown
