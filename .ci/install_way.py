"""How oncelog is installed, on the pages that tell it; `make docs` writes it there.

A release sets RELEASED, and runs `make docs`. Everything else that needs a package names the package
(oncelog.broker.seams.extras), or refers to docs/how-to/install.md.
"""

from __future__ import annotations

import pathlib
import re
import sys

RELEASED = False
ROOT = pathlib.Path(__file__).parents[1]
BEGIN, END = "<!-- .ci/install_way.py writes this -->", "<!-- to here -->"

FROM_A_CLONE = {
    "README.md": """\
Nothing is released yet. In a clone of this repository:

    make serve                                        # a broker on 127.0.0.1:9092; ARGS=--ephemeral keeps nothing

And in a project of yours, here beside the clone ([more ways](docs/how-to/install.md)):

    python3 -m venv ../shop
    ../shop/bin/pip install . pytest confluent-kafka  # `.` is the path of the clone
    ../shop/bin/oncelog --help                        # `oncelog` alone is the broker; `--port 0` takes a free port
""",
    "docs/how-to/install.md": """\
Nothing is released yet: a clone of the repository is what there is. Say its path to pip, with extras in brackets:

    pip install ~/oncelog
    pip install '~/oncelog[security,control]'

With uv, whose lock file has the path then; or as a wheel, which can lie in your own index:

    uv add ~/oncelog
    pip wheel --no-deps -w wheels ~/oncelog
    pip install wheels/oncelog-*.whl
""",
    "docs/tutorial/first-test.md": """\
There is no release yet; `~/oncelog` is a clone of the repository. In an empty folder:

    python3 -m venv .venv
    .venv/bin/pip install ~/oncelog pytest confluent-kafka
""",
}
FROM_AN_INDEX = {
    "README.md": """\
    pip install oncelog
    oncelog                 # a broker on 127.0.0.1:9092; `oncelog serve` is the same

or, with nothing installed but uv, `uvx oncelog`. `oncelog --ephemeral --port 0` keeps nothing and takes a free port;
`oncelog --help` lists the options.
""",
    "docs/how-to/install.md": """\
    pip install oncelog
    pip install 'oncelog[security,control]'
    uvx oncelog                                # nothing stays installed
""",
    "docs/tutorial/first-test.md": """\
In an empty folder:

    python3 -m venv .venv
    .venv/bin/pip install oncelog pytest confluent-kafka
""",
}


def written(page: str) -> str:
    """The text of a page with the way that holds now."""
    told = (FROM_AN_INDEX if RELEASED else FROM_A_CLONE)[page]
    text = (ROOT / page).read_text()
    block = f"{BEGIN}\n\n{told}\n{END}"
    new, count = re.subn(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"{page} has no place for how oncelog is installed ({BEGIN} ... {END})")
    return new


def main() -> int:
    """Write the pages; with --check, say which are not as written."""
    checks = "--check" in sys.argv
    wrong = [page for page in FROM_A_CLONE if written(page) != (ROOT / page).read_text()]
    for page in wrong:
        if checks:
            print(f"{page}: `make docs` writes how oncelog is installed", file=sys.stderr)
        else:
            (ROOT / page).write_text(written(page))
    return bool(checks and wrong)


if __name__ == "__main__":
    sys.exit(main())
