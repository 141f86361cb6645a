"""Flushes that run soon, in threads of their own: those that a Produce waits for, and those that nobody waits for.

Whoever waits for a log's flush while another flush of that log is under way shares the next one, so that a log is
synced once for many batches.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)

_THREADS: Final = 4


class _Waiter(NamedTuple):
    offset: int
    done: Future[int]


class FlushQueue:
    """Flushes logs in the background."""

    def __init__(self, make_executor: Callable[[int, str], Executor] = ThreadPoolExecutor) -> None:
        self._make_executor = make_executor
        self._lock = threading.Lock()
        self._waiters: dict[Log, list[_Waiter]] = {}
        self._flushing: set[Log] = set()
        self._executor: Executor | None = None
        self._is_closed = False

    def flush_through(self, log: Log, offset: int) -> Future[int]:
        """Done when everything before `offset` is on disk, with the recovery point; StorageFailed otherwise."""
        done: Future[int] = Future()
        if log.recovery_point >= offset:
            done.set_result(log.recovery_point)
            return done
        with self._lock:
            self._waiters.setdefault(log, []).append(_Waiter(offset, done))
            if log in self._flushing:
                return done
            self._flushing.add(log)
        self.submit(lambda: self._flush_for_waiters(log))
        return done

    def _flush_for_waiters(self, log: Log) -> None:
        while True:
            with self._lock:
                waiters = self._waiters.pop(log, [])
                if not waiters:
                    self._flushing.discard(log)
                    return
            try:
                recovery_point = log.flush()
            except Exception as error:
                for waiter in waiters:
                    waiter.done.set_exception(error)
                continue
            for waiter in waiters:
                if recovery_point >= waiter.offset:
                    waiter.done.set_result(recovery_point)
                else:
                    cut = NotLeaderOrFollower(f"{log.tp} was truncated before offset {waiter.offset}")
                    waiter.done.set_exception(cut)

    def submit(self, work: Callable[[], None]) -> None:
        """Have something done soon, in a thread; nothing, once this is closed."""
        with self._lock:
            if self._is_closed:
                return
            if self._executor is None:
                self._executor = self._make_executor(_THREADS, "barnabas-flush")
            try:
                self._executor.submit(work)
            except RuntimeError as error:  # it is in the queue nevertheless, and done by the next thread that starts
                logger.error(
                    "No thread could be started for a flush: %s. It runs when another one is free. If this repeats, "
                    "raise the limit of threads for the broker's user.",
                    error,
                )

    def close(self) -> None:
        """Take no more work, and wait for what is under way."""
        with self._lock:
            self._is_closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=True)
