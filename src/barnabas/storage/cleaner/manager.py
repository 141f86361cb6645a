"""Which log is cleaned next, and what is remembered of each.

The dirtiest log that is due comes first. A log whose data is damaged is *uncleanable*: the broker says so once, its
segments stay as they are, and it is tried again after a restart; everything else about it goes on. When the disk was
full, the worker died or a file could not be read, the log is put off for a while; a log that this happens to again and
again is uncleanable as well. Whatever is wrong with one log, the others get their turn.

A cleaning works with file names. One of a log that is deleted meanwhile may go on for a while, so a later log of the
same name waits for its end: otherwise both would write, and remove, the same `.cleaned` files.

A log that was not used since a clean start stays closed, as long as its file names and sizes say that it is not due.
"""

from __future__ import annotations

import errno
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import BarnabasError, StorageFailed
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.storage.cleaner.cleaner import clean
from barnabas.storage.cleaner.plan import examine, may_be_due
from barnabas.storage.cleaner.process import CleaningFailed, WorkerDied
from barnabas.storage.cleaner.report import PartitionReport, read_report, write_report
from barnabas.storage.cleaner.worker.cleaning import CleaningAborted
from barnabas.storage.files import SHORTAGES

if TYPE_CHECKING:
    from barnabas.model.clock import Clock
    from barnabas.model.ids import TopicPartition
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.cleaner.plan import LogToClean
    from barnabas.storage.cleaner.process import Cleans
    from barnabas.storage.cleaner.report import LastCleaning
    from barnabas.storage.cleaner.task import CleanerLimits
    from barnabas.storage.log.log import Log
    from barnabas.storage.manager import LogManager

logger = logging.getLogger(__name__)

FIRST_DELAY_MS: Final = 30_000
"""How long a log is put off after a failure; twice as long after the next."""
LONGEST_DELAY_MS: Final = 3_600_000
ABORTED_DELAY_MS: Final = 5_000
"""How long a log is put off whose cleaning was broken off."""
MOST_STRIKES: Final = 3
"""A log that could not be read, or whose worker died, so often without a cleaning in between is uncleanable."""

_SHORTAGES: Final = SHORTAGES | {errno.EAGAIN}


class _PutOff(NamedTuple):
    until_ms: int
    failures: int
    strikes: int
    """The failures that may be the log's fault."""


class CleanerTotals:
    """What all cleanings since the start did together."""

    def __init__(self) -> None:
        self.cleanings = 0
        self.seconds = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self.last: LastCleaning | None = None

    def add(self, done: LastCleaning) -> None:
        """Count one more."""
        self.cleanings += 1
        self.seconds += done.seconds
        self.bytes_in += done.bytes_in
        self.bytes_out += done.bytes_out
        self.last = done


class CleanerManager:
    """Cleans the logs of a broker, from as many threads as call it."""

    def __init__(self, logs: LogManager, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._lock = threading.RLock()
        self._uncleanable: dict[Log, str] = {}
        self._put_off: dict[Log, _PutOff] = {}
        self._not_due: dict[Log, LogConfig] = {}
        """Logs that had no need of opening, and the settings by which that was so."""
        self._at_work: set[TopicPartition] = set()
        """What is being cleaned, by name."""
        self._report_lock = threading.Lock()
        self._reports: dict[str, dict[str, PartitionReport]] = {}
        self.totals = CleanerTotals()

    @property
    def uncleanable(self) -> dict[Log, str]:
        """The logs that are not cleaned any more, and why."""
        return dict(self._uncleanable)

    def clean_next(self, worker: Cleans, limits: CleanerLimits) -> bool:
        """Clean the log that needs it most; False if none does. Runs in a thread, for as long as it takes."""
        todo = self._grab()
        if todo is None:
            return False
        log = todo.log
        try:
            self._clean(todo, worker, limits)
            if log.config.delete and not log.is_closed:
                self._logs.remove_expired(log, self._clock.now_ms())
        finally:
            log.upkeep.release()
            with self._lock:
                self._at_work.remove(log.tp)
        return True

    def _grab(self) -> LogToClean | None:
        """The dirtiest log that is due; its upkeep is taken, and its name is at work."""
        with self._lock:
            self._forget_gone()
            now_ms = self._clock.now_ms()
            idle = [log for log in self._logs.logs() if log.tp not in self._at_work and not log.upkeep.locked()]
            due = [todo for log in idle if (todo := self._examine(log, now_ms)) is not None]
            for todo in sorted(due, key=lambda todo: todo.ratio, reverse=True):
                if todo.log.upkeep.acquire(blocking=False):
                    found = self._examine(todo.log, now_ms)  # retention may have been there
                    if found is not None:
                        self._at_work.add(todo.log.tp)
                        return found
                    todo.log.upkeep.release()
        return None

    def _examine(self, log: Log, now_ms: int) -> LogToClean | None:
        if not log.config.compact or log.is_failed or log.is_closed or log in self._uncleanable:
            return None
        put_off = self._put_off.get(log)
        if put_off is not None and now_ms < put_off.until_ms:
            return None
        try:
            if not log.is_open and not self._needs_opening(log):
                return None
            todo = examine(log, now_ms)
        except Exception as error:
            self._handle_failure(log, error)
            return None
        if not todo.is_due:
            self._put_off.pop(log, None)
            return None
        return todo

    def _needs_opening(self, log: Log) -> bool:
        """Whether a log that is not open may be due. Its files do not change, so they are looked at once."""
        config = log.config
        if self._not_due.get(log) is config:
            return False
        if may_be_due(log, self._logs.pool.files.entries(str(log.directory))):
            return True
        self._not_due[log] = config
        return False

    def _clean(self, todo: LogToClean, worker: Cleans, limits: CleanerLimits) -> None:
        log = todo.log
        try:
            done = clean(todo, log.store, worker, limits, self._clock.now_ms())
            self._logs.checkpoint_cleaned(log)
        except Exception as error:
            self._handle_failure(log, error)
        else:
            self._put_off.pop(log, None)
            self._note(log, done)

    def _handle_failure(self, log: Log, error: Exception) -> None:
        """Put a log off, or give it up, by what went wrong; a log that was deleted meanwhile is left to that."""
        if log.is_closed or isinstance(error, CleaningAborted):
            self._delay_aborted(log)
            logger.info("Cleaning of %s was broken off: %s. It is tried again later.", log.tp, error)
        elif isinstance(error, (CleaningFailed, StorageFailed)) or _is_shortage(error):
            self._delay(log, strike=False)
            logger.warning("%s was not cleaned: %s. It is tried again later.", log.tp, error)
        elif isinstance(error, (WorkerDied, OSError)):
            if self._delay(log, strike=True) >= MOST_STRIKES:
                self._give_up(log, f"{error} (tried {MOST_STRIKES} times)")
            else:
                logger.warning("%s was not cleaned: %s. It is tried again later.", log.tp, error)
        elif isinstance(error, BarnabasError):
            self._give_up(log, str(error))
        else:
            logger.error(
                "Cleaning of %s failed by a defect of Barnabas; please report the stack below.", log.tp, exc_info=error
            )
            self._give_up(log, f"{type(error).__name__}: {error}")

    def _delay(self, log: Log, *, strike: bool) -> int:
        """Put a log off, longer each time; returns how often that may have been its own fault."""
        with self._lock:
            _, failures, strikes = self._put_off.get(log, _PutOff(0, 0, 0))
            delay_ms = min(FIRST_DELAY_MS << failures, LONGEST_DELAY_MS)
            strikes += strike
            self._put_off[log] = _PutOff(self._clock.now_ms() + delay_ms, failures + 1, strikes)
        return strikes

    def _delay_aborted(self, log: Log) -> None:
        """Put a log off for a moment: nothing is wrong with it."""
        with self._lock:
            before = self._put_off.get(log, _PutOff(0, 0, 0))
            self._put_off[log] = before._replace(until_ms=self._clock.now_ms() + ABORTED_DELAY_MS)

    def _give_up(self, log: Log, reason: str) -> None:
        self._uncleanable[log] = reason
        logger.error(
            "%s is not cleaned any more until the broker starts again. It can be read and written as before, but "
            "grows: %s",
            log.tp,
            BarnabasError(reason).with_remedy(Remedy(RemedyKind.CHECK_LOG, str(log.directory))),
        )
        self._report(log, None, reason)

    def _note(self, log: Log, done: LastCleaning) -> None:
        with self._report_lock:
            self.totals.add(done)
        logger.info(
            "Cleaned %s from offset %d to %d in %.1f s: %d of %d records and %d of %d bytes stay, %d keys.",
            log.tp,
            done.first_dirty,
            done.cleaned_to,
            done.seconds,
            done.records_out,
            done.records_in,
            done.bytes_out,
            done.bytes_in,
            done.keys,
        )
        self._report(log, done, None)

    def _report(self, log: Log, done: LastCleaning | None, uncleanable: str | None) -> None:
        """Bring the directory's report up to date."""
        directory = str(log.log_dir)
        files = self._logs.pool.files
        with self._report_lock:
            try:
                reports = self._reports.get(directory)
                if reports is None:
                    found = read_report(files, directory)
                    reports = {name: replace(report, uncleanable=None) for name, report in found.items()}
                    self._reports[directory] = reports
                known = {str(each.tp) for each in self._logs.logs_in(log.log_dir)}
                for gone in reports.keys() - known:
                    del reports[gone]
                before = reports.get(str(log.tp), PartitionReport())
                reports[str(log.tp)] = PartitionReport(
                    cleanings=before.cleanings + (done is not None),
                    last=before.last if done is None else done,
                    uncleanable=uncleanable,
                )
                write_report(files, directory, reports)
            except OSError as error:
                logger.warning("Could not write the report of the cleaner in %s: %s", directory, error)

    def _forget_gone(self) -> None:
        """Drop what is remembered of logs that were deleted."""
        known = (*self._uncleanable, *self._put_off, *self._not_due)
        for log in [log for log in known if self._logs.get(log.tp) is not log]:
            self._uncleanable.pop(log, None)
            self._put_off.pop(log, None)
            self._not_due.pop(log, None)


def _is_shortage(error: Exception) -> bool:
    """Whether the machine had too little of something, which says nothing of the log."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SHORTAGES)
