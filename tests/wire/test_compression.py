"""The codecs against those of kafka-python and aiokafka; truncated and malformed data, and decompression bombs."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, TooLarge, compress, decompress
from oncelog.wire.errors import DecodeError
from tests.common.oncelog_process import DEADLINE_S
from tests.wire.batches import CODEC_NAMES, CODECS, aiokafka, kafka

MIB = 1024 * 1024
COMPRESSING = CODECS[1:]

Codec = Callable[[bytes], bytes]
OTHERS: list[tuple[str, int, Codec, Codec]] = [
    ("kafka-python gzip", GZIP, kafka.codec.gzip_encode, kafka.codec.gzip_decode),
    ("kafka-python xerial", SNAPPY, kafka.codec.snappy_encode, kafka.codec.snappy_decode),
    (
        "kafka-python raw snappy",
        SNAPPY,
        lambda data: kafka.codec.snappy_encode(data, xerial_compatible=False),
        kafka.codec.snappy_decode,
    ),
    ("kafka-python lz4", LZ4, kafka.codec.lz4_encode, kafka.codec.lz4_decode),
    ("kafka-python zstd", ZSTD, kafka.codec.zstd_encode, kafka.codec.zstd_decode),
    ("aiokafka gzip", GZIP, aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    ("aiokafka xerial", SNAPPY, aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    ("aiokafka zstd", ZSTD, aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
]


def some_data(size: int) -> bytes:
    """Half random and half repetitive data, which makes every kind of block."""
    return random.Random(size).randbytes(size // 2) + b"oncelog " * (size // 16)


@pytest.mark.parametrize(("name", "codec", "encode", "decode"), OTHERS, ids=[row[0] for row in OTHERS])
def test_reads_and_is_read_by_others(name: str, codec: int, encode: Codec, decode: Codec) -> None:
    for size in (16, 1_000, 40_000, 300_000):
        data = some_data(size)
        assert decompress(codec, encode(data), len(data)) == data
        assert bytes(decode(compress(codec, data))) == data


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=500), st.sampled_from(CODECS))
def test_any_bytes_come_back_from_any_kind_of_buffer(data: bytes, codec: int) -> None:
    squeezed = compress(codec, memoryview(data))
    for form in (squeezed, bytearray(squeezed), memoryview(squeezed), memoryview(bytearray(squeezed))):
        assert decompress(codec, form, len(data)) == data


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_the_bound_is_exact(codec: int) -> None:
    data = some_data(3 * MIB // 2)
    squeezed = compress(codec, data)
    assert decompress(codec, squeezed, len(data)) == data
    for bound in (0, 1, MIB, len(data) - 1):
        with pytest.raises(TooLarge):
            decompress(codec, squeezed, bound)


@pytest.mark.parametrize("codec", COMPRESSING, ids=CODEC_NAMES[1:])
def test_no_truncation_is_taken_for_the_whole(codec: int) -> None:
    data = some_data(400)
    squeezed = compress(codec, data)
    for size in range(len(squeezed)):
        try:
            got = decompress(codec, squeezed[:size], MIB)
        except DecodeError:
            continue
        # A snappy or zstd stream without its first block is valid.
        assert got == b""
        assert (codec, size) in {(ZSTD, 0), *((SNAPPY, 16 + few) for few in range(4))}


@pytest.mark.parametrize("codec", COMPRESSING, ids=CODEC_NAMES[1:])
def test_noise_is_refused_without_another_exception(codec: int) -> None:
    chance = random.Random(codec)
    good = compress(codec, some_data(300))
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        with contextlib.suppress(DecodeError):
            decompress(codec, bad, MIB)
        with contextlib.suppress(DecodeError):
            decompress(codec, chance.randbytes(chance.randrange(1, 60)), MIB)


def stream_of_zeros(feed: Callable[[bytes], bytes], end: Callable[[], bytes], mebibytes: int) -> bytes:
    return b"".join(feed(bytes(MIB)) for _ in range(mebibytes)) + end()


def gzip_bomb() -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    return stream_of_zeros(stream.compress, stream.flush, 64)


def lz4_bomb() -> bytes:
    stream = lz4.frame.LZ4FrameCompressor(block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    start: bytes = stream.begin()
    return start + stream_of_zeros(stream.compress, stream.flush, 64)


def zstd_bomb(size: int = -1) -> bytes:
    stream = zstandard.ZstdCompressor(19).compressobj(size=size)
    return stream_of_zeros(stream.compress, stream.flush, 64)


def zstd_run_length_bomb() -> bytes:
    """A frame of run-length blocks of four bytes, each for 128 KiB; the frame has no content size."""
    header = (0xFD2FB528).to_bytes(4, "little") + bytes([0, 0x38])
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return header + block * 511 + (128 * 1024 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"


def snappy_bomb() -> bytes:
    return bytes(cramjam.snappy.compress_raw(bytes(64 * MIB)))


def xerial_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + (len(block).to_bytes(4, "big") + block) * 64


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (GZIP, gzip_bomb),
        (LZ4, lz4_bomb),
        (ZSTD, zstd_bomb),
        (ZSTD, lambda: zstd_bomb(64 * MIB)),
        (ZSTD, zstd_run_length_bomb),
        (SNAPPY, snappy_bomb),
        (SNAPPY, xerial_bomb),
        (SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + b"\0" * 20),  # claims 4 GiB
    ],
)
def test_a_bomb_is_refused_without_its_memory(codec: int, bomb: Callable[[], bytes]) -> None:
    data = bomb()
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(codec, data, 2 * MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 9 * MIB, peak  # of 64


def test_the_run_length_frame_is_a_real_one() -> None:
    assert decompress(ZSTD, zstd_run_length_bomb(), 64 * MIB) == bytes(64 * MIB)


def test_streams_that_follow_each_other() -> None:
    one, two = some_data(300), b"two" * 100
    for codec in (GZIP, ZSTD):
        assert decompress(codec, compress(codec, one) + compress(codec, two), MIB) == one + two
    assert decompress(SNAPPY, compress(SNAPPY, one) + compress(SNAPPY, two), MIB) == one + two
    skippable = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"12345"
    assert decompress(ZSTD, compress(ZSTD, one) + skippable, MIB) == one
    assert decompress(ZSTD, skippable + compress(ZSTD, one), MIB) == one


def test_bytes_after_the_end_are_ignored_where_kafka_ignores_them() -> None:
    data = some_data(300)
    for codec in (GZIP, LZ4):
        assert decompress(codec, compress(codec, data) + b"more", MIB) == data
    assert decompress(SNAPPY, compress(SNAPPY, data) + b"abc", MIB) == data
    for codec in (ZSTD, SNAPPY):
        with pytest.raises(DecodeError):
            decompress(codec, compress(codec, data) + b"more than 3", MIB)


def test_zstd_frames_of_unknown_size_and_large_windows() -> None:
    data = some_data(200_000)
    unknown = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(data)
    assert decompress(ZSTD, unknown, len(data)) == data
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=26)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert decompress(ZSTD, stream.compress(data) + stream.flush(), len(data)) == data


def test_zstd_frames_of_many_small_blocks() -> None:
    """By their headers blocks could expand to 128 KiB each; only the real size counts."""
    stream = zstandard.ZstdCompressor().compressobj()
    data = some_data(6400)
    pieces = [data[at : at + 64] for at in range(0, len(data), 64)]
    frame = b"".join(
        stream.compress(piece) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for piece in pieces
    )
    frame += stream.flush()
    assert decompress(ZSTD, frame, len(data)) == data
    with pytest.raises(TooLarge):
        decompress(ZSTD, frame, len(data) - 1)
    for size in range(1, len(frame), 7):
        with pytest.raises(DecodeError):
            decompress(ZSTD, frame[:size], len(data))


def test_lz4_frames_that_kafka_does_not_read_are_refused() -> None:
    data = some_data(300_000)
    with pytest.raises(DecodeError, match="0x48: its blocks depend on each other"):
        decompress(LZ4, lz4.frame.compress(data, block_linked=True), MIB)
    for option in ({"content_checksum": True}, {"block_checksum": True}, {"store_size": True}):
        assert decompress(LZ4, lz4.frame.compress(data, block_linked=False, **option), MIB) == data


def test_lz4_frames_are_written_as_java_writes_them() -> None:
    frame = compress(LZ4, some_data(200_000))
    # Magic, version 1 with independent blocks and nothing else, blocks of 64 KiB, checksum of those two.
    assert frame[:7] == bytes.fromhex("04224d18 60 40 82")


def test_snappy_is_written_in_the_framing_of_java_in_blocks_of_32_kib() -> None:
    out = compress(SNAPPY, bytes(70_000))
    assert out[:16] == b"\x82SNAPPY\0" + bytes.fromhex("00000001 00000001")
    sizes, position = [], 16
    while position < len(out):
        size = int.from_bytes(out[position : position + 4], "big")
        sizes.append(len(cramjam.snappy.decompress_raw(out[position + 4 : position + 4 + size])))
        position += 4 + size
    assert sizes == [32768, 32768, 70_000 - 65536]


@pytest.mark.parametrize(
    ("codec", "low", "high", "default"), [(GZIP, 1, 9, -1), (LZ4, 1, 17, 9), (ZSTD, 1, 22, 3)]
)
def test_levels(codec: int, low: int, high: int, default: int) -> None:
    chance = random.Random(5)
    words = [chance.randbytes(chance.randrange(3, 9)) for _ in range(200)]
    data = b"".join(chance.choice(words) for _ in range(20_000))
    assert len(compress(codec, data, high)) < len(compress(codec, data, low))
    assert compress(codec, data, default) == compress(codec, data)
    assert len(compress(codec, data)) >= len(compress(codec, data, high))
    assert decompress(codec, compress(codec, data, high), len(data)) == data


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_an_unknown_codec(codec: int) -> None:
    with pytest.raises(DecodeError):
        decompress(codec, b"data", 10)
    with pytest.raises(ValueError, match="unknown"):
        compress(codec, b"data")


def test_no_codec() -> None:
    assert decompress(NONE, memoryview(b"data"), 4) == b"data"
    assert compress(NONE, b"data") == b"data"


def test_importing_it_imports_no_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import oncelog.wire.validate; new = set(sys.modules) - before\n"
        "heavy = {'zlib', 'gzip', 'lz4', 'snappy', 'cramjam', 'zstandard', 'inspect', 'typing_extensions'}\n"
        "assert not heavy & new, heavy & new"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_S)
