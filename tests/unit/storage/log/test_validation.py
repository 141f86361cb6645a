"""What leaders refuse. Unless said otherwise, the codes are what Apache Kafka 4.3.0 answered to the same bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from barnabas.model.errors import ApiError, ErrorCode, InvalidRecord, InvalidTimestamp, MessageTooLarge
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import HEADER, HEADER_SIZE, read_header
from barnabas.protocol.records.builder import build_batch, seal
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import Codec, compress, decompress
from barnabas.protocol.records.records import Record, encode_records, read_records, varint
from barnabas.storage.log.validation import (
    DECOMPRESSED_LIMIT,
    Allowance,
    check,
    check_plain,
    is_sound,
    needs_rewrite,
    rewrite,
)

NOW = 1_700_000_000_000
HOUR = 3_600_000
RECORDS = [Record(i, i, b"key", b"value %d" % i) for i in range(5)]
GOOD = build_batch(RECORDS, base_timestamp=NOW)
PAYLOAD = GOOD[HEADER_SIZE:]
LEGACY = struct.pack(">qi", 0, 19) + struct.pack(">IbbiI", 0, 0, 0, -1, 5) + b"hello"


def patched(position: int, data: bytes) -> bytes:
    """GOOD with some bytes replaced and the CRC left alone."""
    return GOOD[:position] + data + GOOD[position + len(data) :]


def with_header(payload: bytes = PAYLOAD, **fields: int) -> bytes:
    """GOOD with other header fields and a right CRC, as a client that lies would send it."""
    return seal(read_header(GOOD)._replace(**fields), payload)


def compressed(codec: Codec, **fields: int) -> bytes:
    return seal(read_header(GOOD)._replace(attributes=codec, **fields), compress(codec, PAYLOAD))


def admitted(batch: bytes, config: LogConfig = LogConfig(), now_ms: int = NOW) -> bytes:  # noqa: B008  # it is frozen
    """The batch as a leader stores it; raises ApiError."""
    header = check(batch, config, now_ms)
    if is_sound(batch, header, config, now_ms):
        return batch
    result = bytes(rewrite(batch, config, now_ms))
    check(result, config, now_ms)
    return result


NOT_ONE_BATCH = {
    "nothing": (b"", ErrorCode.invalid_record),
    "10 bytes": (GOOD[:10], ErrorCode.invalid_record),
    "16 bytes": (GOOD[:16], ErrorCode.invalid_record),
    "17 bytes": (GOOD[:17], ErrorCode.invalid_record),
    "40 bytes": (GOOD[:40], ErrorCode.invalid_record),
    "all but one byte": (GOOD[:-1], ErrorCode.invalid_record),
    "two batches": (GOOD + GOOD, ErrorCode.invalid_record),
    "a message of magic 0": (LEGACY, ErrorCode.invalid_record),
    "magic 0": (patched(16, b"\x00"), ErrorCode.invalid_record),
    "magic 1": (patched(16, b"\x01"), ErrorCode.invalid_record),
    "magic 3": (patched(16, b"\x03"), ErrorCode.corrupt_message),
    "magic -1": (patched(16, b"\xff"), ErrorCode.corrupt_message),
    "length 0": (patched(8, bytes(4)), ErrorCode.corrupt_message),
    "length -1": (patched(8, b"\xff" * 4), ErrorCode.corrupt_message),
    "length below the header": (patched(8, struct.pack(">i", 20)), ErrorCode.corrupt_message),
    "length one short of the header": (patched(8, struct.pack(">i", 48)), ErrorCode.corrupt_message),
    "length one too long": (patched(8, struct.pack(">i", len(GOOD) - 11)), ErrorCode.invalid_record),
    # Kafka cuts less than 12 bytes off in silence, and finds 30 zeros corrupt.
    "bytes behind": (GOOD + b"abc", ErrorCode.invalid_record),
    # Kafka overflows, and answers UNKNOWN_SERVER_ERROR.
    "length 2**31 - 1": (patched(8, b"\x7f" + b"\xff" * 3), ErrorCode.invalid_record),
}

LIES = {
    "crc": (patched(17, bytes(4)), ErrorCode.corrupt_message),
    "a flipped bit": (patched(100, bytes((GOOD[100] ^ 1,))), ErrorCode.corrupt_message),
    "base offset": (with_header(base_offset=5), ErrorCode.invalid_record),
    "no records": (with_header(record_count=0), ErrorCode.invalid_record),
    "no records, no offsets": (with_header(record_count=0, last_offset_delta=-1), ErrorCode.invalid_record),
    "negative count": (with_header(record_count=-1), ErrorCode.invalid_record),
    "count without offsets": (with_header(record_count=6), ErrorCode.invalid_record),
    "one too many": (with_header(record_count=6, last_offset_delta=5), ErrorCode.invalid_record),
    "one too few": (with_header(record_count=4, last_offset_delta=3), ErrorCode.invalid_record),
    "all numbers": (with_header(record_count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.invalid_record),
    "payload too long": (with_header(PAYLOAD + b"xx"), ErrorCode.invalid_record),
    "payload too short": (with_header(PAYLOAD[:-2]), ErrorCode.invalid_record),
    "no payload": (with_header(b""), ErrorCode.invalid_record),
    "negative record length": (with_header(b"\x01" + PAYLOAD[1:]), ErrorCode.invalid_record),
    "control": (with_header(attributes=0x20), ErrorCode.invalid_record),
    "append time without a time": (with_header(attributes=0x08, max_timestamp=-1), ErrorCode.invalid_timestamp),
    "producer without sequence": (with_header(producer_id=7, producer_epoch=0), ErrorCode.invalid_record),
    "future": (
        with_header(base_timestamp=NOW + 2 * HOUR, max_timestamp=NOW + 2 * HOUR + 4),
        ErrorCode.invalid_timestamp,
    ),
    "too large": (build_batch([Record(0, 0, None, bytes(2**20))]), ErrorCode.message_too_large),
    # Kafka clears the bit, as long as the time is a possible one.
    "append time": (with_header(attributes=0x08), ErrorCode.invalid_timestamp),
    # Kafka answers UNKNOWN_SERVER_ERROR.
    "codec 5": (with_header(attributes=5), ErrorCode.unsupported_compression_type),
    "codec 7": (with_header(attributes=7), ErrorCode.unsupported_compression_type),
    # Kafka finds no permission for a missing transactional id.
    "transaction without producer": (with_header(attributes=0x10), ErrorCode.invalid_record),
    # Kafka stores these two; no producer has them.
    "producer without epoch": (with_header(producer_id=7, base_sequence=0), ErrorCode.invalid_record),
    "producer id below -1": (with_header(producer_id=-5), ErrorCode.invalid_record),
    # Kafka walks the records; a header alone shows that these cannot be true.
    "gzip, all numbers": (
        compressed(Codec.GZIP, record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        ErrorCode.invalid_record,
    ),
}

TAKEN = {
    "good": GOOD,
    "no timestamps": with_header(base_timestamp=-1, max_timestamp=-1),
    "leader epoch set": with_header(leader_epoch=9),
    "idempotent": with_header(producer_id=7, producer_epoch=0, base_sequence=3),
    "transactional": with_header(attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=3),
    "sequence without producer, as sarama sends it": with_header(base_sequence=0),
    "unused attributes": with_header(attributes=0x180),
    "offset deltas all the same": with_header(encode_records([Record(7, 0, b"k", b"v")] * 5)),
    "a little in the future": with_header(base_timestamp=NOW + HOUR - 4, max_timestamp=NOW + HOUR),
    **{codec.name: compressed(codec) for codec in Codec},
}


PUT_RIGHT = {"no timestamps", "offset deltas all the same"}
"""Of these, Kafka too sets the max timestamp; it stores the offset deltas as they are."""

POISON = {
    "noise of the right length": varint(20) + b"\xff" * 20,
    "a key beyond the record": varint(20) + b"\0\0\0" + varint(2**31 - 1) + bytes(12),
    "a value beyond the record": varint(20) + b"\0\0\0\x01" + varint(100) + bytes(15),
    "a value that ends before the record": varint(20) + b"\0\0\0\x01\x02" + bytes(15),
    "headers that are not there": varint(6) + b"\0\0\0\x01\x01\x02",
    "a key of less than no length": varint(6) + b"\0\0\0\x05\x01\0",
    "a value of less than no length": varint(6) + b"\0\0\0\x01\x05\0",
    "a header's value of less than no length": varint(9) + b"\0\0\0\x01\x01\x02\x02h\x03",
    "a record beyond the batch": varint(200) + bytes(20),
    "a record of negative length": varint(-20) + bytes(20),
    "bytes behind the record": varint(6) + b"\0\0\0\x01\x01\0" + b"more",
}


@pytest.mark.parametrize("case", NOT_ONE_BATCH)
def test_bytes_that_are_not_one_batch_are_refused(case: str) -> None:
    batch, code = NOT_ONE_BATCH[case]
    for data in (batch, memoryview(batch)):
        with pytest.raises(ApiError) as caught:
            check(data, LogConfig(), NOW)
        assert caught.value.code == code


@pytest.mark.parametrize("case", LIES)
def test_a_batch_that_lies_is_refused(case: str) -> None:
    batch, code = LIES[case]
    with pytest.raises(ApiError) as caught:
        admitted(batch)
    assert caught.value.code == code
    assert check_plain(memoryview(batch), LogConfig(), NOW) is None


@pytest.mark.parametrize("case", ["all numbers", "gzip, all numbers"])
def test_more_records_than_the_bytes_can_hold_are_refused_before_anything_is_opened(case: str) -> None:
    with pytest.raises(InvalidRecord, match="does not hold the 2147483647 records"):
        check(LIES[case][0], LogConfig(), NOW)


@pytest.mark.parametrize("case", TAKEN)
def test_what_kafka_takes_is_taken(case: str) -> None:
    batch = TAKEN[case]
    assert check(batch, LogConfig(), NOW) == read_header(batch)
    assert check(memoryview(batch), LogConfig(), NOW) == read_header(batch)
    stored = admitted(batch)
    if case not in PUT_RIGHT:
        assert stored == batch


@pytest.mark.parametrize("case", POISON)
def test_records_that_nobody_can_read_are_refused(case: str) -> None:
    for codec in Codec:
        batch = seal(
            read_header(GOOD)._replace(attributes=codec, record_count=1, last_offset_delta=0, max_timestamp=NOW),
            compress(codec, POISON[case]),
        )
        assert check_plain(memoryview(batch), LogConfig(), NOW) is None
        with pytest.raises(InvalidRecord):
            admitted(batch)


def test_a_batch_with_many_records_is_left_to_a_thread() -> None:
    many = build_batch([Record(i, 0, None, b"") for i in range(3000)], base_timestamp=NOW)
    assert not is_sound(many, check(many, LogConfig(), NOW), LogConfig(), NOW)
    assert rewrite(many, LogConfig(), NOW) == many


def test_what_decompresses_to_much_is_left_to_a_thread() -> None:
    large = build_batch([Record(0, 0, None, bytes(500_000))], base_timestamp=NOW, codec=Codec.ZSTD)
    assert not is_sound(large, check(large, LogConfig(), NOW), LogConfig(), NOW)
    assert rewrite(large, LogConfig(), NOW) == large


def test_others_may_run_while_many_records_are_gone_over() -> None:
    many = build_batch([Record(i, 0, b"k", b"") for i in range(7000)], base_timestamp=NOW)
    yields: list[None] = []
    rewrite(many, LogConfig(), NOW, yield_interpreter=lambda: yields.append(None))
    assert len(yields) == 3


def test_zstd_needs_produce_v7() -> None:
    batch = compressed(Codec.ZSTD)
    check(batch, LogConfig(), NOW, 7)
    with pytest.raises(ApiError) as caught:
        check(batch, LogConfig(), NOW, 6)
    assert caught.value.code == ErrorCode.unsupported_compression_type


def test_the_largest_batch_has_max_message_bytes() -> None:
    check(GOOD, LogConfig(max_message_bytes=len(GOOD)), NOW)
    with pytest.raises(MessageTooLarge, match=rf"{len(GOOD)} bytes, max.message.bytes is {len(GOOD) - 1}"):
        check(GOOD, LogConfig(max_message_bytes=len(GOOD) - 1), NOW)


@pytest.mark.parametrize("count", [1, 9, 70, 1000])
def test_a_count_that_lies_is_found_however_many_records_there_are(count: int) -> None:
    records = [Record(i, i, None, b"some value of a usual size") for i in range(count)]
    batch = build_batch(records, base_timestamp=NOW)
    assert admitted(batch) == batch
    for claimed in (count - 1, count + 1, count * 2):
        lie = read_header(batch)._replace(record_count=claimed, last_offset_delta=claimed - 1)
        with pytest.raises(InvalidRecord):
            admitted(seal(lie, batch[HEADER_SIZE:]))


@pytest.mark.parametrize("case", TAKEN)
def test_append_time_goes_into_the_header_and_its_crc(case: str) -> None:
    batch = TAKEN[case]
    config = LogConfig(message_timestamp_type="LogAppendTime")
    header = check(batch, config, NOW + 7)
    assert header.max_timestamp == NOW + 7
    assert header.attributes == read_header(batch).attributes | 0x08
    stored = HEADER.pack(*header) + batch[HEADER_SIZE:]
    assert crc32c(stored[21:]) == header.crc


def test_append_time_does_not_care_for_the_clients_time() -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=0)
    future = with_header(base_timestamp=NOW + 2 * HOUR, max_timestamp=NOW + 2 * HOUR + 4)
    assert not needs_rewrite(check(future, config, NOW), config)


REASONS_TO_OPEN: list[dict[str, Any]] = [
    {"compression_type": "zstd"},
    {"cleanup_policy": frozenset({"compact"})},
    {"message_timestamp_before_max_ms": HOUR},
]


def test_batches_stay_closed_unless_a_setting_asks_for_it() -> None:
    header = read_header(GOOD)
    assert not needs_rewrite(header, LogConfig())
    assert not needs_rewrite(header, LogConfig(compression_type="uncompressed"))
    assert not needs_rewrite(read_header(compressed(Codec.LZ4)), LogConfig(compression_type="lz4"))
    for settings in REASONS_TO_OPEN:
        assert needs_rewrite(header, LogConfig(**settings))


@pytest.mark.parametrize("max_timestamp", [0, -1, -7, NOW, NOW + 3, NOW + 5, NOW + HOUR])
def test_a_max_timestamp_that_is_not_the_records_own_is_put_right(max_timestamp: int) -> None:
    batch = with_header(max_timestamp=max_timestamp)
    assert not is_sound(batch, check(batch, LogConfig(), NOW), LogConfig(), NOW)
    assert rewrite(batch, LogConfig(), NOW) == GOOD


def test_a_timestamp_that_does_not_fit_64_bits_is_refused() -> None:
    config = LogConfig(message_timestamp_after_max_ms=2**63 - 1)
    payload = encode_records([Record(0, 2**63 - 1, None, b"v")])
    batch = with_header(payload, record_count=1, last_offset_delta=0)
    with pytest.raises(InvalidTimestamp, match="64 bits"):
        admitted(batch, config)


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
def test_batches_are_compressed_anew(source: Codec, target: str) -> None:
    batch = compressed(source, producer_id=7, producer_epoch=0, base_sequence=3)
    config = LogConfig(compression_type=target)
    result = rewrite(batch, config, NOW)
    header = check(result, config, NOW)
    assert not needs_rewrite(header, config)
    wanted = {"uncompressed": Codec.NONE, "producer": source}
    assert header.codec == (wanted[target] if target in wanted else Codec[target.upper()])
    unchanged = read_header(batch)._replace(attributes=0, batch_length=0, crc=0)
    assert header._replace(attributes=0, batch_length=0, crc=0) == unchanged
    assert decompress(header.codec, result[HEADER_SIZE:], DECOMPRESSED_LIMIT) == PAYLOAD
    if target == "producer":
        assert result == batch


def test_levels_of_the_topic_are_used() -> None:
    values = [b"".join(b"%d-%d," % (i, j * j) for j in range(300)) for i in range(20)]
    batch = build_batch([Record(i, 0, None, value) for i, value in enumerate(values)], base_timestamp=NOW)
    fast = rewrite(batch, LogConfig(compression_type="gzip", compression_gzip_level=1), NOW)
    best = rewrite(batch, LogConfig(compression_type="gzip", compression_gzip_level=9), NOW)
    assert len(best) < len(fast) < len(batch)


def test_offset_deltas_are_put_right() -> None:
    for codec in (Codec.NONE, Codec.LZ4):
        wrong = build_batch([Record(7, 0, b"k", b"v")] * 5, base_timestamp=NOW, codec=codec)
        batch = seal(read_header(wrong)._replace(last_offset_delta=4), memoryview(wrong)[HEADER_SIZE:])
        assert check_plain(memoryview(batch), LogConfig(), NOW) is None
        payload = decompress(codec, admitted(batch)[HEADER_SIZE:], 1000)
        assert [record.offset_delta for record in read_records(payload, 5)] == [0, 1, 2, 3, 4]


def test_compacted_topics_need_keys() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert rewrite(GOOD, config, NOW) == GOOD
    records = [Record(i, 0, None if i % 10 == 3 else b"k", b"v") for i in range(100)]
    with pytest.raises(InvalidRecord, match="record 3: the record has no key") as caught:
        rewrite(build_batch(records, base_timestamp=NOW), config, NOW)
    assert [record.batch_index for record in caught.value.records] == list(range(3, 100, 10))


def test_records_older_than_the_topic_allows_are_refused() -> None:
    config = LogConfig(message_timestamp_before_max_ms=HOUR)
    assert rewrite(GOOD, config, NOW + HOUR) == GOOD
    mixed = build_batch([Record(0, 0, None, b"new"), Record(1, -2 * HOUR, None, b"old")], base_timestamp=NOW)
    check(mixed, config, NOW)
    with pytest.raises(InvalidTimestamp, match=r"record 1: .* lies before") as caught:
        rewrite(mixed, config, NOW)
    assert [record.batch_index for record in caught.value.records] == [1]
    none = build_batch([Record(0, 0, None, b"no time")], base_timestamp=-1)
    assert rewrite(none, config, NOW) == none


def test_a_record_later_than_its_header_says_is_found_when_opened() -> None:
    late = build_batch([Record(0, 2 * HOUR, None, b"v")], base_timestamp=NOW)
    lie = seal(read_header(late)._replace(max_timestamp=NOW), late[HEADER_SIZE:])
    with pytest.raises(InvalidTimestamp, match="record 0"):
        admitted(lie)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("claimed", [4, 6])
def test_a_count_that_lies_about_compressed_records_is_found_when_opened(codec: Codec, claimed: int) -> None:
    with pytest.raises(InvalidRecord):
        rewrite(compressed(codec, record_count=claimed, last_offset_delta=claimed - 1), LogConfig(), NOW)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_that_do_not_decompress_are_refused_when_opened(codec: Codec) -> None:
    batch = with_header(attributes=codec)
    check(batch, LogConfig(), NOW)
    with pytest.raises(ApiError):
        rewrite(batch, LogConfig(), NOW)


def test_a_header_without_key_is_refused_when_opened() -> None:
    record = bytes.fromhex("00 00 00 01 01 02 01 01")
    batch = with_header(varint(len(record)) + record, record_count=1, last_offset_delta=0)
    with pytest.raises(InvalidRecord, match="no key"):
        rewrite(batch, LogConfig(), NOW)


def test_a_bomb_is_refused_when_opened() -> None:
    size = DECOMPRESSED_LIMIT + 1_000_000
    bomb = build_batch([Record(0, 0, None, bytes(size))], base_timestamp=NOW, codec=Codec.ZSTD)
    check(bomb, LogConfig(), NOW)
    with pytest.raises(MessageTooLarge, match="send smaller batches"):
        rewrite(bomb, LogConfig(), NOW)


def test_the_batches_of_a_request_have_one_allowance() -> None:
    size = DECOMPRESSED_LIMIT // 2
    half = build_batch([Record(0, 0, None, bytes(size))], base_timestamp=NOW, codec=Codec.ZSTD)
    allowance = Allowance(0)
    assert rewrite(half, LogConfig(), NOW, allowance) == half
    with pytest.raises(MessageTooLarge):
        rewrite(half, LogConfig(), NOW, allowance)


@pytest.mark.parametrize("max_timestamp", [NOW - 1, NOW])
def test_a_million_records_that_are_all_the_same_are_refused_at_once(max_timestamp: int) -> None:
    count = 1_000_000
    payload = compress(Codec.ZSTD, bytes.fromhex("0c 00 00 00 01 01 00") * count)
    bomb = with_header(
        payload, attributes=Codec.ZSTD, record_count=count, last_offset_delta=count - 1, max_timestamp=max_timestamp
    )
    for config in (LogConfig(), LogConfig(compression_type="gzip")):
        with pytest.raises(InvalidRecord, match="offset deltas"):
            rewrite(bomb, config, NOW)


def test_a_batch_that_grows_too_large_is_refused() -> None:
    batch = build_batch([Record(0, 0, None, bytes(5000))], base_timestamp=NOW, codec=Codec.ZSTD)
    with pytest.raises(MessageTooLarge):
        rewrite(batch, LogConfig(max_message_bytes=1000, compression_type="uncompressed"), NOW)
