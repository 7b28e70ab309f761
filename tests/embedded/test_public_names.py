"""The public classes as a user meets them: their names in annotations, and what a prompt and a report show of them."""

from __future__ import annotations

import ast
import inspect
import pathlib
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator

import pytest
import trio

import oncelog
from tests.common.oncelog_process import DEADLINE_S

NOT_EXPORTED = {
    *("AclBinding", "Members", "Api", "KnownTopics", "PartitionProduceResponse", "BaseConnection", "Uuid"),
    *("AsyncFacade", "Facade"),
}
"""What `Acl.binding` gives the broker; a word for an argument of a clock's methods; what the broker and the proxy give
an interceptor, and its author has no use for the name of; what brokers and proxies have in common.
"""


def public_parts(kind: type) -> Iterator[ast.expr]:
    """The annotations of a class's public methods, properties and attributes."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for part in tree.body:
        if isinstance(part, ast.AnnAssign):
            yield part.annotation
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and (
            part.name == "__init__" or not part.name.startswith("_")
        ):
            arguments = part.args
            every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            yield from (one.annotation for one in every if one.annotation is not None)
            assert part.returns is not None, part.name
            yield part.returns


def names_of_ours(kind: type) -> set[str]:
    """The names in a module that it imports from oncelog, or defines."""
    module = sys.modules[kind.__module__]
    assert module.__file__ is not None
    found = set()
    for node in ast.walk(ast.parse(pathlib.Path(module.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oncelog"):
            found |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.ClassDef):
            found.add(node.name)
    return found


@pytest.mark.slow
def test_every_name_in_an_annotation_is_there() -> None:
    kinds = [value for name in oncelog.__all__ if isinstance(value := getattr(oncelog, name), type)]
    documented = [kind for kind in kinds if kind.__module__.startswith("oncelog.broker.") and kind.__doc__]
    assert len(documented) > 25
    missing = {
        f"{kind.__name__}: {node.id}"
        for kind in documented
        for annotation in public_parts(kind)
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name) and node.id in names_of_ours(kind) - NOT_EXPORTED - set(oncelog.__all__)
    }
    assert not missing


def test_every_name_is_imported_with_its_first_use() -> None:
    program = "import oncelog\nfor name in oncelog.__all__: getattr(oncelog, name)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_S)
    assert len(set(oncelog.__all__)) == len(oncelog.__all__)


def test_what_is_shown_of_each() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        assert isinstance(kafka.topic("orders"), oncelog.Topic)
        assert isinstance(kafka.group("billing"), oncelog.Group)
        assert isinstance(kafka.transactions["app"], oncelog.Transaction)
        assert repr(kafka.transactions) == f"<Transactions of {kafka!r}: all(), open(), or ['app'] for one>"
        assert repr(kafka.faults) == f"<Faults of {kafka!r}>"
        draft = kafka.faults.on("EndTxn").nth(2)
        assert isinstance(draft, oncelog.RuleDraft)
        assert repr(draft) == (
            "<RuleDraft {'on': ['EndTxn'], 'nth': 2}, not in force: it lacks what happens, such as drop_response()>"
        )
        rule = draft.drop_response()
        assert isinstance(rule, oncelog.Rule)
        assert repr(rule) == "<Rule 1>"


def test_what_a_mistake_says() -> None:
    with oncelog.Broker(topics=["orders"]) as kafka:
        with pytest.raises(oncelog.InvalidArgumentError, match=r"the name of an error, such as .*, not 16"):
            kafka.faults.on("EndTxn").error(16)  # type: ignore[arg-type]
        kafka.faults.on("EndTxn").error(oncelog.ErrorCode.NOT_COORDINATOR)
        for records in ("abc", b"abc", {"value": "a"}):
            with pytest.raises(
                oncelog.InvalidArgumentError, match=r"expected a list of records; produce\(\)"
            ):
                kafka.produce_many("orders", records)  # type: ignore[arg-type]
        for offsets in ({"orders": 5}, {0: 5}):
            with pytest.raises(
                oncelog.InvalidArgumentError, match=r"expected \{topic: \{partition: offset\}\}"
            ):
                kafka.group("billing").commit(offsets)  # type: ignore[arg-type]
        with pytest.raises(oncelog.WaitTimeoutError, match="fired less than") as caught:
            kafka.faults.on("EndTxn").close().wait_fired(timeout=0)
        assert caught.value.__suppress_context__, "the same message twice"
        assert (caught.type.__module__, caught.type.__qualname__) == ("oncelog", "WaitTimeoutError")


def test_a_timestamp_in_seconds_is_a_warning() -> None:
    said = r"timestamp=1700000000 is in milliseconds, and so of 1970-01-20: if it is in seconds, say 1700000000000"
    rows: list[oncelog.RecordGiven] = [b"a", {"value": b"b", "timestamp": 1_700_000_000}]

    async def awaited() -> None:
        async with oncelog.AsyncBroker() as kafka:
            with pytest.warns(UserWarning, match=said) as caught:
                await kafka.produce("orders", b"a", timestamp=1_700_000_000)
            assert [warning.filename for warning in caught] == [__file__]

    trio.run(awaited)
    with oncelog.Broker() as kafka:
        with pytest.warns(UserWarning, match=said) as caught:
            kafka.produce_many("orders", rows)
        assert [warning.filename for warning in caught] == [__file__]
        for timestamp in (0, 5, 1000, 999_999_999, 1_700_000_000_000):
            kafka.produce("orders", b"a", timestamp=timestamp)
        assert 1_700_000_000 in [record.timestamp for record in kafka.topic("orders").records()]


def test_kafkas_error_is_shown_by_its_public_name_and_can_be_sent_to_another_process() -> None:
    error = oncelog.KafkaError(oncelog.ErrorCode.NOT_COORDINATOR, "elsewhere")
    assert traceback.format_exception_only(error) == ["oncelog.KafkaError: NOT_COORDINATOR: elsewhere\n"]
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.code, again.message) == (type(error), error.code, "elsewhere")
