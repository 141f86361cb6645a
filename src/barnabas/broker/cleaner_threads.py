"""The threads that compact logs: each looks for the dirtiest log, has a worker process clean it, and looks again.

A thread does next to nothing itself: it waits for its worker, which is started when there is something to clean and
ended when there is nothing more. Settings are read before each cleaning, so a change takes effect with the next one;
log.cleaner.threads takes effect at once. What is allowed to all cleaners together (memory, buffers, bytes per second)
is split evenly among the threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Final

from barnabas.storage.files import SHORTAGES

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.broker.settings import Changed, Settings
    from barnabas.storage.cleaner.manager import CleanerManager
    from barnabas.storage.cleaner.process import WorkerProcess
    from barnabas.storage.cleaner.task import CleanerLimits

logger = logging.getLogger(__name__)

SMALLEST_CHUNK: Final = 4096


class CleanerThreads:
    """The cleaner threads of one broker."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._threads: list[CleanerThread] = []
        self._leaving: list[CleanerThread] = []
        """Threads that log.cleaner.threads has no room for any more, and that may not have ended yet."""
        self._manager: CleanerManager | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the threads, unless log.cleaner.enable says not to."""
        settings = self._broker.settings
        if not settings.flag("log.cleaner.enable"):
            logger.info("log.cleaner.enable is false: no topic is compacted.")
            return
        settings.subscribe(self._on_settings)
        self._resize()

    async def stop(self) -> None:
        """Stop the threads and wait for their end; what they are cleaning is broken off."""
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.stop()
        for thread in (*threads, *self._leaving):
            await asyncio.to_thread(thread.join)

    def manager(self) -> CleanerManager:
        """What the threads share; its modules are loaded when the first of them has waited, not at the start."""
        with self._lock:
            if self._manager is None:
                from barnabas.storage.cleaner.manager import CleanerManager

                self._manager = CleanerManager(self._broker.logs, self._broker.clock)
            return self._manager

    @property
    def active_manager(self) -> CleanerManager | None:
        """What the threads share, if they have looked for work already."""
        return self._manager

    @property
    def dead_threads(self) -> int:
        """Threads that have ended although nobody has stopped them."""
        return sum(not thread.is_alive() for thread in self._threads)

    def _on_settings(self, changed: Changed) -> None:
        if "log.cleaner.threads" in changed.keys:
            self._resize()
        elif "log.cleaner.backoff.ms" in changed.keys:
            for thread in self._threads:
                thread.wake()

    def _resize(self) -> None:
        wanted = self._broker.settings.number("log.cleaner.threads")
        for thread in self._threads[wanted:]:
            thread.stop()
        self._leaving = [thread for thread in (*self._leaving, *self._threads[wanted:]) if thread.is_alive()]
        del self._threads[wanted:]
        while len(self._threads) < wanted:
            thread = CleanerThread(self, self._broker.settings, f"barnabas-cleaner-{len(self._threads)}")
            self._threads.append(thread)
            thread.start()


class CleanerThread(threading.Thread):
    """Cleans one log after another, until it is stopped."""

    def __init__(self, cleaning: CleanerThreads, settings: Settings, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._cleaning = cleaning
        self._settings = settings
        self._changed = threading.Condition()
        self._stopping = False
        self._worker: WorkerProcess | None = None

    def stop(self) -> None:
        """Break off what is being cleaned, and end soon."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
            if self._worker is not None:
                self._worker.close()

    def wake(self) -> None:
        """Look at the settings again."""
        with self._changed:
            self._changed.notify()

    def run(self) -> None:
        """Wait for log.cleaner.backoff.ms whenever there is nothing to clean."""
        while self._wait():
            try:
                self._clean()
            except Exception as error:  # whatever it was: the thread must outlive it
                logger.error(
                    "Log compaction failed, trying again after log.cleaner.backoff.ms: %s",
                    error,
                    exc_info=not (isinstance(error, OSError) and error.errno in SHORTAGES),  # that is no riddle
                )

    def _clean(self) -> None:
        """Clean as long as there is something to clean."""
        worker = self._start_worker()
        if worker is None:
            return
        try:
            while not self._stopping and self._cleaning.manager().clean_next(worker, limits(self._settings)):
                pass
        finally:
            worker.end()

    def _start_worker(self) -> WorkerProcess | None:
        from barnabas.storage.cleaner.process import WorkerProcess

        with self._changed:
            self._worker = None if self._stopping else WorkerProcess()
            return self._worker

    def _wait(self) -> bool:
        """Wait; False when the thread is to end."""
        with self._changed:
            if not self._stopping:
                self._changed.wait(self._settings.number("log.cleaner.backoff.ms") / 1000)
            return not self._stopping


def limits(settings: Settings) -> CleanerLimits:
    """What one thread may use."""
    from barnabas.storage.cleaner.task import CleanerLimits

    threads = max(settings.number("log.cleaner.threads"), 1)
    return CleanerLimits(
        memory=settings.number("log.cleaner.dedupe.buffer.size") // threads,
        load_factor=settings.ratio("log.cleaner.io.buffer.load.factor"),
        chunk=max(settings.number("log.cleaner.io.buffer.size") // threads // 2, SMALLEST_CHUNK),
        bytes_per_second=settings.ratio("log.cleaner.io.max.bytes.per.second") / threads,
    )
