"""Codecs: framings that Kafka's clients send and read, damage, and bombs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import cramjam
import pytest

from barnabas.model.errors import InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from barnabas.protocol.records.compression import MAX_RATIO, Codec, compress, decompress
from tests.support.processes import WITHOUT_HYPOTHESIS

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024 * 1024
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"line %d of a text that compresses\n" % i for i in range(5000))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT])
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)
    assert decompress(codec, compressed, len(data)) == data
    assert decompress(codec, memoryview(compressed), MIB) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_limit_one_byte_short_is_told_apart_from_damage(codec: Codec) -> None:
    with pytest.raises(MessageTooLarge, match=f"over {len(TEXT) - 1} bytes"):
        decompress(codec, compress(codec, TEXT), len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("damage", ["cut", "noise", "nothing"])
def test_damage_is_an_invalid_record(codec: Codec, damage: str) -> None:
    good = compress(codec, TEXT)
    bad = {"cut": good[: len(good) // 2], "noise": b"\x55\xaa" * 50, "nothing": b"\xff"}[damage]
    with pytest.raises((InvalidRecord, MessageTooLarge)):
        decompress(codec, bad, MIB)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("last", [0, 1, 255])
def test_too_little_room_is_told_apart_from_damage_whatever_byte_fills_it(codec: Codec, last: int) -> None:
    stream = compress(codec, bytes((last,)) * 500_000)
    assert len(decompress(codec, stream, 500_000)) == 500_000, "which needs more room than is tried first"
    with pytest.raises(MessageTooLarge):
        decompress(codec, stream, 499_999)
    with pytest.raises(InvalidRecord):
        decompress(codec, stream[: len(stream) // 2], 1 << 20)


def test_levels_are_used() -> None:
    text = TEXT[:60_000]
    assert len(compress(Codec.GZIP, text, 1)) > len(compress(Codec.GZIP, text, 9))
    assert len(compress(Codec.ZSTD, text, -50)) > len(compress(Codec.ZSTD, text, 19))
    assert len(compress(Codec.LZ4, text, 9)) > len(compress(Codec.LZ4, text, 17))
    assert compress(Codec.GZIP, text, -1) == compress(Codec.GZIP, text)


def test_snappy_is_written_in_xerial_chunks_of_32_kb() -> None:
    stream = compress(Codec.SNAPPY, bytes(40_000))
    assert stream.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    first = int.from_bytes(stream[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(stream[20 : 20 + first]) == 32 * 1024


def test_raw_snappy_and_joined_xerial_streams_are_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), MIB) == TEXT
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"one") + compress(Codec.SNAPPY, b"two"), 6) == b"onetwo"


@pytest.mark.parametrize("chunk", [b"\x00\x00", b"\x00\x00\x00\x09abc", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_xerial_chunks_that_do_not_fit_are_refused(chunk: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, TEXT) + chunk, MIB)


def test_lz4_blocks_are_independent_because_kafka_reads_no_others() -> None:
    flags = compress(Codec.LZ4, TEXT)[4]
    assert flags & 0x20


def test_joined_gzip_members_and_zstd_frames_are_read() -> None:
    for codec in (Codec.GZIP, Codec.ZSTD):
        assert decompress(codec, compress(codec, b"one") + compress(codec, b"two"), 6) == b"onetwo"


@pytest.mark.parametrize("number", [5, 6, 7, -1])
def test_unknown_codecs_are_refused(number: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        decompress(number, b"", 10)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_no_stream_beats_the_ratio_that_its_format_allows(codec: Codec) -> None:
    size = 8 * MIB
    assert size / len(compress(codec, bytes(size))) <= MAX_RATIO[codec]


BOMB = (
    WITHOUT_HYPOTHESIS
    + """
import resource, sys
from pathlib import Path
from barnabas.model.errors import MessageTooLarge
from barnabas.protocol.records.compression import decompress
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for codec, path in enumerate(sys.argv[1:], start=1):
    try:
        decompress(codec, Path(path).read_bytes(), 4 * 1024 * 1024)
    except MessageTooLarge:
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(grown // (2**20 if sys.platform == "darwin" else 2**10))
"""
)


def test_a_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    """Memory is looked at after each codec, in one process: it only grows, so the last one speaks for all."""
    bombs = []
    for codec in COMPRESSED:
        bombs.append(tmp_path / codec.name)
        bombs[-1].write_bytes(compress(codec, bytes(32 * MIB)))
    done = subprocess.run([sys.executable, "-c", BOMB, *map(str, bombs)], capture_output=True, check=True)
    grown = [int(line) for line in done.stdout.split()]
    assert len(grown) == len(COMPRESSED)
    assert max(grown) < 16, f"MiB after each of {[codec.name for codec in COMPRESSED]}: {grown}"
