"""Filters loaded by name, with settings; what is said of one that cannot be loaded."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from oncelog.broker.filters.loading import FilterError, load_filter

MODULE = """
import oncelog

class Stamp(oncelog.RecordFilter):
    def __init__(self, header: str = "via", times: int = 1, loud: bool = False) -> None:
        self.settings = header, times, loud

    def on_produced(self, record, context):
        record.headers.append((self.settings[0], b"1"))

made = Stamp("made")

def make(header="of a function"):
    return Stamp(header)

def other():
    return 5

def broken():
    raise RuntimeError("no reason")

number = 5

class Misspelt(oncelog.Interceptor):
    apis = frozenset({"Produse"})

class OneApi(oncelog.Interceptor):
    apis = "Fetch"

class NotAsync(oncelog.Interceptor):
    def on_request(self, context):
        return None

class Async(oncelog.RecordFilter):
    async def on_produced(self, record, context):
        record.headers.append(("via", b"1"))

class NoContext(oncelog.RecordFilter):
    def on_produced(self, record):
        record.headers.append(("via", b"1"))

class NoSelf(oncelog.Interceptor):
    async def on_request(context):
        return None

class Static(oncelog.Interceptor):
    settings = ()

    @staticmethod
    async def on_request(context, more=1):
        return None

class Produce(oncelog.RecordFilter):
    def on_fetched(self, record, context):
        pass

    def on_produce(self, record, context):
        pass

class Both(oncelog.RecordFilter):
    settings = ()

    def on_produced(self, record, context):
        self.on_produced_of(record.topic)

    def on_produced_of(self, topic):
        pass

class OfRecords(oncelog.Interceptor):
    def on_produced(self, record, context):
        pass

class Nothing(oncelog.RecordFilter):
    pass
"""


@pytest.fixture(autouse=True)
def module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stamps_of_a_test.py").write_text(MODULE)
    (tmp_path / "broken_of_a_test.py").write_text("import nowhere_at_all")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (":Stamp", ("via", 1, False)),
        (":Stamp,header=x,times=3,loud=True", ("x", 3, True)),
        (":made", ("made", 1, False)),
        (":make", ("of a function", 1, False)),
        (":make,header=a=b", ("a=b", 1, False)),
        (":Static", ()),
        (":Both", ()),
    ],
)
def test_a_filter_and_its_settings(text: str, settings: tuple[Any, ...]) -> None:
    found: Any = load_filter("stamps_of_a_test" + text)
    assert found.settings == settings


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Stamp", "Stamp: expected MODULE:NAME, such as stamp:Stamp for the class Stamp in stamp.py"),
        (":Stamp", ": expected MODULE:NAME"),
        (
            "stamps_of_a_test:Stemp",
            "stamps_of_a_test has no Stemp; its filters are Stamp, made, Misspelt, OneApi, ",
        ),
        ("stamps_of_a_test:Stamp,header", "'header': expected a setting as NAME=VALUE"),
        ("stamps_of_a_test:Stamp,height=3", "Stamp cannot be made: .* unexpected keyword argument 'height'"),
        ("stamps_of_a_test:Stamp,times=x", "Stamp cannot be made: invalid literal for int"),
        ("stamps_of_a_test:Stamp,loud=x", "Stamp cannot be made: 'x': expected true or false"),
        ("stamps_of_a_test:made,header=x", "made is made already, and takes no settings"),
        ("stamps_of_a_test:Misspelt", "Misspelt.apis: 'Produse' is no API: did you mean Produce"),
        ("stamps_of_a_test:other", "other makes no oncelog.Interceptor, but 5"),
        ("stamps_of_a_test:broken", "broken cannot be made: no reason"),
        ("stamps_of_a_test:number", "number is no oncelog.Interceptor, but 5"),
        ("no_such_module:Stamp", "there is no module no_such_module on Python's path, which begins with /"),
        ("stamps_of_a_test.py:Stamp", "stamps_of_a_test.py is a file: expected its module's name"),
        ("stamps_of_a_test:OneApi", r"OneApi.apis='Fetch': expected a set, such as frozenset\(\{'Fetch'\}\)"),
        ("stamps_of_a_test:NotAsync", "NotAsync.on_request is awaited: write async def on_request"),
        ("stamps_of_a_test:Async", "Async.on_produced is called, not awaited: not async def on_produced"),
        (
            "stamps_of_a_test:NoContext",
            r"NoContext.on_produced does not take what it is given: write def on_produced\(self, record, context\)",
        ),
        ("stamps_of_a_test:NoSelf", r"NoSelf.on_request .*: write async def on_request\(self, context\)"),
        ("stamps_of_a_test:Produce", r"Produce.on_produce is never called; did you mean on_produced\?"),
        ("stamps_of_a_test:OfRecords", "OfRecords.on_produced is called for an oncelog.RecordFilter only"),
        ("stamps_of_a_test:Nothing", "Nothing does nothing: it has none of .*, on_produced, on_fetched"),
        ("broken_of_a_test:Stamp", "cannot import broken_of_a_test: ModuleNotFoundError: .*nowhere_at_all"),
    ],
)
def test_what_cannot_be_loaded(text: str, why: str) -> None:
    with pytest.raises(FilterError, match=why):
        load_filter(text)
