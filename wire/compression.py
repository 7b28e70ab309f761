"""The codecs of record batches: gzip, snappy, lz4 and zstd, each library imported on its first use.

A codec is the id in a batch's attributes (``CompressionType``). A few bytes may expand to gigabytes, and a small stream
may have very many parts. So decompression stops at a given size, allocates memory only as it produces output, keeps
offsets instead of copies of the rest, and can be done in steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncelog.wire.errors import DecodeError
from oncelog.wire.steps import Steps, finish

Data = bytes | bytearray | memoryview

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

CODECS = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Values of the topic's ``compression.type`` that name a codec (the only other value is "producer")."""

GZIP_LEVEL_DEFAULT = -1
ZSTD_LEVEL_DEFAULT = 3
"""Kafka's defaults of ``compression.gzip.level`` and ``compression.zstd.level``."""

_STEP_BYTES = 128 * 1024
"""Bytes that one step decompresses, at most."""
_PIECE_BYTES = 16 * 1024
"""Bytes that one step compresses, at most: it takes several times longer."""
_STEP_PARTS = 64
"""Blocks or frames that one step reads, at most, where each takes Python a few microseconds."""
_GZIP_INPUT_MIN = 512
_GZIP_INPUT_MAX = 16 * 1024
"""Bytes that zlib is given at once. It copies what it leaves of them: so each further member of a stream gets few bytes
first, then more.
"""
_MEMORY_LEVEL = 8  # zlib's own default
_GZIP_WINDOW = 31  # zlib's window bits for a gzip header and trailer
_GZIP_MAGIC = b"\x1f\x8b"

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER_SIZE_MIN = 7
# Kafka reads version 1 with independent blocks, no dictionary, and reserved bits 0.
_LZ4_DESCRIPTOR_MASK = 0b11100011
_LZ4_DESCRIPTOR = 0b01100000
_LZ4_INDEPENDENT = 0b00100000
_LZ4_KAFKA_FAST_LEVEL = 9  # Kafka's default level: lz4-java's fast compressor
_LZ4_HC_LEVEL_MIN = 3
_LZ4_HC_LEVEL_MAX = 12

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_RLE_BLOCK = 1
_ZSTD_COMPRESSED_BLOCK = 2
_ZSTD_BLOCK_SIZE_MAX = 128 * 1024
_ZSTD_KEPT_WINDOW_MAX = 8 * 1024 * 1024  # bytes of window that the cached decompressor may keep allocated

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2  # version and compatible version
_XERIAL_BLOCK = 32 * 1024  # bytes in a block, as Java writes it
_SNAPPY_SIZE_BYTES_MAX = 5


class TooLarge(DecodeError):  # noqa: N818
    """Decompressed data is larger than the caller allows; it may be well formed."""


def decompress(codec: int, data: Data, max_size: int) -> bytes:
    """Decompress ``data`` to at most ``max_size`` bytes, at once. Raises as `decompress_steps`."""
    decoder = _DECODERS.get(codec)
    steps = decompress_steps(codec, data, max_size) if decoder is None else decoder(data, max_size)
    return bytes(finish(steps))


def decompress_steps(codec: int, data: Data, max_size: int) -> Steps[bytes | bytearray]:
    """Decompress ``data`` to at most ``max_size`` bytes, in steps.

    Raises TooLarge if there are more, and DecodeError for malformed or truncated data and for an unknown codec. Bytes
    after the end of a gzip or lz4 stream, or fewer than four after a snappy stream, are ignored, as in Kafka.
    """
    if codec == NONE:
        if len(data) > max_size:
            raise TooLarge(f"{len(data)} bytes where {max_size} are allowed")
        return bytes(data)
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise DecodeError(f"unknown compression type id {codec}")
    return (yield from decoder(data, max_size))


def compress(codec: int, data: Data, level: int | None = None) -> bytes:
    """Compress ``data`` at once. See `compress_steps`."""
    return bytes(finish(compress_steps(codec, data, level)))


def compress_steps(codec: int, data: Data, level: int | None = None) -> Steps[bytes | bytearray]:
    """Compress ``data`` as Kafka's brokers and Java clients do, in steps. ``level`` is Kafka's, None for its default.

    Raises ValueError for an unknown codec.
    """
    encoder = _ENCODERS.get(codec)
    if encoder is None:
        raise ValueError(f"unknown compression type id {codec}")
    return (yield from encoder(data, level))


def _too_large(max_size: int) -> TooLarge:
    return TooLarge(f"decompressed data is more than {max_size} bytes")


class _Output:
    """What was decompressed so far. It grows with each part, up to a size; a single part is not copied."""

    __slots__ = ("_left", "_max_size", "_parts", "_whole")

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._left = max_size
        self._parts: list[bytes] = []
        self._whole: bytearray | None = None

    @property
    def left(self) -> int:
        """Bytes that may still come."""
        return self._left

    def add(self, part: bytes) -> None:
        """Raises TooLarge."""
        self._left -= len(part)
        if self._left < 0:
            raise _too_large(self._max_size)
        if self._whole is not None:
            self._whole += part
        elif self._parts:
            self._whole = bytearray(self._parts[0])
            self._whole += part
        elif part:
            self._parts.append(part)

    def data(self) -> bytes | bytearray:
        if self._whole is not None:
            return self._whole
        return self._parts[0] if self._parts else b""


def _gunzip(data: Data, max_size: int) -> Steps[bytes | bytearray]:
    import zlib

    out = _Output(max_size)
    view = memoryview(data)
    position = parts = 0
    size = _GZIP_INPUT_MAX
    while True:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            given = view[position : position + size]
            try:
                part = stream.decompress(given, _STEP_BYTES)
            except zlib.error as error:
                raise DecodeError(f"gzip: {error}") from None
            if not part and not given:
                raise DecodeError("gzip: the stream is cut short")
            position += len(given) - len(stream.unconsumed_tail) - len(stream.unused_data)
            out.add(part)
            size = min(2 * size, _GZIP_INPUT_MAX)
            parts += 1
            if len(part) == _STEP_BYTES or parts % _STEP_PARTS == 0:
                yield
        if view[position : position + len(_GZIP_MAGIC)] != _GZIP_MAGIC:
            return out.data()
        size = _GZIP_INPUT_MIN


def _gzip(data: Data, level: int | None) -> Steps[bytes | bytearray]:
    import zlib

    stream = zlib.compressobj(
        GZIP_LEVEL_DEFAULT if level is None else level, zlib.DEFLATED, _GZIP_WINDOW, _MEMORY_LEVEL
    )
    out = yield from _compress_pieces(data, stream.compress)
    out += stream.flush()
    return out


def _compress_pieces(data: Data, compress_piece: Callable[[memoryview], bytes]) -> Steps[bytearray]:
    """Give ``data`` to a compressor, a piece at each step."""
    out = bytearray()
    view = memoryview(data)
    for start in range(0, len(view), _PIECE_BYTES):
        if start:
            yield
        out += compress_piece(view[start : start + _PIECE_BYTES])
    return out


def _lz4_decompress(data: Data, max_size: int) -> Steps[bytes | bytearray]:
    from lz4.frame import (  # type: ignore[import-untyped]
        create_decompression_context,
        decompress_chunk,
    )

    if bytes(data[:4]) != _LZ4_MAGIC or len(data) < _LZ4_HEADER_SIZE_MIN:
        raise DecodeError("lz4: no frame")
    if data[4] & _LZ4_DESCRIPTOR_MASK != _LZ4_DESCRIPTOR:
        what = f"lz4: frame descriptor {data[4]:#04x}"
        if data[4] & _LZ4_DESCRIPTOR_MASK == _LZ4_DESCRIPTOR & ~_LZ4_INDEPENDENT:
            raise DecodeError(
                f"{what}: its blocks depend on each other, and Kafka reads independent ones only"
            )
        raise DecodeError(f"{what} is not one that Kafka reads")
    context = create_decompression_context()
    rest = memoryview(data)
    out = _Output(max_size)
    while True:
        try:
            part, read, ended = decompress_chunk(context, rest, max_length=_STEP_BYTES)
        except RuntimeError as error:
            raise DecodeError(f"lz4: {error}") from None
        out.add(part)
        if ended:
            return out.data()
        if not part and not read:
            raise DecodeError("lz4: the frame is cut short")
        rest = rest[read:]
        yield


def _lz4_compress(data: Data, level: int | None) -> Steps[bytes | bytearray]:
    from lz4.frame import BLOCKSIZE_MAX64KB, LZ4FrameCompressor, compress

    if level is None or level == _LZ4_KAFKA_FAST_LEVEL:
        level = 0
    else:
        level = min(max(level, _LZ4_HC_LEVEL_MIN), _LZ4_HC_LEVEL_MAX)
    frame = {
        "compression_level": level,
        "block_size": BLOCKSIZE_MAX64KB,
        "block_linked": False,
        "content_checksum": False,
        "block_checksum": False,
    }
    if len(data) <= _PIECE_BYTES:
        whole: bytes = compress(data, store_size=False, **frame)
        return whole
    stream = LZ4FrameCompressor(**frame)
    out = bytearray(stream.begin())
    out += yield from _compress_pieces(data, stream.compress)
    out += stream.flush()
    return out


def _zstd_decompress(data: Data, max_size: int) -> Steps[bytes | bytearray]:
    window, size_max, frames = yield from _measure_zstd(data)
    decompressor = _zstd_decompressor(window)
    try:
        if frames == 1 and size_max <= _STEP_BYTES <= max_size:
            frame = decompressor.decompressobj()
            whole: bytes = frame.decompress(data)
            if not frame.eof:
                raise DecodeError("zstd: the frame is cut short")
            return whole
        out = _Output(max_size)
        reader = decompressor.stream_reader(data, read_across_frames=True)
        while part := reader.read(_STEP_BYTES):
            out.add(part)
            yield
    except _zstd().ZstdError as error:
        raise DecodeError(f"zstd: {error}") from None
    return out.data()


def _measure_zstd(data: Data) -> Steps[tuple[int, int, int]]:
    """The largest window of the frames in ``data``, an upper bound of their decompressed size, and their number, with
    skippable ones (RFC 8878, 3.1.1).

    Raises DecodeError if the last frame is truncated, which the library does not report.
    """
    window_max = size_max = position = frames = parts = 0
    end = len(data)
    try:
        while position < end:
            frames += 1
            parts += 1
            if parts % _STEP_PARTS == 0:
                yield
            magic = int.from_bytes(data[position : position + 4], "little")
            if magic & ~15 == _ZSTD_SKIPPABLE_MAGIC:
                position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
                continue
            if magic != _ZSTD_MAGIC:
                raise DecodeError("zstd: no frame")
            descriptor = data[position + 4]
            position += 5
            single_segment = descriptor & 0x20
            if not single_segment:
                exponent, mantissa = data[position] >> 3, data[position] & 7
                window_max = max(window_max, (1 << 10 + exponent) // 8 * (8 + mantissa))
                position += 1
            position += (0, 1, 2, 4)[descriptor & 3]
            size_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
            if single_segment:
                window_max = max(window_max, int.from_bytes(data[position : position + size_bytes], "little"))
            position += size_bytes
            last = 0
            while not last:
                block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
                last = block & 1
                kind = block >> 1 & 3
                size = block >> 3
                size_max += size if kind < _ZSTD_COMPRESSED_BLOCK else _ZSTD_BLOCK_SIZE_MAX
                position += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
                parts += 1
                if parts % _STEP_PARTS == 0:
                    yield
            position += descriptor & 4  # the frame's checksum
    except IndexError:
        position = end + 1
    if position > end:
        raise DecodeError("zstd: the frame is cut short")
    return window_max, size_max, frames


def _zstd() -> Any:
    import zstandard

    return zstandard


_kept_decompressors: list[Any] = []


def _zstd_decompressor(window: int) -> Any:
    """A cached decompressor: to create one costs more than a usual batch. A new one for a large window."""
    if window > _ZSTD_KEPT_WINDOW_MAX:
        return _zstd().ZstdDecompressor()
    if not _kept_decompressors:
        _kept_decompressors.append(_zstd().ZstdDecompressor())
    return _kept_decompressors[0]


def _zstd_compress(data: Data, level: int | None) -> Steps[bytes | bytearray]:
    compressor = _zstd().ZstdCompressor(ZSTD_LEVEL_DEFAULT if level is None else level)
    if len(data) <= _PIECE_BYTES:
        whole: bytes = compressor.compress(data)
        return whole
    stream = compressor.compressobj(size=len(data))
    out = yield from _compress_pieces(data, stream.compress)
    out += stream.flush()
    return out


def _unsnappy(data: Data, max_size: int) -> Steps[bytes | bytearray]:
    out = _Output(max_size)
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        out.add(_unsnappy_block(data, max_size, max_size))
        return out.data()
    view = memoryview(data)
    position = parts = 0
    end = len(view)
    while position < end:
        parts += 1
        if parts % _STEP_PARTS == 0:
            yield
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # concatenated streams
            position += len(_XERIAL_HEADER)
            if position > end:
                raise DecodeError("snappy: the stream's header is cut short")
            continue
        if end - position < 4:  # too short for the size of another block: Java stops there too
            break
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or size > end - position:
            raise DecodeError(f"snappy: block of {size} bytes where {end - position} are left")
        part = _unsnappy_block(view[position : position + size], out.left, max_size)
        position += size
        out.add(part)
        if len(part) >= _STEP_BYTES:
            yield
    return out.data()


def _unsnappy_block(block: Data, left: int, max_size: int) -> bytes:
    import snappy  # type: ignore[import-untyped]

    # The library allocates the size that the block declares.
    declared = shift = 0
    for byte in bytes(block[:_SNAPPY_SIZE_BYTES_MAX]):
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise DecodeError("snappy: the block's size is cut short")
    if declared > left:
        raise _too_large(max_size)
    try:
        out: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        raise DecodeError(f"snappy: {error.__cause__ or error}") from None
    return out


def _snappy(data: Data, level: int | None) -> Steps[bytes | bytearray]:
    import snappy

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        if start:
            yield
        block = snappy.compress(view[start : start + _XERIAL_BLOCK])
        out += len(block).to_bytes(4, "big")
        out += block
    return out


def _plain(data: Data, level: int | None) -> Steps[bytes | bytearray]:
    yield from ()
    return bytes(data)


_DECODERS: dict[int, Callable[[Data, int], Steps[bytes | bytearray]]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _lz4_decompress,
    ZSTD: _zstd_decompress,
}
_ENCODERS: dict[int, Callable[[Data, int | None], Steps[bytes | bytearray]]] = {
    NONE: _plain,
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4_compress,
    ZSTD: _zstd_compress,
}
