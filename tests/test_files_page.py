"""docs/contributing/files.md is current, and architecture.md names every folder of the broker."""

from __future__ import annotations

from tests.files_page import LEFT_OUT, ROOT, TOPS, first_sentence, modules, page

CONTRIBUTING = ROOT / "docs" / "contributing"
CELL_LENGTH_MAX = 200


def test_the_page_is_current() -> None:
    assert (CONTRIBUTING / "files.md").read_text() == page(), "run `make docs`"


def test_every_module_is_on_it_and_says_what_it_is() -> None:
    listed = [path for top in TOPS for path in modules(top)]
    assert len(listed) > 700
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) == sum(path.name != "__init__.py" for path in listed)
    assert [row for row in rows if len(row) > CELL_LENGTH_MAX + len(row.split(" | ")[0])] == []
    assert all((ROOT / folder).is_dir() for folder in LEFT_OUT)


def test_a_sentence_ends_where_the_docstring_goes_on() -> None:
    assert first_sentence("`A`: makes ``b`` of\nc. And more.\n\nYet more.") == "`A`: makes `b` of c."
    assert first_sentence("A title without an end\n\nText.") == "A title without an end"
    assert first_sentence("Reads a|b.") == "Reads a\\|b."


def test_the_architecture_names_every_folder_of_the_broker() -> None:
    text = (CONTRIBUTING / "architecture.md").read_text()
    folders = sorted(path.parent.name for path in (ROOT / "broker").glob("*/*.py"))
    assert [name for name in dict.fromkeys(folders) if f"`broker/{name}`" not in text] == []
