"""`oncelog.messages`: current, complete, and understood by a type checker."""

from __future__ import annotations

import pathlib

import mypy.api
import pytest

from oncelog import messages
from oncelog.broker.handlers.table import HANDLERS
from oncelog.wire.schema import Message
from tests.filters import messages_page

ROOT = pathlib.Path(__file__).parents[2]
RIGHT = """\
import oncelog
from oncelog import messages

class Right(oncelog.Interceptor):
    async def on_request(self, context: oncelog.RequestContext) -> None:
        match context.request:
            case messages.FetchRequest():
                context.request.max_wait_ms = min(context.request.max_wait_ms, 1000)
            case messages.ProduceRequest():
                context.request.topic_data.append(messages.produce.TopicProduceData("t", partition_data=[]))
"""
MISTAKES = {
    "context.request.max_wait_ms = min": "context.request.max_wait = min",
    "context.request.max_wait_ms, 1000": "context.request.max_wait_ms, '1000'",
    'TopicProduceData("t"': 'TopicProduceData(nam="t"',
    "messages.FetchRequest": "messages.FetchReqest",
}
TOLD = {
    '"FetchRequest" has no attribute "max_wait"',
    'variable has type "int"',
    'Unexpected keyword argument "nam" for "TopicProduceData"',
    'Module has no attribute "FetchReqest"',
}


def test_the_page_and_the_module_are_current() -> None:
    assert (ROOT / "docs" / "reference" / "messages.md").read_text() == messages_page.page(), "make docs"
    assert (ROOT / "oncelog" / "messages.py").read_text() == messages_page.module(), "make docs"


def test_every_name_can_be_imported() -> None:
    found = {name: getattr(messages, name) for name in messages.__all__}
    classes = [one for one in found.values() if isinstance(one, type)]
    assert len(classes) == 2 * len(HANDLERS)
    assert all(issubclass(one, Message) for one in classes)
    assert found["produce"].ProduceRequest is found["ProduceRequest"]
    with pytest.raises(AttributeError, match=r"module 'oncelog.messages' has no attribute 'ProducRequest'"):
        _ = messages.ProducRequest  # type: ignore[attr-defined]


@pytest.mark.slow
def test_mypy_knows_the_fields(tmp_path: pathlib.Path) -> None:
    right = tmp_path / "right.py"
    right.write_text(RIGHT)
    files = [str(right)]
    for number, (correct, mistake) in enumerate(MISTAKES.items()):
        wrong = tmp_path / f"wrong_{number}.py"
        assert correct in RIGHT
        wrong.write_text(RIGHT.replace(correct, mistake))
        files.append(str(wrong))
    options = ("--strict", "--cache-dir", str(tmp_path / "cache"), "--config-file", "", "--no-error-summary")
    shown, failed, _ = mypy.api.run([*options, *files])
    assert failed == "", failed
    said = shown.splitlines()
    assert not any("right.py" in line for line in said), shown
    for told in TOLD:
        assert any(told in line for line in said), f"{told}: {shown}"
