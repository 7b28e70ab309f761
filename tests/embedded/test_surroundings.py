"""Processes whose globals are not as usual: no descriptors, no sockets, gevent's, and whatever a program may change."""

from __future__ import annotations

import pytest

from tests.harness.child_program import output_of

START = """
import asyncio

import oncelog


async def start_async():
    async with oncelog.AsyncBroker():
        pass


def start_proxy():
    with oncelog.Proxy("127.0.0.1:1"):
        pass


def start():
    with oncelog.Broker():
        pass


oncelog.AsyncBroker  # is imported here, and what the others need below
with oncelog.Broker() as kafka, oncelog.Proxy(kafka.bootstrap_servers):
    pass
"""
FORBIDS = {
    "no descriptors": (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "held = []\n"
        "try:\n"
        "    while True:\n"
        "        held.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError:\n"
        "    pass\n",
        "OSError: [Errno 24]",
    ),
    "no sockets": (
        "import pytest_socket\npytest_socket.disable_socket()\n",
        "SocketBlockedError: A test tried to use socket.socket.",
    ),
}


@pytest.mark.parametrize("how", FORBIDS)
@pytest.mark.parametrize("start", ["start", "start_proxy", "start_async"])
def test_who_waits_for_the_thread_is_told_what_has_ended_it(how: str, start: str) -> None:
    forbid, says = FORBIDS[how]
    asynchronous = start == "start_async"
    program = (
        f"{START}\n"
        "loop = asyncio.new_event_loop()\n"  # it needs descriptors of its own
        f"{forbid}"
        "try:\n"
        f"    {'loop.run_until_complete(start_async())' if asynchronous else f'{start}()'}\n"
        "except oncelog.NotRunningError as error:\n"
        "    print(error)\n"
    )
    said = output_of(program)
    assert said.startswith(f"the broker's thread could not begin: {says}"), said


GEVENT = """
from gevent import monkey

monkey.patch_all({patched})
import oncelog

try:
    with oncelog.Broker({form}) as kafka:
        kafka.produce("orders", "tea")
        [record] = kafka.topic("orders").records()
        print(record.value)
except oncelog.UnsupportedError as error:
    print(error)
"""
REFUSED = (
    "gevent's monkey.patch_all() has replaced what a broker's loop needs in this process: say process=True"
)
AND_ALL = ", and patch_all() with its threads and its sockets"


@pytest.mark.parametrize(
    ("patched", "form", "says"),
    [
        ("", "", REFUSED),
        ("", "process=True", "b'tea'"),
        ("thread=False", "", REFUSED + AND_ALL),
        ("thread=False", "process=True", REFUSED + AND_ALL),
        ("thread=False, socket=False, select=False", "", "b'tea'"),
    ],
)
def test_gevent(patched: str, form: str, says: str) -> None:
    assert output_of(GEVENT.format(patched=patched, form=form)) == f"{says}\n"


CHANGED = """
import decimal, gc, logging, os, random, shutil, socket, sys, tempfile, threading, uuid, warnings
from unittest import mock

import oncelog

folder = tempfile.mkdtemp()
os.chdir(folder)
with oncelog.Broker(data_dir="data") as kafka:  # what was written before is there after
    kafka.produce("orders", "tea")
os.chdir("/")
gone = tempfile.mkdtemp()
os.chdir(gone)
os.rmdir(gone)  # no working directory
os.environ.clear()
warnings.simplefilter("error")
logging.disable(logging.CRITICAL)
socket.setdefaulttimeout(0.001)
threading.stack_size(256 * 1024)
decimal.getcontext().traps[decimal.Inexact] = True
sys.set_int_max_str_digits(640)
os.umask(0o777)
gc.disable()
random.seed(1)
expected = random.random()
random.seed(1)
sys.setrecursionlimit(150)
with (
    mock.patch.multiple(sys, stdin=None, stdout=None, stderr=None),
    mock.patch("uuid.uuid4", return_value=uuid.UUID(int=5)),
    mock.patch("os.urandom", side_effect=bytes),
    mock.patch("time.sleep", side_effect=AssertionError("nothing sleeps")),
    oncelog.Broker(data_dir=f"{folder}/data", {form}) as kafka,
):
    kafka.produce("other", "tea")
    kafka.produce("orders", "milk")
    said = [record.value for record in kafka.topic("orders").wait_for_records(2)]
sys.setrecursionlimit(1000)
shutil.rmtree(folder)
print(said, random.random() == expected)
"""


@pytest.mark.parametrize("form", ["process=False", "process=True"])
def test_what_a_program_has_changed_of_its_process_changes_nothing(form: str) -> None:
    assert output_of(CHANGED.replace("{form}", form)) == "[b'tea', b'milk'] True\n"


CLOSED = """
import os

import oncelog

result = os.dup2(1, 50)
for stream in {streams}:
    os.close(stream)
with oncelog.Broker({form}) as kafka:
    kafka.produce("orders", "milk")
    os.write(result, kafka.topic("orders").wait_for_records(1)[0].value + b"\\n")
"""


@pytest.mark.parametrize("form", ["process=False", "process=True"])
@pytest.mark.parametrize("streams", ["[0]", "[1]", "[0, 1]", "[0, 1, 2]"])
def test_standard_streams_that_are_closed(streams: str, form: str) -> None:
    assert output_of(CLOSED.replace("{form}", form).replace("{streams}", streams)) == "milk\n"
