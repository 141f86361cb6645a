"""What a partition's leader checks of a record set that a client sent, before it is given offsets.

`check` is on the path of every produced batch. It reads the 61-byte header and computes the CRC; it opens no records
and copies no payload. What it lets pass is sound for the log: the length is the bytes present, the CRC holds, and the
record count equals the range of offsets, so offsets, sequences, recovery and the checker need nothing but headers.

Kafka goes over all records of every batch, and decompresses to do so. Here that happens only where a setting asks for
it (`needs_rewrite`), in a thread (`rewrite`). What follows from it:

- Timestamps are judged by the header's base and max timestamp. That is exact for message.timestamp.after.max.ms, as
  long as the client's max timestamp is true. A max timestamp before the base timestamp or before -1 (none) cannot be
  true, and is computed anew by `rewrite`. A header has no lowest timestamp, so message.timestamp.before.max.ms, when
  it is set, needs `rewrite`.
- A wrong record count of an uncompressed batch is found (`count_agrees`). In a compressed one it is found when the
  payload cannot possibly hold so many records. Beyond that a client can store a batch that consumers refuse to read;
  the log itself stays whole.

Codes are those of Kafka, which tells clients whether to try again: CORRUPT_MESSAGE (try again) for damage on the way,
INVALID_RECORD (do not) for a batch that was built wrongly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.errors import (
    ApiError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
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
from barnabas.protocol.records.records import MIN_RECORD_SIZE, count_agrees, encode_records, read_records

if TYPE_CHECKING:
    from barnabas.model.log_config import LogConfig
    from barnabas.protocol.records.records import Record

ZSTD_SINCE: Final = 7
"""The first version of Produce whose batches may be compressed with zstd."""
DECOMPRESSED_LIMIT: Final = 32 * 1024 * 1024
"""What a batch may decompress to when it must be opened; topics with a large max.message.bytes get more."""
_DECOMPRESSED_FACTOR: Final = 8
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
    """Check the record set of one partition of a Produce request, and return its header as it is to be stored.

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
        base_time,
        max_time,
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
    if attributes & (CONTROL | LOG_APPEND_TIME):
        raise _reserved_attributes(attributes)
    if producer != NO_PRODUCER_ID:
        if producer < 0 or epoch < 0 or sequence < 0:
            raise InvalidRecord(f"producer id {producer}, epoch {epoch} and sequence {sequence} do not go together")
    elif attributes & TRANSACTIONAL:
        raise InvalidRecord("the batch is transactional, but has no producer id")
    if codec:
        if codec >= CODEC_COUNT:
            raise UnsupportedCompressionType(f"compression codec {codec} is unknown")
        if count * MIN_RECORD_SIZE > (size - HEADER_SIZE) * MAX_RATIO[codec]:
            raise _wrong_count(size, count)
    elif not count_agrees(batch, HEADER_SIZE, count):
        raise _wrong_count(size, count)

    if config.message_timestamp_type != "CreateTime":
        return stamp(batch, header, now_ms)
    latest = now_ms + config.message_timestamp_after_max_ms
    if max_time > latest or base_time > latest:
        raise _too_late(max(max_time, base_time), latest)
    return header


def check_plain(batch: memoryview, config: LogConfig, now_ms: int) -> HeaderFields | None:
    """The header of a batch that `check` lets pass, and that is stored as it is; None if anything is unusual.

    Nearly every batch is of this kind. What is not is to be looked at by `check`, which says what is wrong with it, and
    `needs_rewrite`. For Produce from ZSTD_SINCE on.
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
        or not base_time <= max_time <= now_ms + config.message_timestamp_after_max_ms
        or max_time < NO_TIMESTAMP
        or size > config.max_message_bytes
        or not config.as_is
        or (producer != NO_PRODUCER_ID and (producer < 0 or epoch < 0 or sequence < 0))
    ):
        return None
    if attributes:
        if count * MIN_RECORD_SIZE > (size - HEADER_SIZE) * MAX_RATIO[attributes]:
            return None
    elif not count_agrees(batch, HEADER_SIZE, count):
        return None
    return fields if crc32c(batch[CRC_START:]) == crc else None


def stamp(batch: bytes | memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """The header with `now_ms` as the time of all its records (LogAppendTime), and the CRC that goes with it."""
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    return stamped._replace(crc=checksum(stamped, memoryview(batch)[HEADER_SIZE:]))


def needs_rewrite(header: BatchHeader, config: LogConfig) -> bool:
    """Whether the batch must be opened before it is stored: to compress it anew, or to look at its records."""
    if config.compression_type != "producer" and _CODECS[config.compression_type] != header.attributes & CODEC_MASK:
        return True
    if "compact" in config.cleanup_policy:
        return True
    return config.message_timestamp_type == "CreateTime" and (
        config.message_timestamp_before_max_ms != NEVER
        or header.max_timestamp < header.base_timestamp
        or header.max_timestamp < NO_TIMESTAMP
    )


def rewrite(batch: bytes | memoryview, config: LogConfig, now_ms: int) -> bytes:
    """Open a batch that `check` let pass, check its records, and return it as the topic wants it. Runs in a thread.

    Records are counted, timestamps must lie within the topic's limits, and every record of a compacted topic needs a
    key. Offset deltas that do not follow each other are put right, as Kafka does; the max timestamp becomes the
    records' own, and the codec that of compression.type. The result passes `check` again; LogAppendTime is left to it.
    """
    header = BatchHeader._make(HEADER.unpack_from(batch))
    limit = max(DECOMPRESSED_LIMIT, _DECOMPRESSED_FACTOR * config.max_message_bytes)
    payload = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit)
    in_order = True
    max_time = NO_TIMESTAMP
    for index, record in enumerate(read_records(payload, header.record_count)):
        timestamp = header.base_timestamp + record.timestamp_delta
        _check_record(record, index, timestamp, config, now_ms)
        in_order = in_order and record.offset_delta == index
        max_time = max(max_time, timestamp)
    if not in_order:
        records = read_records(payload, header.record_count)
        payload = encode_records(record._replace(offset_delta=index) for index, record in enumerate(records))
    codec = _CODECS.get(config.compression_type, header.codec)
    if in_order and codec == header.codec:
        stored: bytes | memoryview = memoryview(batch)[HEADER_SIZE:]
    else:
        stored = compress(codec, payload, _level(codec, config))
    attributes = header.attributes & ~CODEC_MASK | codec
    result = seal(header._replace(attributes=attributes, max_timestamp=max_time), stored)
    if len(result) > config.max_message_bytes:
        raise _too_large(len(result), config)
    return result


def _check_record(record: Record, index: int, timestamp: int, config: LogConfig, now_ms: int) -> None:
    if record.key is None and config.compact:
        raise InvalidRecord(f"record {index} has no key, which a compacted topic needs")
    if timestamp == NO_TIMESTAMP or config.message_timestamp_type != "CreateTime":
        return
    latest = now_ms + config.message_timestamp_after_max_ms
    if timestamp > latest:
        raise _too_late(timestamp, latest)
    if timestamp < now_ms - config.message_timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"the timestamp {timestamp} of record {index} is older than message.timestamp.before.max.ms allows"
        )


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


def _reserved_attributes(attributes: int) -> ApiError:
    if attributes & CONTROL:
        return InvalidRecord("clients may not write control batches")
    return InvalidTimestamp("producers may not set the timestamp type to LogAppendTime; that is the topic's setting")


def _too_large(size: int, config: LogConfig) -> MessageTooLarge:
    return MessageTooLarge(f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}")


def _too_late(timestamp: int, latest: int) -> InvalidTimestamp:
    return InvalidTimestamp(
        f"the timestamp {timestamp} lies after {latest}, the latest that message.timestamp.after.max.ms allows now"
    )


def _wrong_count(size: int, count: int) -> InvalidRecord:
    return InvalidRecord(f"the batch of {size} bytes does not hold the {count} records that it claims")
