"""Compacted logs to test with: records in and out, cleaned where the test runs, and the dictionary they must equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import HEADER_SIZE, LOG_APPEND_TIME, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import decompress
from barnabas.protocol.records.records import Record, read_records
from barnabas.storage.cleaner.cleaner import clean
from barnabas.storage.cleaner.plan import examine
from barnabas.storage.cleaner.process import InThisProcess
from barnabas.storage.cleaner.task import CleanerLimits
from tests.support.logs import NOW, stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.storage.cleaner.process import Cleans
    from barnabas.storage.cleaner.report import LastCleaning
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.log.log import Log

LIMITS = CleanerLimits(memory=1 << 20, load_factor=0.9, chunk=1 << 16, bytes_per_second=1e300)


def compacted(
    *,
    segment_bytes: int = 1000,
    delete_retention_ms: int = 86_400_000,
    min_cleanable_dirty_ratio: float = 0.0,
    cleanup_policy: frozenset[str] = frozenset({"compact"}),
    min_compaction_lag_ms: int = 0,
    max_compaction_lag_ms: int = 2**63 - 1,
    index_interval_bytes: int = 100,
    file_delete_delay_ms: int = 0,
    retention_ms: int = -1,
) -> LogConfig:
    """The settings of a compacted topic with small segments."""
    return LogConfig(
        cleanup_policy=cleanup_policy,
        segment_bytes=segment_bytes,
        delete_retention_ms=delete_retention_ms,
        min_cleanable_dirty_ratio=min_cleanable_dirty_ratio,
        min_compaction_lag_ms=min_compaction_lag_ms,
        max_compaction_lag_ms=max_compaction_lag_ms,
        index_interval_bytes=index_interval_bytes,
        file_delete_delay_ms=file_delete_delay_ms,
        retention_ms=retention_ms,
    )


def keyed(
    pairs: Iterable[tuple[bytes | None, bytes | None]],
    *,
    timestamp: int = NOW,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch of keys and values, a millisecond apart."""
    records = [Record(number, number, key, value) for number, (key, value) in enumerate(pairs)]
    return build_batch(
        records,
        base_timestamp=timestamp,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id < 0 or producer_epoch >= 0 else 0,
        base_sequence=sequence,
        transactional=transactional,
    )


def settle(log: Log) -> None:
    """Begin a new segment, and make everything before it committed and durable: all of that can be cleaned."""
    log.roll(NOW)
    log.high_watermark = log.log_end_offset
    log.flush()


def clean_log(
    log: Log, store: LogDirectory, *, now_ms: int = NOW, limits: CleanerLimits = LIMITS, worker: Cleans | None = None
) -> LastCleaning:
    """Clean all that can be cleaned."""
    return clean(examine(log, now_ms), store, worker or InThisProcess(store.files), limits, now_ms)


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def records_of(batches: Sequence[bytes]) -> list[Seen]:
    """The records of data in some batches."""
    seen = []
    for batch in batches:
        header = read_header(batch)
        if header.is_control:
            continue
        payload = decompress(header.codec, batch[HEADER_SIZE:], 1 << 24)
        for record in read_records(payload, header.record_count):
            timestamp = header.base_timestamp + record.timestamp_delta
            if header.attributes & LOG_APPEND_TIME:
                timestamp = header.max_timestamp
            seen.append(Seen(header.base_offset + record.offset_delta, timestamp, record.key, record.value))
    return seen


def seen(log: Log) -> list[Seen]:
    """The records of data in a log."""
    return records_of(stored(log))
