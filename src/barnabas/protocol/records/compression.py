"""The compression codecs of record batches, with bounded output.

What is compressed is the records of a batch, as one stream; the header stays readable. Each codec has the framing that
Kafka's Java client writes and every client reads:

    1 gzip    members, possibly several one after another
    2 snappy  the xerial framing: magic, two versions, then chunks of (length, raw snappy); raw snappy is read as well,
              because librdkafka and others send it
    3 lz4     the frame format, written with independent blocks, since Kafka refuses linked ones
    4 zstd    frames

A few bytes can decompress to gigabytes, so `decompress` takes the limit that its caller can afford and never writes
more than that. cramjam is imported on first use: most brokers never open a batch.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import InvalidRecord, MessageTooLarge, UnsupportedCompressionType

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer


class Codec(IntEnum):
    """A codec's number in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_COUNT: Final = len(Codec)

MAX_RATIO: Final = (1, 1032, 64, 255, 1 << 15)
"""By codec, how many bytes one compressed byte can become at most, as the formats allow (rounded up for snappy and
zstd): deflate 1032, a snappy copy of 64 bytes from 3, an lz4 match byte 255, a zstd RLE block of 128 KiB from 4."""

MAX_UNPACKED: Final = 1 << 30
"""Bytes that a batch of a log may have when it is decompressed. What clients send is held to less."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_INT: Final = struct.Struct(">i")

_LEAST_ROOM: Final = 64 * 1024
_LIKELY_RATIO: Final = 4
_GZIP_DEFAULT_LEVEL: Final = 6
_LZ4_DEFAULT_LEVEL: Final = 9
_LZ4_FASTEST: Final = 1
_LZ4_HIGH: Final = range(3, 13)
_ZSTD_DEFAULT_LEVEL: Final = 3


def codec_of(number: int) -> Codec:
    """The codec with this number; raises UnsupportedCompressionType for 5, 6 and 7."""
    if not 0 <= number < CODEC_COUNT:
        raise UnsupportedCompressionType(f"compression codec {number} is unknown; Kafka defines 0 to {CODEC_COUNT - 1}")
    return Codec(number)


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` at Kafka's `level` for the codec (the codec's default when None; snappy has no levels)."""
    import cramjam

    match codec_of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            gzip_level = _GZIP_DEFAULT_LEVEL if level is None or level < 0 else level
            return bytes(cramjam.gzip.compress(data, level=gzip_level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            frame = cramjam.lz4.Compressor(level=_lz4_level(level), content_checksum=False, block_linked=False)
            frame.compress(bytes(data))
            return bytes(frame.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: int, data: Buffer, limit: int) -> bytes:
    """Decompress `data` to at most `limit` bytes.

    Raises MessageTooLarge when there is more, InvalidRecord when the stream is damaged. No codec but snappy says how
    much will come out, so the output starts at a likely size and is tried again with more: memory stays within a small
    multiple of what comes out, and within `limit` plus the codec's window.
    """
    chosen = codec_of(codec)
    if chosen is Codec.NONE:
        return bytes(data)
    stream = bytes(data)
    if chosen is Codec.SNAPPY:
        return _decompress_snappy(stream, limit)
    room = min(limit, max(_LEAST_ROOM, len(stream) * _LIKELY_RATIO))
    while True:
        unpacked = _decompress_into(chosen, stream, room)
        if unpacked is not None:
            return unpacked
        if room >= limit:
            raise _too_large(chosen, limit)
        room = min(limit, room * _LIKELY_RATIO)


def _decompress_into(codec: Codec, stream: bytes, room: int) -> bytes | None:
    """What comes out, or None if it is more than `room` bytes."""
    import cramjam

    unpackers = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}
    unpack = unpackers[codec].decompress_into
    output = bytearray(room)
    try:
        size = unpack(stream, output)
    except cramjam.DecompressionError as error:
        if _is_filled(output, stream, unpack):
            return None
        raise _damaged(codec, error) from error
    return bytes(memoryview(output)[:size])


def _is_filled(output: bytearray, stream: bytes, unpack: Callable[[bytes, bytearray], int]) -> bool:
    """Whether what comes out reaches the end of `output`, of zeros before `unpack` failed.

    cramjam has one class of error for a damaged stream and for too little room. What fits is written all the same, so
    the last byte tells. If it is zero, it was perhaps written: then a second run overwrites a one, too.
    """
    import cramjam

    if not output or output[-1]:
        return True
    output[-1] = 1
    with suppress(cramjam.DecompressionError):
        unpack(stream, output)
    return not output.endswith(b"\x01")


def _lz4_level(level: int | None) -> int:
    """Kafka's level 9 stands for the fast compressor, every other for the high one."""
    if level is None or level == _LZ4_DEFAULT_LEVEL:
        return _LZ4_FASTEST
    return min(max(level, _LZ4_HIGH.start), _LZ4_HIGH.stop - 1)


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        chunk = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + _XERIAL_BLOCK])))
        out += _INT.pack(len(chunk))
        out += chunk
    return bytes(out)


def _decompress_snappy(stream: bytes, limit: int) -> bytes:
    if not stream.startswith(_XERIAL_MAGIC):
        return _decompress_raw(stream, 0, limit)
    out = bytearray()
    position = 0
    while position < len(stream):
        if stream.startswith(_XERIAL_MAGIC, position):  # streams may follow each other
            position += len(_XERIAL_HEADER)
            continue
        start = position + _INT.size
        if start > len(stream):
            raise InvalidRecord("the snappy stream ends inside a chunk's length")
        (size,) = _INT.unpack_from(stream, position)
        position = start + size
        if size <= 0 or position > len(stream):
            raise InvalidRecord(f"a snappy chunk claims {size} bytes where {len(stream) - start} are left")
        out += _decompress_raw(stream[start:position], len(out), limit)
    return bytes(out)


def _decompress_raw(chunk: bytes, before: int, limit: int) -> bytes:
    """Decompress one chunk, with `before` bytes of the limit used up already."""
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(chunk)
        if before + size > limit:
            raise _too_large(Codec.SNAPPY, limit)
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(chunk, output)
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, error) from error
    return bytes(memoryview(output)[:written])


def _damaged(codec: Codec, error: Exception) -> InvalidRecord:
    return InvalidRecord(f"the records do not decompress with {codec.name.lower()}: {error}")


def _too_large(codec: Codec, limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the {codec.name.lower()} records decompress to over {limit} bytes; send smaller batches")
