"""Code that nothing uses: what vulture finds, without what is declared rather than used.

Tests do not count as users, so what only they use is found too, except where FOR_TESTS says. A name that must stay is
in KEPT, with the reason.

    python .ci/dead_code.py     one line for each finding; exit code 1 where there is any
"""

import pathlib
import sys
from fnmatch import fnmatch

import vulture

from oncelog.broker.control.operations import MODULES as OPERATIONS

ROOT = pathlib.Path(__file__).resolve().parents[1]
USERS = ("wire", "coordinator", "broker", "spark_it", "bench", "oncelog/*.py")
TESTS = ("tests", "compat_tests")

# Made for tests: there, they are users.
FOR_TESTS = ("broker/seams/memory_*.py", "broker/seams/mortal_files.py")

# Where variables and classes are facts of Kafka's (fields, records, error codes, keys), used or not.
DECLARED = (
    "wire/messages/*",
    "wire/stored/*",
    "wire/errors.py",
    "broker/config/*definitions*",
    "broker/config/*_config.py",
)

# What programs import, and what is called by name.
PUBLIC = (
    "oncelog/*.py",
    "broker/prove/verdict.py",
    "broker/filters/*",
    "broker/embedded/*_api/*",
    "broker/control/*types.py",
)

KEPT = {
    "send_without_response": "of the client, for a Produce with acks=0, which no part of the product sends",
    "format_version": "a field of a snapshot's manifest, as is the next",
    "oncelog_version": "",
    "external_attr": "zipfile reads it",
    "atexit": "weakref reads it",
    "MEMBER_TRANSITIONS": "what Kafka allows: tests hold every step against it",
    "GROUP_TRANSITIONS": "the same",
    "uint32": "one of the types that a declaration may have",
    "run_due": "what `take_due` is for, without the runtime's slices; the pure tests step with it",
    "internal_errors": "what the node counts of itself; tests hold it at none",
    "open_descriptors": "what the limit of open files bounds; tests look at it",
    "task_scheduled": "Trio calls it, as the next",
    "before_io_wait": "",
    "start_clock": "",
    "deadline_to_sleep_time": "",
    "redirect_slashes": "an option of Starlette's router",
    "log_errors": "an option of re2",
    "max_mem": "an option of re2",
    "never_capture": "an option of re2",
    "key_len": "a field of a C structure",
    "java_missing": "the Makefile calls it",
    "batchId": "Spark passes it by this name",
    "streamWriter": "Spark calls it, as the four that follow",
    "onQueryStarted": "",
    "onQueryProgress": "",
    "onQueryIdle": "",
    "onQueryTerminated": "",
}


def find(*, with_tests: bool) -> vulture.Vulture:
    """A tool that has read everything."""
    tool = vulture.Vulture()
    patterns = USERS + TESTS if with_tests else USERS
    exclude = [] if with_tests else ["*/tests/*"]
    tool.scavenge([str(path) for pattern in patterns for path in ROOT.glob(pattern)], exclude=exclude)
    return tool


def is_in(item: vulture.core.Item, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(str(item.filename), f"{ROOT}/{pattern}") for pattern in patterns)


def is_declared(item: vulture.core.Item) -> bool:
    return item.typ in ("variable", "class") and is_in(item, DECLARED)


def main() -> int:
    """The exit code, after a line for each finding."""
    tool = find(with_tests=False)
    fields = {item.name for item in tool.defined_vars if is_declared(item)}
    unused = [item for item in tool.get_unused_code() if not is_in(item, FOR_TESTS)]
    unused += [item for item in find(with_tests=True).get_unused_code() if is_in(item, FOR_TESTS)]
    unused = [item for item in unused if not is_declared(item) and not is_in(item, PUBLIC)]
    unused = [item for item in unused if item.typ != "function" or item.name not in OPERATIONS]
    # Handlers set fields of responses, which a compiled encoder reads.
    unused = [item for item in unused if item.typ != "attribute" or item.name not in fields]
    findings = [
        f"{pathlib.Path(item.filename).relative_to(ROOT)}:{item.first_lineno}: {item.message}"
        for item in unused
        if item.name not in KEPT
    ]
    findings += [
        f".ci/dead_code.py: {name} is in KEPT, and is used or gone"
        for name in sorted(KEPT.keys() - {item.name for item in unused})
    ]
    print("\n".join(findings) or "no dead code")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
