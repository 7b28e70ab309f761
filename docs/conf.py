"""The site of these pages, by Sphinx (`make docs-site`): the pages stay plain Markdown, and the site follows from them.

What an index.md links to is the site's table of contents, in that order, so a page that none links to is a warning. A
diagram in Mermaid stays as it is written: to draw it takes a script of three megabytes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

DOCS = Path(__file__).parent

project = "oncelog"
author = "the oncelog contributors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = project
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 4
# Fragments of CHANGELOG.md; and pages at the top, but the index, only say where a page has gone.
exclude_patterns = ["changes", *(page.name for page in DOCS.glob("*.md") if page.name != "index.md")]
highlight_language = "none"  # a block is Python here, a shell's lines there


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add to an index the tree of the pages that it links to: for each section, or one for all."""
    if Path(docname).name != "index":
        return
    for section in re.split(r"(?m)^(?=## )", source[0]):
        pages = re.findall(r"(?m)^- \[[^\]]*\]\(([\w./-]+)\.md\)", section)
        if pages:
            caption = f":caption: {section.splitlines()[0][3:]}\n" if section.startswith("## ") else ""
            source[0] += f"\n```{{toctree}}\n:hidden:\n{caption}\n" + "\n".join(pages) + "\n```\n"


class OnlyInTheRepository(SphinxTransform):
    """A link that leads out of docs/, to code or a README, is its text in the site."""

    default_priority = 5  # before MyST resolves links

    def apply(self, **kwargs: Any) -> None:
        page = Path(self.env.doc2path(self.env.docname))
        for link in list(
            self.document.findall(
                lambda node: isinstance(node, addnodes.pending_xref | addnodes.download_reference)
            )
        ):
            if not (page.parent / link["reftarget"]).resolve().is_relative_to(DOCS):
                link.replace_self(link.children)


def setup(app: Sphinx) -> None:
    """Install both, and a lexer for diagrams."""
    app.connect("source-read", add_contents)
    app.add_transform(OnlyInTheRepository)
    app.add_lexer("mermaid", TextLexer)
