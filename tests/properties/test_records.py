"""Record batches against random input: round trips, kafka-python as the other implementation, and damage."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import cramjam
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from barnabas.model.errors import ApiError, InvalidRecord
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import HEADER_SIZE, BatchHeader, read_header
from barnabas.protocol.records.builder import build_batch, seal
from barnabas.protocol.records.compression import Codec, compress, decompress
from barnabas.protocol.records.control import control_type, read_marker
from barnabas.protocol.records.records import (
    LONG_BITS,
    Header,
    Record,
    encode_records,
    read_records,
    read_varint,
    varint,
)
from barnabas.storage.log.validation import check, check_plain, is_sound, rewrite
from tests.unit.protocol.records.test_walk import assert_wrong_bytes_are_found, outcome, walked

NOW = 1_700_000_000_000
MIB = 1024 * 1024

codecs = st.sampled_from(Codec)
headers = st.builds(Header, st.text(max_size=8), st.none() | st.binary(max_size=8))
bodies = st.tuples(
    st.integers(-(10**6), 3_600_000),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=200),
    st.lists(headers, max_size=3).map(tuple),
)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    few = draw(st.lists(bodies, min_size=1, max_size=12))
    times = draw(st.sampled_from([1, 1, 1, 10, 30]))
    return [Record(i, *body) for i, body in enumerate(few * times)]


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_varints_round_trip(number: int, behind: bytes) -> None:
    encoded = varint(number)
    assert read_varint(encoded + behind, 0, LONG_BITS) == (number, len(encoded))
    if -(2**31) <= number < 2**31:
        assert read_varint(encoded + behind, 0) == (number, len(encoded))


@given(codecs, record_lists())
def test_batches_round_trip_and_pass_the_check(codec: Codec, records: list[Record]) -> None:
    batch = build_batch(records, base_timestamp=NOW, codec=codec)
    header = check(batch, LogConfig(), NOW)
    payload = decompress(header.codec, batch[HEADER_SIZE:], MIB)
    assert list(read_records(payload, header.record_count)) == records


@given(record_lists(), st.integers(1, 500), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3))
def test_the_walk_finds_what_a_reader_finds(records: list[Record], claimed: int, damage: list[tuple[int, int]]) -> None:
    payload = bytearray(encode_records(records))
    for at, byte in damage:
        payload[at % len(payload)] = byte
    for count in (len(records), claimed):
        assert walked(bytes(payload), count) == outcome(bytes(payload), count)


@given(codecs, st.sampled_from(["uncompressed", "gzip", "snappy", "lz4", "zstd"]), record_lists())
def test_rewriting_changes_the_codec_and_nothing_else(codec: Codec, target: str, records: list[Record]) -> None:
    batch = build_batch(records, base_timestamp=NOW, codec=codec)
    config = LogConfig(compression_type=target)
    result = rewrite(batch, config, NOW)
    header = check(result, config, NOW)
    assert header.codec == (Codec.NONE if target == "uncompressed" else Codec[target.upper()])
    assert list(read_records(decompress(header.codec, result[HEADER_SIZE:], MIB), header.record_count)) == records


@given(codecs, record_lists())
def test_kafka_python_reads_what_we_build(codec: Codec, records: list[Record]) -> None:
    batch = build_batch(
        records, base_offset=17, base_timestamp=NOW, codec=codec, producer_id=3, producer_epoch=1, base_sequence=9
    )
    theirs: Any = DefaultRecordBatch(bytearray(batch))
    assert theirs.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in theirs]
    assert read == [(17 + r.offset_delta, NOW + r.timestamp_delta, r.key, r.value, list(r.headers)) for r in records]


@given(codecs, record_lists())
def test_what_kafka_python_builds_passes_and_is_read(codec: Codec, records: list[Record]) -> None:
    builder: Any = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=False,
        producer_id=3,
        producer_epoch=1,
        base_sequence=9,
        batch_size=10**9,
    )
    for r in records:
        builder.append(
            offset=r.offset_delta,
            timestamp=NOW + r.timestamp_delta,
            key=r.key,
            value=r.value,
            headers=[tuple(h) for h in r.headers],
        )
    batch = bytes(builder.build())
    header = check(batch, LogConfig(), NOW)
    assert header.record_count == len(records)
    assert header.max_timestamp == NOW + max(r.timestamp_delta for r in records)
    read = list(read_records(decompress(header.codec, batch[HEADER_SIZE:], MIB), header.record_count))
    assert [(header.base_timestamp + r.timestamp_delta, *r[2:]) for r in read] == [
        (NOW + r.timestamp_delta, *r[2:]) for r in records
    ]


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """A good batch with some bytes changed, cut or added, and, often, a CRC and length that fit again."""
    codec = draw(codecs)
    batch = bytearray(build_batch(draw(record_lists()), base_timestamp=NOW, codec=codec))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(batch)))
        match draw(st.sampled_from(["change", "cut", "add"])):
            case "change":
                new = draw(st.binary(min_size=1, max_size=8))
                batch[at : at + len(new)] = new
            case "cut":
                del batch[at : at + draw(st.integers(1, 20))]
            case "add":
                batch[at:at] = draw(st.binary(min_size=1, max_size=20))
    if len(batch) >= HEADER_SIZE and draw(st.booleans()):
        header = read_header(batch)._replace(magic=2, base_offset=0)
        return seal(header, batch[HEADER_SIZE:])
    return bytes(batch)


CONFIGS = [
    LogConfig(),
    LogConfig(message_timestamp_type="LogAppendTime"),
    LogConfig(compression_type="lz4", cleanup_policy=frozenset({"compact"}), message_timestamp_before_max_ms=1000),
]


def admit(batch: bytes, config: LogConfig) -> BatchHeader | None:
    """What a leader does with a batch; None when it is refused."""
    try:
        header = check(batch, config, NOW)
        if not is_sound(batch, header, config, NOW):
            header = check(rewrite(batch, config, NOW), config, NOW)
    except ApiError:
        return None
    return header


@given(st.binary(max_size=300), st.sampled_from(CONFIGS))
def test_noise_is_refused(noise: bytes, config: LogConfig) -> None:
    assert admit(noise, config) is None


@given(damaged_batches(), st.sampled_from(CONFIGS))
def test_a_damaged_batch_is_refused_or_sound_for_the_log(batch: bytes, config: LogConfig) -> None:
    header = admit(batch, config)
    if header is not None:
        assert header.record_count == header.last_offset_delta + 1 > 0
        assert header.base_offset == 0


@st.composite
def odd_batches(draw: st.DrawFn) -> bytes:
    """A batch with a good CRC whose header may say anything."""
    batch = build_batch(draw(record_lists()), base_timestamp=NOW, codec=draw(codecs))
    odd = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "base_offset": st.sampled_from([0, 5]),
                "attributes": st.integers(-1, 0x7F),
                "last_offset_delta": st.integers(-2, 3),
                "base_timestamp": st.sampled_from([-2, -1, 0, NOW, NOW + 3_600_001]),
                "max_timestamp": st.sampled_from([-2, -1, 0, NOW, NOW + 3_600_001]),
                "producer_id": st.integers(-2, 2),
                "producer_epoch": st.integers(-2, 2),
                "base_sequence": st.integers(-2, 2),
                "record_count": st.integers(-1, 3),
            },
        )
    )
    return seal(read_header(batch)._replace(**odd), batch[HEADER_SIZE:])


@given(damaged_batches() | odd_batches(), st.sampled_from(CONFIGS))
def test_what_is_stored_can_be_read(batch: bytes, config: LogConfig) -> None:
    try:
        header = check(batch, config, NOW)
        stored = batch if is_sound(batch, header, config, NOW) else bytes(rewrite(batch, config, NOW))
        header = check(stored, config, NOW)
    except ApiError:
        return
    records = list(read_records(decompress(header.codec, stored[HEADER_SIZE:], MIB), header.record_count))
    assert [record.offset_delta for record in records] == list(range(header.record_count))
    if config.message_timestamp_type == "CreateTime":
        assert header.max_timestamp == max(-1, *(header.base_timestamp + each.timestamp_delta for each in records))


@given(damaged_batches() | odd_batches(), st.sampled_from([*CONFIGS, LogConfig(max_message_bytes=200)]))
def test_a_plain_batch_is_one_that_passes_and_is_stored_as_it_is(batch: bytes, config: LogConfig) -> None:
    plain = check_plain(memoryview(batch), config, NOW)
    try:
        header = check(batch, config, NOW)
    except ApiError:
        assert plain is None
        return
    unusual = not config.as_is or header.attributes >= len(Codec) or not is_sound(batch, header, config, NOW)
    assert plain == (None if unusual else header)


@given(damaged_batches())
def test_opening_a_damaged_batch_gives_records_or_an_error_of_ours(batch: bytes) -> None:
    assume(len(batch) >= HEADER_SIZE)
    header = read_header(batch)
    with suppress(ApiError):
        for record in read_records(decompress(header.codec, batch[HEADER_SIZE:], MIB), header.record_count):
            control_type(record.key)
            read_marker(record)


@given(st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]), st.data())
def test_damaged_streams_stay_within_the_limit(codec: Codec, data: st.DataObject) -> None:
    stream = bytearray(compress(codec, data.draw(st.binary(max_size=200)) * data.draw(st.integers(1, 50))))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ApiError):
        assert len(decompress(codec, bytes(stream), 5000)) <= 5000


@given(st.binary(max_size=100), st.integers(1, 2**31 - 1))
@example(b"\xfe\xff\xff\xff\x0f" * 3, 2**31 - 1)
@example(bytes.fromhex("0c 00 00 00 fe ff ff ff 0f"), 1)
def test_reading_noise_allocates_next_to_nothing(noise: bytes, count: int) -> None:
    tracemalloc.start()
    try:
        with suppress(InvalidRecord):
            list(read_records(noise, count))
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 100_000


@given(st.binary(max_size=200))
@example(bytes.fromhex("28b52ffd a000000080 54000010 00"))
@example(b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2 + b"\x00\x00\x00\x05" + b"\xff\xff\xff\xff\x0f")
@example(b"\xff\xff\xff\xff\x0f")
def test_streams_that_claim_gigabytes_are_refused(stream: bytes) -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        try:
            decompress(codec, stream, 1000)
        except ApiError:
            continue
        except cramjam.DecompressionError as error:
            raise AssertionError(f"{codec.name} let an error of its library out") from error


@pytest.mark.parametrize(("count", "step"), [(30, 1), (120, 3)])
def test_one_byte_that_is_wrong_is_found_in_whichever_record_it_is(count: int, step: int) -> None:
    assert_wrong_bytes_are_found(count, step)
