"""What a partition's leader checks of a record set that a client sent, before it is given offsets.

What is let pass is sound for the log and for whoever reads it. The header's length is the bytes present and its CRC
holds; its record count equals the range of offsets; and the records are records, as many as the header says, numbered
from 0 on, with the header's max timestamp as their largest. Kafka checks the same (LogValidator), with two exceptions:
offset deltas of uncompressed records, which it stores as they are, and the lengths of compressed ones.

`check` looks at headers. Records are gone over by `protocol/records/walk`, which costs more than everything else here
when there are many of them (docs/adr/0007), so there are two ways:

- `is_sound` goes over a batch on the event loop if that is quickly done: few records, and little to decompress. Most
  batches are stored after that as they came (`check_plain` is both checks in one, for the common case).
- `rewrite` opens what is left, in a thread: batches with many records, those that a topic's settings want compressed
  anew or looked at record by record, and those with something wrong. What Kafka puts right is put right (offset
  deltas, the max timestamp), and everything else is refused, with the records named that are to blame.

A few hundred bytes can decompress to gigabytes, or claim millions of records. The bytes that the batches of a request
decompress to are bounded (`Allowance`), the count of records is held against them before anything loops, and a batch
of many records is not numbered anew: no client that is maintained sends one with wrong numbers.

Codes are those of Kafka, which tells clients whether to try again: CORRUPT_MESSAGE (try again) for damage on the way,
INVALID_RECORD (do not) for a batch that was built wrongly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from barnabas.model.errors import (
    ApiError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordError,
    UnsupportedCompressionType,
)
from barnabas.model.log_config import NEVER
from barnabas.protocol.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    HeaderFields,
)
from barnabas.protocol.records.builder import checksum, seal
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import CODEC_COUNT, MAX_RATIO, Codec, compress, decompress
from barnabas.protocol.records.records import MIN_RECORD_SIZE, encode_records, read_records
from barnabas.protocol.records.walk import Course, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.model.log_config import LogConfig
    from barnabas.protocol.records.records import Record

ZSTD_SINCE: Final = 7
"""The first version of Produce whose batches may be compressed with zstd."""
DECOMPRESSED_LIMIT: Final = 32 * 1024 * 1024
"""What the batches of a request may decompress to, however small they are; large ones may in proportion."""
_DECOMPRESSED_FACTOR: Final = 32
_AT_ONCE_RECORDS: Final = 1000
"""Up to so many records are gone over on the event loop: half a millisecond at most."""
_AT_ONCE_COMPRESSED: Final = 16 * 1024
_AT_ONCE_BYTES: Final = 128 * 1024
"""Batches up to this size are decompressed on the event loop, if not more than this comes out."""
_RENUMBERED: Final = 10_000
"""The most records that are given other offset deltas."""
_MOST_ERRORS: Final = 10_000
"""Records that are named in the answer; a batch may have a hundred times as many."""
_LAST_TIMESTAMP: Final = (1 << 63) - 1
_STRIDE: Final = 2000
"""After so many records a thread lets others run."""
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_ZSTD: Final = int(Codec.ZSTD)
_MAX_LEGACY_MAGIC: Final = 1
_MIN_LEGACY_LENGTH: Final = 14
_MAGIC_AT: Final = 16


def check(batch: bytes | memoryview, config: LogConfig, now_ms: int, produce_version: int = ZSTD_SINCE) -> BatchHeader:
    """Check the header of a batch, for one partition of a Produce request, and return it as it is to be stored.

    With message.timestamp.type=LogAppendTime the header returned carries the append time and a new CRC; it is then
    written in place of the batch's own. Otherwise only the first 16 bytes change, when the batch gets its place.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise _not_one_batch(batch)
    header = BatchHeader._make(HEADER.unpack_from(batch))
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        _,
        _,
        producer,
        epoch,
        sequence,
        count,
    ) = header
    if magic != MAGIC or length != size - LOG_OVERHEAD:
        raise _not_one_batch(batch)
    codec = attributes & CODEC_MASK
    if codec == _ZSTD and produce_version < ZSTD_SINCE:
        raise UnsupportedCompressionType(f"zstd needs Produce v{ZSTD_SINCE} or newer, this is v{produce_version}")
    if base_offset:
        raise InvalidRecord(f"the batch's base offset should be 0, but it is {base_offset}")
    if size > config.max_message_bytes:
        raise _too_large(size, config)
    if crc32c(memoryview(batch)[CRC_START:]) != crc:
        raise CorruptMessage(f"the batch's CRC-32C does not match its {size} bytes; it was damaged on the way")

    if count <= 0 or last_delta != count - 1:
        raise InvalidRecord(f"the batch claims {count} records, but its offsets end at {last_delta}")
    if attributes & CONTROL:
        raise InvalidRecord("clients may not write control batches")
    if attributes & LOG_APPEND_TIME:
        raise _reserved_timestamp_type(count)
    if producer != NO_PRODUCER_ID:
        if producer < 0 or epoch < 0 or sequence < 0:
            raise InvalidRecord(f"producer id {producer}, epoch {epoch} and sequence {sequence} do not go together")
    elif attributes & TRANSACTIONAL:
        raise InvalidRecord("the batch is transactional, but has no producer id")
    if codec >= CODEC_COUNT:
        raise UnsupportedCompressionType(f"compression codec {codec} is unknown")
    if count * MIN_RECORD_SIZE > (size - HEADER_SIZE) * MAX_RATIO[codec]:
        raise InvalidRecord(f"the batch of {size} bytes does not hold the {count} records that it claims")
    return header if config.message_timestamp_type == "CreateTime" else stamp(batch, header, now_ms)


def check_plain(batch: memoryview, config: LogConfig, now_ms: int) -> HeaderFields | None:
    """The header of a batch that `check` and `is_sound` let pass; None if anything is unusual.

    Nearly every batch is of this kind. What is not is to be looked at by `check` and `rewrite`, which say what is wrong
    with it. For Produce from ZSTD_SINCE on.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        return None
    fields: HeaderFields = HEADER.unpack_from(batch)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        base_time,
        max_time,
        producer,
        epoch,
        sequence,
        count,
    ) = fields
    if (
        magic != MAGIC
        or length != size - LOG_OVERHEAD
        or base_offset
        or attributes >= CODEC_COUNT
        or attributes < 0
        or last_delta < 0
        or last_delta != count - 1
        or max_time > now_ms + config.message_timestamp_after_max_ms
        or size > config.max_message_bytes
        or not config.as_is
        or (producer != NO_PRODUCER_ID and (producer < 0 or epoch < 0 or sequence < 0))
    ):
        return None
    if crc32c(batch[CRC_START:]) != crc or not _agrees(batch, attributes, count, max_time - base_time, max_time):
        return None
    return fields


def is_sound(batch: bytes | memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether a batch with this header, which `check` gave, can be stored as it is; False if `rewrite` has to say.

    That is the case if something is wrong with it, and also if it would take too long to find out here.
    """
    if needs_rewrite(header, config):
        return False
    attributes, max_time = header.attributes, header.max_timestamp
    if config.message_timestamp_type != "CreateTime":
        return _agrees(batch, attributes & CODEC_MASK, header.record_count, None, max_time)
    if max_time > now_ms + config.message_timestamp_after_max_ms:
        return False
    return _agrees(batch, header.codec, header.record_count, max_time - header.base_timestamp, max_time)


def _agrees(batch: bytes | memoryview, codec: int, count: int, latest: int | None, max_time: int) -> bool:
    """Whether the records are what the header says, as far as that can be told at once.

    `latest` is the timestamp delta that belongs to the header's max timestamp; None if timestamps do not matter.
    """
    if count > _AT_ONCE_RECORDS:
        return False
    try:
        if codec:
            if len(batch) > _AT_ONCE_COMPRESSED:
                return False
            numbered, largest = walk(decompress(codec, batch[HEADER_SIZE:], _AT_ONCE_BYTES), 0, count)
        else:
            numbered, largest = walk(batch, HEADER_SIZE, count)
    except ApiError:
        return False
    return numbered and (latest is None or largest == latest or (max_time == NO_TIMESTAMP and largest < latest))


def stamp(batch: bytes | memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """The header with `now_ms` as the time of all its records (LogAppendTime), and the CRC that goes with it."""
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    return stamped._replace(crc=checksum(stamped, memoryview(batch)[HEADER_SIZE:]))


def needs_rewrite(header: BatchHeader, config: LogConfig) -> bool:
    """Whether a topic's settings want the batch opened: to compress it anew, or to look at its records."""
    if config.compression_type != "producer" and _CODECS[config.compression_type] != header.attributes & CODEC_MASK:
        return True
    if config.compact:
        return True
    return config.message_timestamp_type == "CreateTime" and config.message_timestamp_before_max_ms != NEVER


class Allowance:
    """How many bytes the batches of one request may still decompress to."""

    __slots__ = ("left",)

    def __init__(self, request_size: int) -> None:
        self.left = DECOMPRESSED_LIMIT + _DECOMPRESSED_FACTOR * request_size

    def take(self, size: int) -> None:
        """Use up some of it."""
        self.left -= size


def rewrite(
    batch: bytes | memoryview,
    config: LogConfig,
    now_ms: int,
    allowance: Allowance | None = None,
    yield_interpreter: Callable[[], None] = lambda: None,
) -> bytes | memoryview:
    """Open a batch that `check` let pass, check its records, and return it as it is to be stored. Runs in a thread.

    Every record must be one; timestamps must lie within the topic's limits, and every record of a compacted topic needs
    a key. Offset deltas that do not follow each other are put right, as Kafka does; the max timestamp becomes the
    records' own, and the codec that of compression.type. The result passes `check` again; LogAppendTime is left to it.
    `yield_interpreter` is called now and then while records are gone over.
    """
    header = BatchHeader._make(HEADER.unpack_from(batch))
    allowance = allowance or Allowance(len(batch))
    payload = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], allowance.left)
    allowance.take(len(payload))
    course = Course(payload, 0, header.record_count)
    while course.go_on(_STRIDE):
        if not course.numbered and header.record_count > _RENUMBERED:
            raise InvalidRecord(f"the offset deltas of the batch's {header.record_count} records are not 0, 1, 2 ...")
        yield_interpreter()
    numbered, largest = course.finish()
    max_time = max(NO_TIMESTAMP, header.base_timestamp + largest)
    if max_time > _LAST_TIMESTAMP:
        raise InvalidTimestamp(f"the timestamp {max_time} of a record does not fit 64 bits")
    if _looks_at_records(header, config, max_time, now_ms):
        _check_records(payload, header, config, now_ms, yield_interpreter)
    if not numbered:
        records = enumerate(read_records(payload, header.record_count))
        payload = encode_records(record._replace(offset_delta=index) for index, record in records)
    codec = _CODECS.get(config.compression_type, header.codec)
    if numbered and codec == header.codec:
        if max_time == header.max_timestamp:
            return batch
        stored: bytes | memoryview = memoryview(batch)[HEADER_SIZE:]
    else:
        stored = compress(codec, payload, _level(codec, config))
    attributes = header.attributes & ~CODEC_MASK | codec
    result = seal(header._replace(attributes=attributes, max_timestamp=max_time), stored)
    if len(result) > config.max_message_bytes:
        raise _too_large(len(result), config)
    return result


def _looks_at_records(header: BatchHeader, config: LogConfig, max_time: int, now_ms: int) -> bool:
    """Whether records must be looked at one by one, because of the topic's settings or to name those to blame."""
    if config.compact:
        return True
    return config.message_timestamp_type == "CreateTime" and (
        config.message_timestamp_before_max_ms != NEVER or max_time > now_ms + config.message_timestamp_after_max_ms
    )


def _check_records(
    payload: bytes, header: BatchHeader, config: LogConfig, now_ms: int, yield_interpreter: Callable[[], None]
) -> None:
    """Check records that are well formed against the topic's rules; raises an error that names those that break one."""
    refused: list[RecordError] = []
    bad_times = False
    for index, record in enumerate(read_records(payload, header.record_count)):
        if not index % _STRIDE:
            yield_interpreter()
        if record.key is None and config.compact:
            refused.append(RecordError(index, "the record has no key, which a compacted topic needs"))
        elif (reason := _wrong_time(record, header, config, now_ms)) is not None:
            refused.append(RecordError(index, reason))
            bad_times = True
        if len(refused) >= _MOST_ERRORS:
            break
    if refused:
        _refuse(refused, bad_times)


def _wrong_time(record: Record, header: BatchHeader, config: LogConfig, now_ms: int) -> str | None:
    timestamp = header.base_timestamp + record.timestamp_delta
    if timestamp == NO_TIMESTAMP or config.message_timestamp_type != "CreateTime":
        return None
    latest = now_ms + config.message_timestamp_after_max_ms
    if timestamp > latest:
        return f"the timestamp {timestamp} lies after {latest}, the last that message.timestamp.after.max.ms allows"
    earliest = now_ms - config.message_timestamp_before_max_ms
    if timestamp < earliest:
        return (
            f"the timestamp {timestamp} lies before {earliest}, the first that message.timestamp.before.max.ms allows"
        )
    return None


def _refuse(refused: list[RecordError], bad_times: bool) -> NoReturn:
    few = "; ".join(f"record {error.batch_index}: {error.message}" for error in refused[:3])
    told = f"{len(refused)} records were refused, and with them the batch; the first three at most: {few}"
    raise InvalidTimestamp(told, refused) if bad_times else InvalidRecord(told, refused)


def _level(codec: int, config: LogConfig) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
    return None


def _not_one_batch(batch: bytes | memoryview) -> ApiError:
    """Which error it is when the bytes are not exactly one batch of magic 2."""
    size = len(batch)
    if size <= _MAGIC_AT:
        return InvalidRecord(f"the record set of {size} bytes holds no batch")
    length = int.from_bytes(batch[8:LOG_OVERHEAD], "big", signed=True)
    magic = batch[_MAGIC_AT]
    if length < _MIN_LEGACY_LENGTH:
        return CorruptMessage(f"the batch claims a length of {length} bytes")
    if magic > MAGIC:
        return CorruptMessage(f"the batch has magic {magic}, which does not exist")
    if length + LOG_OVERHEAD > size:
        return InvalidRecord(f"the batch claims {length + LOG_OVERHEAD} bytes where {size} are present")
    if magic <= _MAX_LEGACY_MAGIC:
        return InvalidRecord(f"the batch has magic {magic}; Produce v3 and newer carry batches of magic 2 only")
    if length + LOG_OVERHEAD < HEADER_SIZE:
        return CorruptMessage(f"the batch claims {length + LOG_OVERHEAD} bytes, less than its header has")
    return InvalidRecord(f"{size - length - LOG_OVERHEAD} bytes follow the batch; send one batch per partition")


def _reserved_timestamp_type(count: int) -> InvalidTimestamp:
    told = "producers may not set the timestamp type to LogAppendTime; that is the topic's setting"
    return InvalidTimestamp(told, [RecordError(index, told) for index in range(min(count, _MOST_ERRORS))])


def _too_large(size: int, config: LogConfig) -> MessageTooLarge:
    return MessageTooLarge(f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}")
