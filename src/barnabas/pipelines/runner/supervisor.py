"""Keeps queries running: starts them, starts them again after a failure that passes, stops them between batches.

Queries are started one after the other: each makes a Python process for its source, for which Spark waits 10 seconds
and no longer, and a busy machine takes more for many at once. The one that has waited longest is next, so that those
which wait for a broker that is away do not keep the others from theirs.

A query that fails is tried again after a pause that doubles, and is given up after `TRIES` failures without a finished
batch between them, or at once if the failure needs somebody. Then everything stops: a run in which one pipeline stands
still must not look healthy.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.runner.failures import Failure, classify_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Event

TRIES: Final = 8
"""Spark keeps Python processes of several kinds; when all were killed, each start finds out about one kind."""
FIRST_PAUSE: Final = 0.25
LOOK_EVERY: Final = 0.1
FINISH_SECONDS: Final = 60.0
"""How long a batch that is under way may take to finish after a stop was asked for."""

log = logging.getLogger("barnabas.pipelines")


class QueryFailed(PipelineError):
    """A query failed, and trying again does not help."""


class SupervisedQuery(Protocol):
    """What is supervised (`queries.SinkQuery`)."""

    name: str

    def start(self) -> None:
        """Start, where the last run ended."""

    @property
    def is_active(self) -> bool:
        """Whether it runs."""

    @property
    def is_starting(self) -> bool:
        """Whether it runs, and is still making its sources."""

    @property
    def failure(self) -> BaseException | None:
        """Why it ended."""

    @property
    def last_batch(self) -> int | None:
        """The last batch that was finished in this run."""

    @property
    def is_between_batches(self) -> bool:
        """Whether a stop interrupts nothing."""

    def close(self) -> None:
        """Stop, and let go."""


def supervise(queries: Sequence[SupervisedQuery], stop: Event, *, now: Callable[[], float] = time.monotonic) -> None:
    """Run queries until all have ended by themselves or `stop` is set. Raises QueryFailed."""
    watched = [_Watched(query, now) for query in queries]
    try:
        while not all(each.is_done for each in watched):
            waiting = [each for each in watched if each.is_due]
            for each in watched:
                each.look()
            if waiting and not any(query.is_starting for query in queries):
                min(waiting, key=lambda each: each.due).start()
            if stop.wait(LOOK_EVERY):
                break
    finally:
        _finish(queries, now)


class _Watched:
    """A query, whether it waits, runs or is done, and how often it failed in a row."""

    def __init__(self, query: SupervisedQuery, now: Callable[[], float]) -> None:
        self._query = query
        self._now = now
        self._runs = False
        self._failures = 0
        self.due = now()
        """When it is time to start it."""
        self.is_done = False

    @property
    def is_due(self) -> bool:
        """Whether it waits, and it is time to start it."""
        return not self._runs and not self.is_done and self._now() >= self.due

    def look(self) -> None:
        """See what became of it. Raises QueryFailed."""
        if not self._runs:
            return
        if self._failures and self._query.last_batch is not None:
            self._failures = 0
        if not self._query.is_active:
            self._handle_end()

    def start(self) -> None:
        """Start it, or know when to try again. Raises QueryFailed."""
        try:
            self._query.start()
        except Exception as error:
            self._handle_failure(classify_failure(error))
        else:
            self._runs = True
            log.info("query=%s started", self._query.name)

    def _handle_end(self) -> None:
        self._runs = False
        failure = self._query.failure
        if failure is not None:
            self._handle_failure(classify_failure(failure))
            return
        self.is_done = True
        log.info("query=%s has read everything", self._query.name)

    def _handle_failure(self, failure: Failure) -> None:
        self._failures += 1
        if not failure.passes:
            raise QueryFailed(f"{self._query.name}: {failure.text}").with_remedy(failure.remedy)
        if self._failures == TRIES:
            raise QueryFailed(
                f"{self._query.name} failed {TRIES} times without a finished batch: {failure.text}"
            ).with_remedy(failure.remedy)
        pause = FIRST_PAUSE * 2 ** (self._failures - 1)
        self.due = self._now() + pause
        log.warning("query=%s failed. It is started again in %g s: %s", self._query.name, pause, failure.text)


def _finish(queries: Sequence[SupervisedQuery], now: Callable[[], float]) -> None:
    """Stop queries when their batch is finished, or `FINISH_SECONDS` from now."""
    deadline = now() + FINISH_SECONDS
    waiting = {query.name: (query, query.last_batch) for query in queries}
    while waiting:
        for query, batch in list(waiting.values()):
            if query.is_between_batches or query.last_batch != batch or now() > deadline:
                query.close()
                del waiting[query.name]
        if waiting:
            time.sleep(LOOK_EVERY)
