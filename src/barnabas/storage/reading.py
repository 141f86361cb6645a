"""A log as its readers see it: where it begins and ends, what it holds, and how that is found.

Nothing here changes a log, but for loading it at its first touch. Reads take a view of the segments under the lock and
need no lock after that. What was removed meanwhile is passed over, and what was cut meanwhile is read again, so an
answer is always one that the log would have given at some moment of the call.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas.model.errors import (
    ApiError,
    OffsetOutOfRange,
    StorageFailed,
    UnknownTopicOrPartition,
)
from barnabas.model.ids import NO_ID
from barnabas.storage import checkpoints, recovery, search
from barnabas.storage.checkpoints import DamagedCheckpoint
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.flushing import Flusher
from barnabas.storage.producer_state import ProducerStates, Snapshots
from barnabas.storage.recovery import TornLog
from barnabas.storage.segments import NOTHING, Segments, aborted_transactions

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from barnabas.model.ids import TopicPartition
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.epochs import EpochEnd
    from barnabas.storage.producer_state import CompletedTransaction, ProducerInfo
    from barnabas.storage.search import TimestampOffset
    from barnabas.storage.segment import Segment
    from barnabas.storage.segments import ReadResult

logger = logging.getLogger(__name__)

_Found = TypeVar("_Found")


class LogReader:
    """The part of a log that can be looked at."""

    __slots__ = (
        "_closed",
        "_closed_at",
        "_ended",
        "_epochs",
        "_flush_lock",
        "_flusher",
        "_lock",
        "_max_batch",
        "_path",
        "_producers",
        "_segments",
        "_snapshots",
        "_store",
        "_topic_id",
        "cleaned_to",
        "config",
        "first_unstable_offset",
        "has_aborted",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
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
        self.log_start_offset = log_start_offset
        self.log_end_offset = recovery_point
        self.recovery_point = recovery_point
        """Everything before this offset is on disk (fsync)."""
        self.high_watermark = recovery_point
        """Set by the broker whenever it moves; retention and checkpoints use it."""
        self.first_unstable_offset: int | None = None
        """Where the oldest open transaction begins, if there is one; known once the log is open."""
        self._ended: deque[CompletedTransaction] = deque()
        """Transactions whose markers were not known to be committed, in the order of their markers."""
        self.has_aborted = False
        """Whether a transaction was ever aborted; known once the log is open."""
        self.torn: str | None = None
        """Why the log cannot be used, where its end was missing when it was loaded."""
        self.cleaned_to: int | None = None
        """Where the part begins that compaction has not seen; None when it never ran."""
        self.upkeep = threading.Lock()
        """Held by whoever removes old segments, or cleans: the two must not cross."""
        self.truncations = 0
        """Grows when the log is cut, so that whoever looked before knows."""
        self.last_flush_ms = store.clock.now_ms()
        self._store = store
        self._path = path
        self._topic_id = topic_id
        self._segments: Segments | None = None
        self._epochs = LeaderEpochs()
        self._producers = ProducerStates()
        self._snapshots = Snapshots(store.files, path)
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._flusher = Flusher(store, path)
        self._closed = False
        self._closed_at = -1
        self._max_batch = config.segment_bytes

    def __repr__(self) -> str:
        return f"<Log {self.tp} {self.log_start_offset}..{self.log_end_offset}>"

    # What it is

    @property
    def topic_id(self) -> UUID:
        """The topic's id, or NO_ID when the directory does not say."""
        if self._topic_id is None:
            try:
                self._topic_id = checkpoints.read_topic_id(self._store.files, self._path)
            except DamagedCheckpoint as error:
                logger.warning("ignored a damaged file: %s", error)
                self._topic_id = NO_ID
        return self._topic_id

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        return Path(self._path)

    @property
    def log_dir(self) -> Path:
        """The entry of log.dirs that it is in."""
        return Path(self._store.path)

    @property
    def is_failed(self) -> bool:
        """Whether its log directory takes no more writes, or the log itself cannot be used."""
        return self._store.failed is not None or self.torn is not None

    @property
    def is_open(self) -> bool:
        """Whether the log was loaded; after a clean start that happens at the first touch."""
        return self._segments is not None

    @property
    def is_closed(self) -> bool:
        """Whether the log takes no more calls."""
        return self._closed

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first."""
        return self._open().all

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._open().size

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or -1."""
        self._open()
        return self._epochs.latest

    @property
    def flush_required(self) -> bool:
        """Whether flush.messages is reached: LogManager.flush_through is waited for before anyone is told more.

        On the leader that is a producer, on a follower the leader.
        """
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def producer_ends(self) -> dict[int, tuple[int, int]]:
        """For every producer that the log remembers, the last offset of its data (-1 for none) and its epoch."""
        self._open()
        with self._lock:
            return self._producers.ends()

    def producers(self) -> list[ProducerInfo]:
        """The producers that the log remembers."""
        self._open()
        with self._lock:
            return self._producers.describe()

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer, in this epoch, has a transaction here that was not ended."""
        self._open()
        with self._lock:
            return self._producers.has_open_transaction(producer_id, epoch)

    def expects(self, producer_id: int, epoch: int, base_sequence: int) -> bool:
        """Whether the next batch of a producer, which is known, must begin with this sequence number."""
        self._open()
        with self._lock:
            return self._producers.expects(producer_id, epoch, base_sequence)

    def knows_producer(self, producer_id: int) -> bool:
        """Whether the log remembers anything of a producer."""
        self._open()
        with self._lock:
            return producer_id in self._producers

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, *, bumped: bool) -> None:
        """Refuse a marker that comes too late; see ProducerStates."""
        self._open()
        with self._lock:
            self._producers.check_marker(producer_id, epoch, coordinator_epoch, bumped)

    # Loading

    def open(self) -> None:
        """Load the log now and not at the first touch. Reads files."""
        self._open()

    def _open(self) -> Segments:
        segments = self._segments
        if segments is None:
            with self._lock:
                if self._closed:
                    raise UnknownTopicOrPartition(f"{self.tp} was closed")
                segments = self._segments or self._load_closed()
        return segments

    def _load_closed(self) -> Segments:
        expected = self.recovery_point
        if self.torn is not None:
            raise StorageFailed(self.torn)
        try:
            segments = self._load(clean=True)
        except OSError as error:
            raise self._store.fail(error, f"loading {self._path}") from error
        except TornLog as error:
            self._refuse(error)
            raise
        if self.log_end_offset != expected:
            logger.warning(
                "%s ends at offset %d, though it was closed at %d", self._path, self.log_end_offset, expected
            )
        return segments

    def _refuse(self, error: TornLog) -> None:
        """Do not use the log: its end is missing."""
        self.torn = str(error)
        self._store.torn.add(self.tp)
        logger.error("%s", error)

    def _load(self, *, clean: bool) -> Segments:
        config = self.config
        loaded = recovery.load(
            self._store,
            self._path,
            config,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            cleaned_to=self.cleaned_to or 0,
            clean=clean,
        )
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._ended = deque(loaded.ended)
        self._snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        if clean and (loaded.log_end_offset == 0 or loaded.log_end_offset in loaded.snapshots.offsets):
            self._closed_at = loaded.log_end_offset
        self.has_aborted = any(not segment.txn_index.is_empty for segment in loaded.segments)
        self._find_unstable()
        segments = self._segments = Segments(self._store, self._path, config, loaded.segments)
        if self.config is not config:  # it was changed meanwhile, by who did not wait for the lock
            segments.use(self.config)
        return segments

    def _find_unstable(self) -> None:
        first = self._producers.first_open_transaction()
        self.first_unstable_offset = None if first is None else max(first, self.log_start_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to here every transaction is decided, and the decision is committed, as is all before `high_watermark`.

        A marker that is not committed is of no account: if the next leader does not have it, the transaction is open
        again, and what readers were told would be taken back.
        """
        unstable = self.first_unstable_offset
        stable = high_watermark if unstable is None else min(unstable, high_watermark)
        if self._ended:
            self._forget_ended(high_watermark)
            for ended in self._ended:
                stable = min(stable, max(ended.first_offset, self.log_start_offset))
        return stable

    def _forget_ended(self, high_watermark: int) -> None:
        ended = self._ended
        while ended and ended[0].last_offset < high_watermark:
            ended.popleft()

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        up_to: int,
        min_one: bool,
        *,
        may_block: bool = True,
        committed: bool = False,
    ) -> ReadResult:
        """Bytes from the batch that holds `offset` on, of batches that begin before `up_to`.

        The last batch may be cut by `max_bytes`; with `min_one` the first one is whole, however large. With
        `may_block=False`, ColdRead is raised where this would have to wait for the disk: call again in a thread.

        With `committed`, the answer names the aborted transactions that have records in it; there may be a few more, of
        records that follow closely. Bytes and transactions are taken from the same view of the segments: when retention
        or compaction takes a segment away meanwhile, its transactions would not be found any more, and a reader of
        committed records would take the aborted ones for good.
        """
        segments = self._segments or self._open()
        while True:
            with self._lock:
                view, size, end_offset = segments.all, segments.active.size, self.log_end_offset
                truncations, changes, has_aborted = self.truncations, segments.changes, self.has_aborted
            if offset < self.log_start_offset or offset > end_offset:
                raise OffsetOutOfRange(
                    f"{self.tp}: offset {offset} is not within {self.log_start_offset} and {end_offset}"
                )
            if offset >= up_to or offset == end_offset or (max_bytes <= 0 and not min_one):
                return NOTHING
            try:
                found = segments.read(view, size, end_offset, offset, max_bytes, up_to, min_one, not may_block)
                if committed and has_aborted and found.size:
                    aborted = aborted_transactions(view, offset, found, up_to, cached=not may_block)
                    found = found._replace(aborted=aborted)
            except FileNotFoundError as error:
                self._check_removed(segments, changes, error)
                continue
            except ApiError:
                if truncations == self.truncations:
                    raise
                continue
            if truncations == self.truncations:
                return found

    def _check_removed(self, segments: Segments, changes: int, error: FileNotFoundError) -> None:
        """A file was not found: pass over it if segments were removed since `changes`."""
        if self._closed:
            raise UnknownTopicOrPartition(f"{self.tp} was closed") from error
        if segments.changes == changes:
            raise StorageFailed(
                f"{error.filename} is gone; stop the broker and look with `barnabas log check`"
            ) from error

    def offset_for_time(self, timestamp: int, *, up_to: int) -> TimestampOffset | None:
        """The first record before `up_to` whose timestamp is at least `timestamp`. Runs in a thread."""
        found = self._search(lambda segments: search.offset_for_time(segments, timestamp, self.log_start_offset))
        return None if found is None or found.offset >= up_to else found

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp. Runs in a thread."""
        return self._search(search.offset_of_max_timestamp)

    def _search(self, find: Callable[[tuple[Segment, ...]], _Found]) -> _Found:
        segments = self._open()
        while True:
            with self._lock:
                view, truncations, changes = segments.all, self.truncations, segments.changes
            try:
                found = find(view)
            except FileNotFoundError as error:
                self._check_removed(segments, changes, error)
                continue
            except ApiError:
                if truncations == self.truncations:
                    raise
                continue
            if truncations == self.truncations:
                return found

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of `offset`, or -1."""
        self._open()
        with self._lock:
            return self._epochs.epoch_at(offset)

    def offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where `epoch`, or the last one before it that the log has, ends."""
        self._open()
        with self._lock:
            return self._epochs.end_offset(epoch, self.log_end_offset)
