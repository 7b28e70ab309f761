"""Every client writes, and every client reads that: codecs, acks, idempotence, nulls, headers, timestamps, sizes."""

import pytest

from compat_tests.clients.stock_clients import (
    CLIENTS,
    CODECS,
    PYTHON_CLIENTS,
    Kcat,
    Options,
    Record,
    run_kcat,
)
from compat_tests.differential import make_topic
from compat_tests.proxied import node_address
from tests.common.batches import now_ms

pytestmark = pytest.mark.also_on("proxy")

START_MS = now_ms() - 10_000
RECORDS = [
    Record(b"key", b"value", (), START_MS),
    Record(None, b"no key", (), START_MS + 1),
    Record(b"no value", None, (), START_MS + 5),
    Record(b"", b"", (("empty", b""),), START_MS + 3),
    Record(b"\0\xff\x80", bytes(range(256)), (("h", b"1"), ("h", b"\xff\0"), ("\u00e4", b"x")), START_MS + 9),
    *(Record(b"k%d" % number, b"v" * number, (), START_MS + 10 + number) for number in range(200)),
]
TEXTS = [Record(b"k%d" % number, b"value %d" % number) for number in range(100)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_write_and_read_back(bootstrap: str, name: str, client: str, codec: str) -> None:
    """Without and with idempotence, read by every client."""
    make_topic(bootstrap, name)
    count = len(RECORDS)
    for round_, idempotent in enumerate((False, True)):
        offsets = PYTHON_CLIENTS[client].produce(bootstrap, name, 0, RECORDS, Options(codec, -1, idempotent))
        assert offsets == list(range(round_ * count, (round_ + 1) * count))
    for reader in PYTHON_CLIENTS.values():
        assert reader.consume(bootstrap, name, 0, 0, 2 * count) == RECORDS * 2
        assert reader.consume(bootstrap, name, 0, count + 3, 5) == RECORDS[3:8]


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_writes_and_reads(bootstrap: str, name: str, codec: str) -> None:
    make_topic(bootstrap, name)
    for idempotent in (False, True):
        Kcat.produce(bootstrap, name, 0, TEXTS, Options(codec, -1, idempotent))
    for reader in CLIENTS.values():
        found = reader.consume(bootstrap, name, 0, 0, 200)
        assert [one[:3] for one in found] == [one[:3] for one in TEXTS * 2]


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("client", CLIENTS)
def test_acks(bootstrap: str, name: str, client: str, acks: int) -> None:
    make_topic(bootstrap, name)
    CLIENTS[client].produce(bootstrap, name, 0, TEXTS, Options("none", acks))
    found = CLIENTS[client].consume(bootstrap, name, 0, 0, len(TEXTS))
    assert [one[:2] for one in found] == [one[:2] for one in TEXTS]


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_large_messages(bootstrap: str, name: str, client: str) -> None:
    """Each message exceeds what a consumer fetches at once, so the first batch must come whole."""
    make_topic(bootstrap, name, configs={"max.message.bytes": "8000000"})
    records = [Record(b"large", bytes([number]) * 5_000_000, (), START_MS) for number in range(3)]
    assert PYTHON_CLIENTS[client].produce(bootstrap, name, 0, records, Options()) == [0, 1, 2]
    for reader in PYTHON_CLIENTS.values():
        assert reader.consume(bootstrap, name, 0, 0, 3) == records


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_message_too_large(bootstrap: str, name: str, client: str) -> None:
    make_topic(bootstrap, name, configs={"max.message.bytes": "1000"})
    with pytest.raises(Exception, match=r"(?i)MSG_SIZE_TOO_LARGE|MessageSizeTooLarge|too.large"):
        PYTHON_CLIENTS[client].produce(bootstrap, name, 0, [Record(b"k", b"x" * 5000)], Options())
    assert PYTHON_CLIENTS[client].produce(bootstrap, name, 0, [Record(b"k", b"x" * 500)], Options()) == [0]


@pytest.mark.parametrize("client", CLIENTS)
def test_many_partitions(bootstrap: str, name: str, client: str) -> None:
    make_topic(bootstrap, name, 40)
    chosen = (0, 7, 39)
    for partition in chosen:
        CLIENTS[client].produce(bootstrap, name, partition, [Record(b"p", b"%d" % partition)], Options())
    for partition in chosen:
        (found,) = CLIENTS[client].consume(bootstrap, name, partition, 0, 1)
        assert found.value == b"%d" % partition


@pytest.mark.parametrize("client", CLIENTS)
def test_unknown_topic_is_created(bootstrap: str, name: str, client: str) -> None:
    CLIENTS[client].produce(bootstrap, name, 0, TEXTS[:3], Options())
    assert [one.value for one in CLIENTS[client].consume(bootstrap, name, 0, 0, 3)] == [
        one.value for one in TEXTS[:3]
    ]


class TestKcat:
    """Features of kcat that the other clients do not have."""

    def test_metadata(self, bootstrap: str, target: str, name: str) -> None:
        make_topic(bootstrap, name, 2)
        shown = run_kcat(bootstrap, "-L", "-t", name).stdout.decode()
        host, port = node_address(bootstrap, target)
        assert f"broker 1 at {host}:{port}" in shown
        assert f'topic "{name}" with 2 partitions' in shown

    def test_offsets_by_time(self, bootstrap: str, name: str) -> None:
        make_topic(bootstrap, name)
        PYTHON_CLIENTS["confluent-kafka"].produce(bootstrap, name, 0, RECORDS, Options())
        shown = run_kcat(bootstrap, "-Q", "-t", f"{name}:0:{START_MS + 4}").stdout.decode()
        assert shown.strip() == f"{name} [0] offset 2"

    @pytest.mark.parametrize(("start", "first"), [("beginning", 0), ("-3", 97), ("50", 50)])
    def test_start(self, bootstrap: str, name: str, start: str, first: int) -> None:
        make_topic(bootstrap, name)
        Kcat.produce(bootstrap, name, 0, TEXTS, Options("lz4"))
        shown = run_kcat(
            bootstrap, "-C", "-t", name, "-p", "0", "-o", start, "-e", "-q", "-f", "%o %s\n"
        ).stdout
        assert shown.decode().splitlines() == [f"{number} value {number}" for number in range(first, 100)]

    def test_headers_and_null_values(self, bootstrap: str, name: str) -> None:
        make_topic(bootstrap, name)
        arguments = ("-P", "-t", name, "-p", "0", "-Z", "-K", "\t", "-H", "a=1", "-H", "b")
        run_kcat(bootstrap, *arguments, input=b"key\t\n")
        (found,) = Kcat.consume(bootstrap, name, 0, 0, 1)
        assert found[:3] == (b"key", None, (("a", b"1"), ("b", None)))
