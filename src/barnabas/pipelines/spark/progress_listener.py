"""Commits the progress of a session's streams to the groups that their option `progressGroup` names.

Spark asks a source for its next batch only at the next trigger, which may be hours away or never come, and tells its
listeners of a batch as soon as it is done: so it is the listener of a session that commits. Spark tells it the offsets
of each source, but not the options, which are in the plan of the query; both are in the order in which the plan names
its streams. It tells a little later, in a thread of its own: so a program that ends when its query has ended waits for
what it has not been told yet.
"""

from __future__ import annotations

import atexit
import json
import logging
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.spark.cluster import ClusterView
from barnabas.pipelines.spark.group_progress import GROUP_SECONDS, GroupProgress, read_upto
from barnabas.pipelines.spark.read.options import stream_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

ADDED: Final = "spark.barnabas.progressListener"
"""A setting of sessions that have the listener."""

LAST_SECONDS: Final = 10.0
"""How long the end of a program waits for Spark to tell of a query that has ended."""
POLL_SECONDS: Final = 0.02

log = logging.getLogger("barnabas.pipelines")


def listen(spark: SparkSession) -> None:
    """Add the listener to a session, unless it is there."""
    if spark.conf.get(ADDED, None) is None:
        spark.streams.addListener(ProgressListener(spark))
        spark.conf.set(ADDED, "true")


class ProgressListener(StreamingQueryListener):
    """Shows the progress of those queries of a session that ask for it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._shown: dict[UUID, list[GroupSources]] = {}
        _LISTENERS.add(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Look which groups a query wants to show itself in; Spark waits for this before its first batch."""
        try:
            found = group_sources(_streams(self._spark, event.id))
        except (BarnabasError, Py4JError) as error:
            log.warning("No consumer group shows the progress of the query %s: %s", event.id, error)
            return
        if found:
            self._shown[event.runId] = found

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit where a batch ended."""
        shown = self._shown.get(event.progress.runId)
        if shown is None:
            return
        sources = json.loads(event.progress.json)["sources"]
        for each in shown:
            each.show(sources)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Try again what a group did not take."""
        for each in self._shown.get(event.runId, ()):
            each.retry()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Try for the last time, and let go."""
        for each in self._shown.pop(event.runId, ()):
            each.retry()
            each.close()

    def wait_for_last(self) -> None:
        """Wait until Spark has told of the last batches of queries that have ended; if it was stopped, it has."""
        deadline = time.monotonic() + LAST_SECONDS
        with suppress(Py4JError, OSError):  # a JVM that is gone tells nothing more
            while self._shown and self._spark.sparkContext._jsc is not None and time.monotonic() < deadline:
                if set(map(str, self._shown)) <= {query.runId for query in self._spark.streams.active}:
                    return
                time.sleep(POLL_SECONDS)


_LISTENERS: Final = weakref.WeakSet[ProgressListener]()


@atexit.register
def _wait_for_last() -> None:
    for each in list(_LISTENERS):
        each.wait_for_last()


class GroupSources:
    """Sources of one query that one group shows."""

    def __init__(self, group: str, client: Mapping[str, str]) -> None:
        self.numbers: list[int] = []
        self._client = client
        self._cluster: ClusterView | None = None
        self._progress = GroupProgress(group, self._view)
        self.retry = self._progress.retry

    def show(self, sources: Sequence[Mapping[str, Any]]) -> None:
        """Commit where a batch ended, by Spark's JSON of all sources."""
        self._progress.show(read_upto(sources[number] for number in self.numbers))

    def close(self) -> None:
        """End the connection."""
        if self._cluster is not None:
            self._cluster.close()

    def _view(self) -> ClusterView:
        if self._cluster is None:
            self._cluster = ClusterView(self._client, timeout=GROUP_SECONDS)
        return self._cluster


def group_sources(streams: Iterable[Mapping[str, str] | None]) -> list[GroupSources]:
    """The groups that streams of these options want to be shown in; None stands for a stream of others."""
    found: dict[tuple[object, ...], GroupSources] = {}
    for number, given in enumerate(streams):
        options = None if given is None else stream_options(given)
        if options is not None and (group := options.progress_group) is not None:
            key = (group, *sorted(options.client.items()))
            found.setdefault(key, GroupSources(group, options.client)).numbers.append(number)
    return list(found.values())


def _streams(spark: SparkSession, query: UUID) -> Iterator[Mapping[str, str] | None]:
    """The options of each stream that a query reads, in the order of Spark's progress; None for those of others."""
    running: Any = spark.streams.get(str(query))
    leaves = running._jsq.streamingQuery().analyzedPlan().collectLeaves()
    seen: list[Any] = []
    for leaf in map(leaves.apply, range(leaves.size())):
        if not leaf.isStreaming() or leaf in seen:  # a stream that is read twice is one source, and equal
            continue
        seen.append(leaf)
        is_ours = leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName().lower() == "barnabas"
        yield dict(leaf.extraOptions().asCaseSensitiveMap()) if is_ours else None
