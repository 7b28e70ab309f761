"""Where the zoo's files are."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent
PROGRAMS = HERE / "programs"
