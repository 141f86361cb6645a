"""Logs to test with: batches to put in, ways to look at what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.model.clock import ManualClock
from barnabas.model.ids import TopicPartition
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from barnabas.storage.directory import LogDirectory
from barnabas.storage.file_pool import FilePool
from barnabas.storage.files import FileSystem
from barnabas.storage.flush_queue import FlushQueue
from barnabas.storage.log.log import Log
from barnabas.storage.log.retention import Expired
from barnabas.storage.manager import LogManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

TP = TopicPartition("topic", 0)
TOPIC_ID = UUID(int=0x1234)
NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def batch(
    count: int = 1,
    *,
    size: int = 10,
    timestamp: int = NOW,
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    codec: int = 0,
    transactional: bool = False,
) -> bytes:
    """A batch of `count` records of `size` bytes, one millisecond apart."""
    records = [Record(number, number, None, bytes([number % 256]) * size) for number in range(count)]
    if producer_id < 0:
        return build_batch(records, base_timestamp=timestamp, codec=codec)
    return build_batch(
        records,
        base_timestamp=timestamp,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


class UnsyncedFiles(FileSystem):
    """Files whose syncs are not waited for, since no test here turns the power off."""

    def sync(self, fd: int) -> None:
        """Believe it."""

    def sync_dir(self, path: str) -> None:
        """Believe it."""


def store(
    path: Path,
    files: FileSystem | None = None,
    *,
    open_files: int = 64,
    lower_checkpoints: Callable[[Log], None] = lambda _: None,
) -> LogDirectory:
    """A log directory without checkpoints; what its logs want done in the background is not done."""
    return LogDirectory(
        str(path),
        FilePool(files or UnsyncedFiles(), open_files),
        ManualClock(NOW),
        producer_expiration_ms=86_400_000,
        background=lambda _: None,
        lower_checkpoints=lower_checkpoints,
        list_in_checkpoints=lambda _: None,
    )


def new_log(path: Path, config: LogConfig | None = None, files: FileSystem | None = None) -> Log:
    """An empty log in a directory of its own."""
    home = store(path, files)
    return Log.create(TP, home, f"{path}/{TP}", config or LogConfig(), TOPIC_ID)


def log_in(home: LogDirectory, number: int) -> Log:
    """A new log, that of the partition with this number."""
    tp = TP._replace(partition=number)
    return Log.create(tp, home, f"{home.path}/{tp}", LogConfig(), TOPIC_ID)


def oldest(log: Log, count: int) -> Expired:
    """The first segments of a log as it is now, as if they were too old."""
    return Expired(count, log.log_end_offset, log.truncations)


def reopened(log: Log, files: FileSystem | None = None) -> Log:
    """Close the log cleanly and load it again."""
    log.close()
    path = log.log_dir
    again = Log(
        TP,
        store(path, files),
        f"{path}/{TP}",
        log.config,
        log_start_offset=log.log_start_offset,
        recovery_point=log.recovery_point,
    )
    again.cleaned_to = log.cleaned_to
    return again


def recovered(log: Log, files: FileSystem | None = None) -> Log:
    """Leave the log as a crash of the process would, and load it again."""
    log.abandon()
    path = log.log_dir
    return Log.recover(
        TP,
        store(path, files),
        f"{path}/{TP}",
        log.config,
        log_start_offset=log.log_start_offset,
        recovery_point=log.recovery_point,
        high_watermark=log.high_watermark,
        cleaned_to=log.cleaned_to,
    )


def now_and_reopened(log: Log) -> Iterator[Log]:
    """The log as it is, and after a clean stop."""
    yield log
    yield reopened(log)


def append(log: Log, *batches: bytes, epoch: int = 0, now_ms: int = NOW) -> list[int]:
    """Append as leader; returns the base offsets."""
    return [log.append(each, leader_epoch=epoch, now_ms=now_ms).base_offset for each in batches]


def read_bytes(
    log: Log, offset: int, max_bytes: int = 1 << 30, up_to: int | None = None, min_one: bool = True
) -> bytes:
    """The bytes that a read gives."""
    result = log.read(offset, max_bytes, log.log_end_offset if up_to is None else up_to, min_one)
    data = b"".join(part.file.read(part.length, part.position) for part in result.slices)
    assert len(data) == result.size
    return data


def split(data: bytes) -> list[bytes]:
    """The whole batches in `data`."""
    batches = []
    while len(data) >= 61 and 61 <= (size := read_header(data).size) <= len(data):
        batches.append(data[:size])
        data = data[size:]
    return batches


def stored(log: Log) -> list[bytes]:
    """Every batch of the log from its start on, by as many reads as it takes."""
    batches: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = split(read_bytes(log, offset))
        assert found, f"nothing at {offset}"
        batches += found
        offset = read_header(found[-1]).last_offset + 1
    return batches


def headers(log: Log) -> list[BatchHeader]:
    """The headers of every batch of the log."""
    return [read_header(each) for each in stored(log)]


def file_names(log: Log) -> set[str]:
    """What is in the log's directory."""
    return {path.name for path in log.directory.iterdir()}


class StepQueue(FlushQueue):
    """Flushes that are done when somebody asks for them."""

    def __init__(self) -> None:
        super().__init__()
        self.work: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        self.work.append(work)


class StepManager(LogManager):
    """A manager whose background work is done when `drain` is called, on the calling thread."""

    def __init__(self, path: Path, files: FileSystem | None = None, clock: ManualClock | None = None) -> None:
        self._queue = StepQueue()
        super().__init__(
            [path],
            clock=clock or ManualClock(NOW),
            files=files or UnsyncedFiles(),
            max_open_files=64,
            flush_queue=self._queue,
        )

    def drain(self) -> None:
        while self._queue.work:
            self._queue.work.pop(0)()

    def start(self, configs: Mapping[str, LogConfig] | None = None) -> StepManager:
        self.load(broker_id=1, cluster_id="test", configs=configs or {})
        return self
