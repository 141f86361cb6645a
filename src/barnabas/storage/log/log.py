"""One partition's log: batches in order, from the log start offset to the log end offset.

Threads. Appends and most else that changes the log happen on the event loop, one at a time under `lock`. Whoever works
on the files in a thread holds `durability.lock` for that, and `lock` only while memory changes: the event loop takes
`lock` all the time, so it is never held over a call that waits for the disk. There are two exceptions: a log is cut
under it, or begins within a batch that is appended, in a thread, while nobody leads or follows its partition, and so
nobody on the event loop takes it; and a segment that is begun gets the file that was made for it by a rename. Methods
that wait for the disk say so; the others do not wait, but for the first touch after a clean start, when the log is
loaded.

`Log` has the lock, the offsets and the files, and is made of parts that keep one promise each:

    LogReader      reading.py       an answer is one that the log would have given at some moment of the call
    Appender       appending.py     memory and file hold the same batches
    LogProducers   producers.py     what is known of producers is what the batches say; the last stable offset
    Durability     durability.py    everything before the recovery point is on disk
    Truncation     truncation.py    nothing that was cut comes back with a crash
    Removal        removal.py       what is removed lies before the log start offset

A write or sync that fails makes the whole log directory fail (see directory.py).
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.model.errors import InconsistentTopicId, StorageFailed, UnknownTopicOrPartition
from barnabas.model.ids import NO_ID
from barnabas.protocol.records.batch import read_header
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import DamagedCheckpoint
from barnabas.storage.file_pool import FileHandle
from barnabas.storage.files import ColdRead
from barnabas.storage.log.appending import Appender, AppendInfo
from barnabas.storage.log.durability import Durability
from barnabas.storage.log.epochs import EpochEnd, LeaderEpochs
from barnabas.storage.log.producers import LogProducers
from barnabas.storage.log.reading import LogReader
from barnabas.storage.log.removal import Removal
from barnabas.storage.log.runs import read_run
from barnabas.storage.log.search import TimestampOffset
from barnabas.storage.log.truncation import Truncation
from barnabas.storage.producers.state import ProducerInfo
from barnabas.storage.recovery import loading
from barnabas.storage.recovery.leftovers import remove_cleaned
from barnabas.storage.recovery.loading import TornLog
from barnabas.storage.segments.segment import FileSlice, Segment
from barnabas.storage.segments.segments import ReadResult, Segments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from barnabas.model.ids import TopicPartition
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.log.retention import Expired

__all__ = [
    "AppendInfo",
    "ColdRead",
    "EpochEnd",
    "FileHandle",
    "FileSlice",
    "Log",
    "ProducerInfo",
    "ReadResult",
    "TimestampOffset",
]

logger = logging.getLogger(__name__)


class Log:
    """One partition's log."""

    __slots__ = (
        "__weakref__",
        "_reader",
        "_topic_id",
        "append",
        "append_replica",
        "appender",
        "cleaned_to",
        "config",
        "durability",
        "epochs",
        "high_watermark",
        "is_closed",
        "last_stable_offset",
        "loaded",
        "lock",
        "log_end_offset",
        "log_start_offset",
        "path",
        "producers",
        "read",
        "recovery_point",
        "store",
        "torn",
        "tp",
        "truncations",
        "upkeep",
    )

    def __init__(
        self,
        tp: TopicPartition,
        store: LogDirectory,
        path: str,
        config: LogConfig,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        topic_id: UUID | None = None,
    ) -> None:
        """A log that was closed cleanly at `recovery_point`; its files are looked at when they are needed."""
        self.tp = tp
        self.config = config
        self.store = store
        """The log directory that it is in."""
        self.path = path
        """The partition's directory."""
        self._topic_id = topic_id
        self.lock = threading.Lock()
        """Held by whoever changes the log, for as long as memory changes; taken after `durability.lock`."""
        self.upkeep = threading.Lock()
        """Held by whoever removes old segments, cleans, or closes the log cleanly: these must not cross."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = recovery_point
        self.recovery_point = recovery_point
        """Everything before this offset is on disk (fsync)."""
        self.high_watermark = recovery_point
        """Set by the broker whenever it moves; retention and checkpoints use it."""
        self.cleaned_to: int | None = None
        """Where the part begins that compaction has not seen; None when it never ran."""
        self.truncations = 0
        """Grows when the log is cut, so that whoever looked before knows."""
        self.torn: TornLog | None = None
        """Why the log cannot be used, where its end was missing when it was loaded."""
        self.is_closed = False
        """Whether the log takes no more calls."""
        self.loaded: Segments | None = None
        """The segments, once the log was loaded and until it is closed."""
        self.epochs = LeaderEpochs()
        self.producers = LogProducers(self)
        self.durability = Durability(self)
        self.appender = Appender(self)
        self._reader = LogReader(self)
        self.read = self._reader.read
        """See LogReader.read. This and the next are bound here, since every request calls them."""
        self.append = self.appender.append
        self.append_replica = self.appender.append_replica
        self.last_stable_offset = self.producers.last_stable_offset

    @classmethod
    def create(cls, tp: TopicPartition, store: LogDirectory, path: str, config: LogConfig, topic_id: UUID) -> Log:
        """Make an empty log. The first flush brings its directory to the disk."""
        with store.writing(f"making {path}"):
            store.files.make_dir(path)
            if config.compact:  # of others, every gap is damage
                checkpoints.mark_unlisted(store.files, path)
            checkpoints.write_topic_id(store.files, path, topic_id, sync=False)
            log = cls(tp, store, path, config, topic_id=topic_id)
            log._load(clean=True).changes += 1
        log.durability.flusher.is_new = True
        return log

    @classmethod
    def recover(
        cls,
        tp: TopicPartition,
        store: LogDirectory,
        path: str,
        config: LogConfig,
        *,
        log_start_offset: int,
        recovery_point: int,
        high_watermark: int,
        cleaned_to: int | None = None,
    ) -> Log:
        """Load a log that was not closed cleanly; one whose end is missing is `torn`. Reads files; runs in a thread."""
        log = cls(tp, store, path, config, log_start_offset=log_start_offset, recovery_point=recovery_point)
        log.cleaned_to = cleaned_to
        log.high_watermark = high_watermark
        try:
            log._load(clean=False).changes += 1
        except TornLog as error:
            log.refuse(error)
            store.unrecovered = True
            return log
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        log.cleaned_to = None if cleaned_to is None else min(cleaned_to, log.log_end_offset)
        return log

    def __repr__(self) -> str:
        return f"<Log {self.tp} {self.log_start_offset}..{self.log_end_offset}>"

    # What it is

    @property
    def topic_id(self) -> UUID:
        """The topic's id, or NO_ID when the directory does not say."""
        if self._topic_id is None:
            try:
                self._topic_id = checkpoints.read_topic_id(self.store.files, self.path)
            except DamagedCheckpoint as error:
                logger.warning("The topic id of %s is unknown: %s", self.path, error)
                self._topic_id = NO_ID
        return self._topic_id

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        return Path(self.path)

    @property
    def log_dir(self) -> Path:
        """The entry of log.dirs that it is in."""
        return Path(self.store.path)

    @property
    def is_failed(self) -> bool:
        """Whether its log directory takes no more writes, or the log itself cannot be used."""
        return self.store.failed is not None or self.torn is not None

    @property
    def is_open(self) -> bool:
        """Whether the log was loaded; after a clean start that happens at the first touch."""
        return self.loaded is not None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first."""
        return self.open().all

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.open().size

    @property
    def written_bytes(self) -> int:
        """Bytes that were written since the log was loaded; it only grows."""
        segments = self.loaded
        return 0 if segments is None else segments.written_bytes

    def set_topic_id(self, topic_id: UUID) -> None:
        """Give the topic's id to a log that has none; InconsistentTopicId when it has another one."""
        if self.topic_id == NO_ID:
            segments = self.open()
            with self.store.writing(f"writing the topic id of {self.path}"):
                checkpoints.write_topic_id(self.store.files, self.path, topic_id, sync=False)
            segments.changes += 1
            self._topic_id = topic_id
        elif self.topic_id != topic_id:
            raise InconsistentTopicId(f"{self.path} belongs to topic id {self.topic_id}, not {topic_id}")

    def update_config(self, config: LogConfig) -> None:
        """Use these settings from now on. A log that is being loaded takes them when that is done (`_load`)."""
        if config.compact and not self.config.compact:
            self.store.background(lambda: self.store.list_in_checkpoints(self))
        self.config = config
        self.appender.max_batch = config.segment_bytes
        if self.loaded is None:
            return
        if self.lock.acquire(blocking=False):  # the event loop does not wait for a log that is being truncated
            try:
                self._use_config()
            finally:
                self.lock.release()
        else:
            self.store.background(self._use_config_later)

    def _use_config(self) -> None:
        if self.loaded is not None:
            self.loaded.use(self.config)

    def _use_config_later(self) -> None:
        with self.lock:
            self._use_config()

    # Loading

    def open(self) -> Segments:
        """Load the log, if it is not; returns its segments. Reads files at the first touch after a clean start."""
        segments = self.loaded
        if segments is None:
            with self.lock:
                self.check_open()
                segments = self.loaded or self._load_closed()
        return segments

    def check_open(self, cause: BaseException | None = None) -> None:
        """Raise UnknownTopicOrPartition if the log takes no more calls, from `cause` if there is one."""
        if self.is_closed:
            raise UnknownTopicOrPartition(f"{self.tp} was closed") from cause

    def refuse(self, error: TornLog) -> None:
        """Do not use the log: its end is missing."""
        self.torn = error
        self.store.torn.add(self.tp)
        logger.error("%s", error)

    def _load_closed(self) -> Segments:
        expected = self.recovery_point
        if self.torn is not None:
            raise StorageFailed(str(self.torn)).with_remedy(self.torn.remedy)
        try:
            segments = self._load(clean=True)
        except OSError as error:
            raise self.store.fail(error, f"loading {self.path}") from error
        except TornLog as error:
            self.refuse(error)
            raise
        if self.log_end_offset != expected:
            logger.warning(
                "%s ends at offset %d, but was closed at offset %d.", self.path, self.log_end_offset, expected
            )
        return segments

    def _load(self, *, clean: bool) -> Segments:
        config = self.config
        loaded = loading.load(
            self.store,
            self.path,
            config,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            cleaned_to=self.cleaned_to or 0,
            clean=clean,
        )
        self.epochs = loaded.epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.producers.use(loaded)
        if clean and (loaded.log_end_offset == 0 or loaded.log_end_offset in loaded.snapshots.offsets):
            self.durability.closed_at = loaded.log_end_offset
        segments = self.loaded = Segments(self.store, self.path, config, loaded.segments)
        if self.config is not config:  # it was changed meanwhile, by who did not wait for the lock
            segments.use(self.config)
        return segments

    # Reading

    def offset_for_time(self, timestamp: int, *, up_to: int) -> TimestampOffset | None:
        """The first record before `up_to` whose timestamp is at least `timestamp`. Runs in a thread."""
        return self._reader.offset_for_time(timestamp, up_to=up_to)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp. Runs in a thread."""
        return self._reader.offset_of_max_timestamp()

    # Appending

    @property
    def is_ready(self) -> bool:
        """Whether an append finds everything in its place: the log was loaded, and has a file to go on with."""
        segments = self.loaded
        return segments is not None and segments.active.has_file

    def prepare(self) -> None:
        """Load the log, and make the file that the next append goes to. Waits for the file system."""
        self.appender.prepare()

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        segments = self.open()
        with self.lock, self.store.writing(f"writing to {self.path}"):
            self.appender.roll(segments, self.log_end_offset, now_ms)

    # Leader epochs

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or -1."""
        self.open()
        return self.epochs.latest

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of `offset`, or -1."""
        self.open()
        with self.lock:
            return self.epochs.epoch_at(offset)

    def offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where `epoch`, or the last one before it that the log has, ends."""
        self.open()
        with self.lock:
            return self.epochs.end_offset(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note, on becoming leader, that `epoch` starts at `start_offset`."""
        self.open()
        with self.lock:
            self.epochs.assign(epoch, start_offset)

    # Bringing it to the disk

    @property
    def flush_required(self) -> bool:
        """Whether flush.messages is reached: LogManager.flush_through is waited for before anyone is told more.

        On the leader that is a producer, on a follower the leader.
        """
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def flush(self, up_to: int | None = None) -> int:
        """Bring everything before `up_to` to the disk; returns the new recovery point. Runs in a thread."""
        return self.durability.flush(up_to)

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way; it may still write into the log's directory, whatever became of the log."""
        return self.durability.lock.locked()

    def wait_for_flush(self) -> None:
        """Wait for the flush that is under way, if one is."""
        with self.durability.lock:
            pass

    # Removing

    def truncate_to(self, offset: int) -> None:
        """Cut everything from `offset` on; a batch that holds it goes as a whole. A log that starts later starts anew.

        Nobody appends meanwhile. Slices that wait are revoked. Where there is something to cut, this waits for the disk
        and runs in a thread.
        """
        Truncation(self).truncate_to(offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything and start anew at `start_offset`. Otherwise as `truncate_to`."""
        Truncation(self).start_anew(start_offset)

    def start_within(self, batches: bytes | memoryview, *, now_ms: int) -> None:
        """Drop everything and begin with batches of which the first one holds the end of the log; start at that offset.

        The leader's log begins there, within that batch: DeleteRecords moves the start of a log, and divides no batch.
        What was deleted was committed, so the high watermark is where the log starts. Nothing is dropped for batches
        that were damaged on the way, which is CorruptMessage, or cut short. They have a leader epoch, as all that a
        leader appends, so the follower goes on by comparing epochs. Otherwise as `truncate_to`.
        """
        start_offset, first_offset = self.log_end_offset, read_header(batches).base_offset
        if read_run(memoryview(batches), first_offset, self.tp) is None:
            return
        Truncation(self).start_anew(first_offset)
        self.append_replica(batches, now_ms=now_ms)
        self.high_watermark = min(start_offset, self.log_end_offset)
        self.delete_records_before(self.high_watermark)

    def delete_records_before(self, offset: int) -> int:
        """Move the log start to `offset`, at most to the high watermark; returns where the log starts now."""
        return Removal(self).delete_records_before(offset)

    def remove_segments(self, expired: Expired, now_ms: int) -> int:
        """Remove the oldest segments. The active one is rolled first if need be, and stays if it is empty or has grown.

        Returns how many were removed. Waits for renames; runs in a thread.
        """
        return Removal(self).remove_segments(expired, now_ms)

    def is_as_planned(self, old: Sequence[Segment], truncations: int) -> bool:
        """Whether `old` are still segments of the log, and it was not cut since."""
        return Removal(self).is_as_planned(old, truncations)

    def replace_segments(self, old: Sequence[Segment], sizes: Mapping[str, int], truncations: int) -> bool:
        """Put the segment in `.swap` files, which have these `sizes`, in the place of `old`, neighbours before the end.

        False if the log is not what it was. Waits for renames; runs in a thread.
        """
        return Removal(self).replace_segments(old, sizes, truncations)

    # Closing

    def close(self) -> None:
        """Flush, and write what makes the next start cheap: indexes, a snapshot, the epochs. Waits for the disk.

        Also for whoever has the upkeep: `.cleaned` files under a running cleaner are not left over, and without them a
        replacement that is undone would count at the next start.
        """
        with self.upkeep:
            if self.loaded is not None:
                if self.config.compact:
                    with self.store.writing(f"closing {self.path}"):
                        remove_cleaned(self.store.files, self.path)
                self.durability.finish(self.loaded)
            self.abandon()

    def abandon(self) -> None:
        """Close the files and nothing else, as when the directory failed."""
        self._close_files()

    def mark_deleted(self, path: str) -> None:
        """The partition is deleted: rename its directory to `path` and take no more calls.

        A flush that is under way may go on for a while; before the name is used again, `wait_for_flush`.
        """
        segments = self._close_files()
        with self.store.writing(f"renaming {self.path}", removes=True):
            self.store.files.rename(self.path, path)
        if segments is not None:
            segments.set_directory(path)

    def _close_files(self) -> Segments | None:
        with self.lock:
            self.is_closed = True
            segments, self.loaded = self.loaded, None
            if segments is not None:
                segments.end_appends()  # also of whoever has found them before
        if segments is not None:
            segments.close()
        return segments
