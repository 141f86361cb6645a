"""Which log is cleaned next, and what is remembered of each.

The dirtiest log that is due comes first. A log whose data is damaged is *uncleanable*: the broker says so once, its
segments stay as they are, and it is tried again after a restart; everything else about it goes on. When the disk was
full, or the worker died, the log is put off for a while, so that the others get their turn.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import BarnabasError, StorageFailed
from barnabas.storage.cleaner.cleaner import clean
from barnabas.storage.cleaner.cleaning import CleaningAborted
from barnabas.storage.cleaner.plan import examine
from barnabas.storage.cleaner.process import CleaningFailed, Uncleanable, WorkerDied
from barnabas.storage.cleaner.report import PartitionReport, read_report, write_report

if TYPE_CHECKING:
    from barnabas.model.clock import Clock
    from barnabas.storage.cleaner.plan import LogToClean
    from barnabas.storage.cleaner.process import Cleans
    from barnabas.storage.cleaner.report import LastCleaning
    from barnabas.storage.cleaner.task import Limits
    from barnabas.storage.log import Log
    from barnabas.storage.manager import LogManager

logger = logging.getLogger(__name__)

FIRST_DELAY_MS: Final = 30_000
"""How long a log is put off after a failure; twice as long after the next."""
LONGEST_DELAY_MS: Final = 3_600_000
MOST_DEATHS: Final = 3
"""A log over which so many workers died, one after another, is uncleanable."""


class _PutOff(NamedTuple):
    until_ms: int
    failures: int


class CleanerManager:
    """Cleans the logs of a broker, from as many threads as call it."""

    def __init__(self, logs: LogManager, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._lock = threading.Lock()
        self._uncleanable: dict[Log, str] = {}
        self._put_off: dict[Log, _PutOff] = {}
        self._report_lock = threading.Lock()
        self._reports: dict[str, dict[str, PartitionReport]] = {}

    @property
    def uncleanable(self) -> dict[Log, str]:
        """The logs that are not cleaned any more, and why."""
        return dict(self._uncleanable)

    def clean_next(self, worker: Cleans, limits: Limits) -> bool:
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
        return True

    def _grab(self) -> LogToClean | None:
        """The dirtiest log that is due; its upkeep is taken."""
        with self._lock:
            self._forget_gone()
            now_ms = self._clock.now_ms()
            due = [todo for log in self._logs.logs() if (todo := self._examine(log, now_ms)) is not None]
            for todo in sorted(due, key=lambda todo: todo.ratio, reverse=True):
                if todo.log.upkeep.acquire(blocking=False):
                    found = self._examine(todo.log, now_ms)  # retention may have been there
                    if found is not None:
                        return found
                    todo.log.upkeep.release()
        return None

    def _examine(self, log: Log, now_ms: int) -> LogToClean | None:
        if not log.config.compact or log.is_failed or log in self._uncleanable:
            return None
        put_off = self._put_off.get(log)
        if put_off is not None and now_ms < put_off.until_ms:
            return None
        if not log.is_open and log.cleaned_to == log.log_end_offset:
            return None
        try:
            todo = examine(log, now_ms)
        except (BarnabasError, OSError) as error:
            if not log.is_closed:
                self._give_up(log, str(error))
            return None
        return todo if todo.is_due else None

    def _clean(self, todo: LogToClean, worker: Cleans, limits: Limits) -> None:
        log = todo.log
        try:
            done = clean(todo, self._logs.store_of(log), worker, limits, self._clock.now_ms())
            self._logs.checkpoint_cleaned(log)
        except CleaningAborted as error:
            logger.info("the cleaning of %s was broken off: %s", log.tp, error)
        except Uncleanable as error:
            self._give_up(log, str(error))
        except WorkerDied as error:
            if self._delay(log) >= MOST_DEATHS:
                self._give_up(log, f"{error}, for the {MOST_DEATHS}rd time over this log")
            else:
                logger.warning("%s was not cleaned, and is tried again later: %s", log.tp, error)
        except (CleaningFailed, StorageFailed) as error:
            self._delay(log)
            logger.warning("%s was not cleaned, and is tried again later: %s", log.tp, error)
        else:
            self._put_off.pop(log, None)
            self._note(log, done)

    def _delay(self, log: Log) -> int:
        """Put a log off; returns how often it has failed now."""
        with self._lock:
            before = self._put_off.get(log)
            failures = 1 if before is None else before.failures + 1
            delay_ms = min(FIRST_DELAY_MS << (failures - 1), LONGEST_DELAY_MS)
            self._put_off[log] = _PutOff(self._clock.now_ms() + delay_ms, failures)
        return failures

    def _give_up(self, log: Log, reason: str) -> None:
        self._uncleanable[log] = reason
        logger.error(
            "%s is not cleaned any more until the broker starts again: %s; it can be read and written as before, but "
            "grows. Look with `barnabas log check %s`",
            log.tp,
            reason,
            log.directory,
        )
        self._report(log, None, reason)

    def _note(self, log: Log, done: LastCleaning) -> None:
        logger.info(
            "cleaned %s from %d to %d in %.1f s: %d of %d records and %d of %d bytes stay, %d keys",
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
            try:
                write_report(files, directory, reports)
            except OSError as error:
                logger.warning("could not write what the cleaner did in %s: %s", directory, error)

    def _forget_gone(self) -> None:
        """Drop what is remembered of logs that were deleted."""
        for log in [log for log in (*self._uncleanable, *self._put_off) if self._logs.get(log.tp) is not log]:
            self._uncleanable.pop(log, None)
            self._put_off.pop(log, None)
