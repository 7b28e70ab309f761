"""An lz4 frame says its content's size and checksum, both wrong: Kafka reads neither, oncelog does (differences.md)."""

from collections.abc import Callable

import lz4.frame  # type: ignore[import-untyped,unused-ignore]
import pytest

from compat_tests.differential import Session
from tests.common.batches import LZ4, batch, record

OK, UNKNOWN_SERVER_ERROR = 0, -1
BLOCKS = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": False}


def wrong_checksum(content: bytes) -> bytes:
    frame = lz4.frame.compress(content, content_checksum=True, store_size=False, **BLOCKS)
    return bytes(frame[:-1]) + bytes([frame[-1] ^ 1])


def wrong_size(content: bytes) -> bytes:
    context = lz4.frame.create_compression_context()
    begin = lz4.frame.compress_begin(context, source_size=len(content) + 1, auto_flush=True, **BLOCKS)
    return bytes(begin) + bytes(lz4.frame.compress_chunk(context, content)) + bytes(4)


def both_right(content: bytes) -> bytes:
    return bytes(lz4.frame.compress(content, content_checksum=True, store_size=True, **BLOCKS))


@pytest.mark.parametrize(
    ("compress", "refused"), [(both_right, False), (wrong_checksum, True), (wrong_size, True)]
)
def test_what_a_frame_says_of_its_content(
    bootstrap: str, target: str, name: str, compress: Callable[[bytes], bytes], refused: bool
) -> None:
    records = batch([compress(record(b"k", b"v"))], attributes=LZ4)
    session = Session(bootstrap)
    session.topic(name)
    expected = UNKNOWN_SERVER_ERROR if refused and target == "oncelog" else OK
    assert session.produce(name, records)["error_code"] == expected
    session.close()
