"""What Kafka has answered to the tests of a run, or answers now."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.common.jars import RealPartMissing, java, kafka_version, require
from tests.common.recorded.answers import Answers, Entry, Observations, as_bytes, as_lines, as_observations
from tests.common.recorded.ingredients import DIGEST_CHARS, Ingredients, Library
from tests.common.recorded.modules import Tree
from tests.common.recorded.witness import Witness

RECORDED, ASKED, RECORD, RECORD_AGAIN = "recorded", "asked", "record", "record-again"
KAFKA = "kafka"
SUITES_WITH_TARGETS = ("compat_tests", "spark_it")
Sent = tuple[dict[str, dict[str, tuple[str, list[list[str]]]]], dict[str, list[str]]]
"""Between processes: what is new, by file and test, and which tests are there."""
HAS_ASKED = "has asked Kafka"
"""The property of a report that says so."""


class Recorder:
    """What is recorded of all tests; the fixture `answers`."""

    def __init__(self, mode: str, root: pathlib.Path) -> None:
        self.mode = mode
        self._tree = Tree(root)
        self._library = Library(self._tree)
        self.is_whole = False
        """Whether all tests of the files run, so that what is recorded of others is of tests that are no more."""
        self._new: dict[str, dict[str, Entry]] = {}
        """What this run has to record, by file and test."""
        self._there: dict[str, set[str]] = {}
        """The tests that ask Kafka, by file."""
        self._files: dict[str, Answers] = {}
        self._made_of: dict[tuple[str, str, tuple[str, ...]], Ingredients] = {}
        self._witness = Witness(self._tree) if self.writes else None
        self._test: _Test | None = None

    @property
    def writes(self) -> bool:
        return self.mode in (RECORD, RECORD_AGAIN)

    def entry(self, item: pytest.Item) -> Entry | None:
        """What is recorded of a test, if it is made of the same as then."""
        file, test = key_of(item)
        if file not in self._files:
            self._files[file] = self.answers(file)
        entry = self._files[file].entries.get(test)
        return entry if entry is not None and entry.digest == self.made_of(item).digest else None

    def made_of(self, item: pytest.Item) -> Ingredients:
        cls = getattr(item, "cls", None)
        name = getattr(item, "originalname", item.name) if cls is None else cls.__name__
        exchanges = item.get_closest_marker("exchanges")
        key = self._tree.name_of(item.path), name, exchanges.args if exchanges is not None else ()
        if key not in self._made_of:
            self._made_of[key] = Ingredients(self._library, key[:2], key[2])
        return self._made_of[key]

    def answers(self, file: str) -> Answers:
        """What Kafka answered to a file of tests such as "compat_tests/logs/test_cleanup.py", as it is stored."""
        suite, _, inner = file.partition("/")
        path = self._tree.root / suite / "recorded" / f"{inner.removesuffix('.py')}.txt"
        return Answers(path, kafka_version())

    def begin(self, item: pytest.Item) -> None:
        """Take what is recorded of the test that is set up now."""
        self._test = _Test(item, self.entry(item), self.mode)
        if self._witness is not None:
            self._witness.begin()

    def end(self, item: pytest.Item) -> None:
        """Keep what the test, which has passed, has to record. Raises AssertionError if it is made of more than was
        found.
        """
        test, self._test = self._test, None
        assert test is not None
        if self._witness is None:
            return
        unknown = self._witness.end(self.made_of(item))
        assert not unknown, f"ingredients.py does not find these, of which the test is made: {unknown}"
        file, name = key_of(item)
        self._new.setdefault(file, {})[name] = Entry(self.made_of(item).digest, test.answered)

    def note_there(self, file: str, test: str) -> None:
        """Note that a test that asks Kafka is there."""
        if self.writes and self.is_whole:
            self._there.setdefault(file, set()).add(test)

    def for_controller(self) -> Sent:
        """What is to be written, for the process that does it."""
        new = {
            file: {test: (entry.digest, entry.comparisons) for test, entry in entries.items()}
            for file, entries in self._new.items()
        }
        return new, {file: sorted(tests) for file, tests in self._there.items()}

    def add_of_worker(self, sent: Sent) -> None:
        """Take what another process gave by `for_controller`."""
        new, there = sent
        for file, entries in new.items():
            found = {test: Entry(digest, comparisons) for test, (digest, comparisons) in entries.items()}
            self._new.setdefault(file, {}).update(found)
        for file, tests in there.items():
            self._there.setdefault(file, set()).update(tests)

    def write(self) -> None:
        """Write what was recorded, and forget what was recorded of tests that are no more."""
        for file in {*self._new, *self._there}:
            answers = self.answers(file)
            before = dict(answers.entries)
            answers.entries.update(self._new.get(file, {}))
            if file in self._there:
                kept = self._there[file]
                answers.entries = {test: one for test, one in answers.entries.items() if test in kept}
            if answers.entries != before:
                answers.write()

    def of_kafka(self, ask: Callable[[], Observations]) -> Observations:
        """What Kafka answers to the next comparison of the running test: as it is recorded, or as `ask` observes."""
        assert self._test is not None, "no test is running that has the fixture `answers`"
        return self._test.of_kafka(ask)

    def of_oracle(self, program: str, made_of: bytes, ask: Callable[[], bytes]) -> bytes:
        """What a program of Kafka's classes answers (tests/harness/kafka_oracle.py): as it is recorded, if the program
        and its input, which are `made_of`, are the same, or as `ask` says.
        """
        file = f"tests/oracles/{program}"
        key = hashlib.sha256(made_of).hexdigest()[:DIGEST_CHARS]
        if file not in self._files:
            self._files[file] = self.answers(file)
        self.note_there(file, key)
        entry = self._files[file].entries.get(key)
        recorded = None if entry is None else as_bytes(entry.observations(0) or [])
        if recorded is not None and self.mode in (RECORDED, RECORD):
            return recorded
        if self.mode == RECORDED:
            assert self._test is not None
            check_may_ask(self._test.item)
        answered = ask()
        if self.mode == ASKED:
            assert recorded is None or answered == recorded, f"{program} no longer gives the recorded answer"
        if self.writes:
            self._new.setdefault(file, {})[key] = Entry(key, [as_lines(as_observations(answered))])
        return answered

    def value(self, ask: Callable[[], Any]) -> Any:
        """`of_kafka` of one value."""
        return self.of_kafka(lambda: [ask()])[0]

    def both(self, observe: Callable[[str], Any]) -> dict[str, Any]:
        """What `observe(target)` gives of "kafka", as `value`, and of "oncelog"."""
        return {KAFKA: self.value(lambda: observe(KAFKA)), "oncelog": observe("oncelog")}


class _Test:
    """The comparisons of the test that runs."""

    def __init__(self, item: pytest.Item, entry: Entry | None, mode: str) -> None:
        self.answered: list[list[str]] = []
        self.item = item
        self._entry = entry
        self._mode = mode
        self._number = 0

    def of_kafka(self, ask: Callable[[], Observations]) -> Observations:
        recorded = None if self._entry is None else self._entry.observations(self._number)
        self._number += 1
        if self._mode == RECORDED:
            if recorded is not None:
                return recorded
            check_may_ask(self.item)
        answered = ask()
        if self._mode in (RECORD, RECORD_AGAIN):
            self.answered.append(as_lines(answered))
        elif recorded is not None:
            assert answered == recorded, _no_longer(answered, recorded)
        return answered


def _no_longer(answered: Observations, recorded: Observations) -> str:
    pairs = [f"{old!r}\n  now {new!r}" for old, new in zip(recorded, answered, strict=False) if old != new]
    shown = "\n".join(pairs[:10]) or f"{len(recorded)} observations, now {len(answered)}"
    return f"Kafka no longer gives the recorded answer (make record writes the new one):\n{shown}"


def check_may_ask(item: pytest.Item) -> None:
    """Let the report say that the test asks Kafka; skip it on a machine that has none."""
    if (HAS_ASKED, True) not in item.user_properties:
        item.user_properties.append((HAS_ASKED, True))
    try:
        java()
    except RealPartMissing as missing:
        require(f"what Kafka answered is recorded of another state of this test, and there is {missing}")


def key_of(item: pytest.Item) -> tuple[str, str]:
    file, _, test = item.nodeid.partition("::")
    return file, test


def is_half(item: pytest.Item) -> bool:
    """Whether a test runs on Kafka alone."""
    callspec = getattr(item, "callspec", None)
    given = () if callspec is None else callspec.params.values()
    has_target = any(isinstance(one, str) and one == KAFKA for one in given)
    if "asks_kafka" in item.keywords or "exchanges" in item.keywords:
        return True
    return has_target and item.nodeid.startswith(SUITES_WITH_TARGETS)


def uses_oracle(item: pytest.Item) -> bool:
    """Whether a test asks a program of Kafka's classes, whose answers are recorded by themselves."""
    return "oracle" in getattr(item, "fixturenames", ())


def asks(item: pytest.Item) -> bool:
    """Whether a test shows something of Kafka: a half, or a comparison."""
    return is_half(item) or "answers" in getattr(item, "fixturenames", ())
