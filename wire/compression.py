"""The codecs of record batches: gzip, snappy, lz4 and zstd, each library imported on its first use.

A codec is the id in a batch's attributes (``CompressionType``). Decompression is bounded, since a few bytes may expand
to gigabytes: it stops at a given size, and allocates memory only as it produces output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncelog.wire.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

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

_CHUNK = 1024 * 1024  # bytes to request at a time from a decompressor without an output limit
_MEMORY_LEVEL = 8  # zlib's own default
_GZIP_WINDOW = 31  # zlib's window bits for a gzip header and trailer
_GZIP_MAGIC = b"\x1f\x8b"

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER_SIZE_MIN = 7
# Kafka reads version 1 with independent blocks, no dictionary, and reserved bits 0.
_LZ4_DESCRIPTOR_MASK = 0b11100011
_LZ4_DESCRIPTOR = 0b01100000
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
    """Decompress ``data`` to at most ``max_size`` bytes.

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
    return decoder(data, max_size)


def compress(codec: int, data: Data, level: int | None = None) -> bytes:
    """Compress ``data`` as Kafka's brokers and Java clients do. ``level`` is Kafka's, None for its default.

    Raises ValueError for an unknown codec.
    """
    encoder = _ENCODERS.get(codec)
    if encoder is None:
        raise ValueError(f"unknown compression type id {codec}")
    return encoder(data, level)


def _too_large(max_size: int) -> TooLarge:
    return TooLarge(f"decompressed data is more than {max_size} bytes")


def _gunzip(data: Data, max_size: int) -> bytes:
    import zlib

    parts: list[bytes] = []
    left = max_size
    rest: Any = data
    while True:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = stream.decompress(rest, left + 1)
        except zlib.error as error:
            raise DecodeError(f"gzip: {error}") from None
        left -= len(part)
        if left < 0:
            raise _too_large(max_size)
        if not stream.eof:
            raise DecodeError("gzip: the stream is cut short")
        parts.append(part)
        rest = stream.unused_data
        if not rest.startswith(_GZIP_MAGIC):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _gzip(data: Data, level: int | None) -> bytes:
    import zlib

    stream = zlib.compressobj(
        GZIP_LEVEL_DEFAULT if level is None else level, zlib.DEFLATED, _GZIP_WINDOW, _MEMORY_LEVEL
    )
    return stream.compress(data) + stream.flush()


def _lz4_decompress(data: Data, max_size: int) -> bytes:
    from lz4.frame import (  # type: ignore[import-untyped]
        create_decompression_context,
        decompress_chunk,
    )

    if bytes(data[:4]) != _LZ4_MAGIC or len(data) < _LZ4_HEADER_SIZE_MIN:
        raise DecodeError("lz4: no frame")
    if data[4] & _LZ4_DESCRIPTOR_MASK != _LZ4_DESCRIPTOR:
        raise DecodeError(f"lz4: frame descriptor {data[4]:#04x} is not one that Kafka reads")
    context = create_decompression_context()
    rest = memoryview(data)
    parts: list[bytes] = []
    left = max_size
    ended = False
    while not ended:
        try:
            part, read, ended = decompress_chunk(context, rest, max_length=_CHUNK)
        except RuntimeError as error:
            raise DecodeError(f"lz4: {error}") from None
        left -= len(part)
        if left < 0:
            raise _too_large(max_size)
        if not part and not read and not ended:
            raise DecodeError("lz4: the frame is cut short")
        parts.append(part)
        rest = rest[read:]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _lz4_compress(data: Data, level: int | None) -> bytes:
    from lz4.frame import BLOCKSIZE_MAX64KB, compress

    if level is None or level == _LZ4_KAFKA_FAST_LEVEL:
        level = 0
    else:
        level = min(max(level, _LZ4_HC_LEVEL_MIN), _LZ4_HC_LEVEL_MAX)
    out: bytes = compress(
        data,
        compression_level=level,
        block_size=BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return out


def _zstd_decompress(data: Data, max_size: int) -> bytes:
    window, size_max = _measure_zstd(data)
    decompressor = _zstd_decompressor(window)
    parts: list[bytes] = []
    left = max_size
    try:
        if size_max <= max_size:
            rest: Any = data
            while rest:
                frame = decompressor.decompressobj()
                parts.append(frame.decompress(rest))
                if not frame.eof:
                    raise DecodeError("zstd: the frame is cut short")
                rest = frame.unused_data
        else:
            reader = decompressor.stream_reader(data, read_across_frames=True)
            while left >= 0 and (part := reader.read(_CHUNK)):
                parts.append(part)
                left -= len(part)
    except _zstd().ZstdError as error:
        raise DecodeError(f"zstd: {error}") from None
    if left < 0:
        raise _too_large(max_size)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _measure_zstd(data: Data) -> tuple[int, int]:
    """The largest window of the frames in ``data``, and an upper bound of their decompressed size (RFC 8878, 3.1.1).

    Raises DecodeError if the last frame is truncated, which the library does not report.
    """
    window_max = size_max = position = 0
    end = len(data)
    try:
        while position < end:
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
            position += descriptor & 4  # the frame's checksum
    except IndexError:
        position = end + 1
    if position > end:
        raise DecodeError("zstd: the frame is cut short")
    return window_max, size_max


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


def _zstd_compress(data: Data, level: int | None) -> bytes:
    compressor = _zstd().ZstdCompressor(ZSTD_LEVEL_DEFAULT if level is None else level)
    out: bytes = compressor.compress(data)
    return out


def _unsnappy(data: Data, max_size: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_block(data, max_size, max_size)
    parts: list[bytes] = []
    left = max_size
    position = 0
    end = len(data)
    while position < end:
        if bytes(data[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:  # concatenated streams
            position += len(_XERIAL_HEADER)
            if position > end:
                raise DecodeError("snappy: the stream's header is cut short")
            continue
        if end - position < 4:  # too short for the size of another block: Java stops there too
            break
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or size > end - position:
            raise DecodeError(f"snappy: block of {size} bytes where {end - position} are left")
        part = _unsnappy_block(data[position : position + size], left, max_size)
        position += size
        left -= len(part)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


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


def _snappy(data: Data, level: int | None) -> bytes:
    import snappy

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(view[start : start + _XERIAL_BLOCK])
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _plain(data: Data, level: int | None) -> bytes:
    return bytes(data)


_DECODERS: dict[int, Callable[[Data, int], bytes]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _lz4_decompress,
    ZSTD: _zstd_decompress,
}
_ENCODERS: dict[int, Callable[[Data, int | None], bytes]] = {
    NONE: _plain,
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4_compress,
    ZSTD: _zstd_compress,
}
