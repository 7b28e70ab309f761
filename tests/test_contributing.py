"""The files for contributors agree with each other: hooks, fragments of the changelog, what CONTRIBUTING.md lists."""

from __future__ import annotations

import pathlib
import re
import tomllib

import yaml

ROOT = pathlib.Path(__file__).parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
FRAGMENT_LENGTH_MAX = 250


def test_the_hooks_are_local_and_do_what_make_lint_does() -> None:
    """One hook that calls the target, so that the two cannot differ."""
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    [hook] = repository["hooks"]
    assert (hook["entry"], hook["language"], hook["pass_filenames"]) == ("make lint", "system", False)


def test_a_fragment_of_the_changelog_is_a_sentence_of_a_kind() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = "|".join(one["directory"] for one in settings["type"])
    for path in (ROOT / settings["directory"]).glob("*"):
        assert re.fullmatch(rf"\+[a-z0-9-]+\.({kinds})\.md", path.name), path.name
        text = path.read_text()
        assert text.endswith(".\n"), path.name
        assert text.count("\n") == 1, path.name
        assert len(text) <= FRAGMENT_LENGTH_MAX, path.name
    assert settings["filename"] == "CHANGELOG.md"
    assert "<!-- towncrier release notes start -->" in (ROOT / settings["filename"]).read_text()


def test_each_target_that_the_guide_names_is_there() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    named = set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)", GUIDE)) - {"sure"}
    assert {"lint", "test", "docs", "test-one"} <= named
    assert sorted(named - targets - {"test-one"}) == []
