"""`spark.readStream.format("barnabas")`: how far each batch of a stream goes, and what it reads.

Spark keeps one `StreamReader` in a Python process beside the driver for as long as a query runs, and asks it for
offsets; other copies of it, made from the same options, read in tasks. What has to hold:

- **A batch is the same when it is replayed.** Its end is in Spark's checkpoint. Its start is too, but for batch 0, for
  which `initialOffset` is asked again: a stream that begins at the end, or at a moment, might begin elsewhere then. So
  its batch 0 is empty and ends where it begins, which pins the place in the checkpoint; a start past the end, as such a
  replay may find, means nothing to read.
- **`latestOffset(start)` means that everything before `start` is done.** Spark asks for the next batch only after it
  has finished the last one, whether or not there is more to read. So that is when progress is committed to the group of
  `progressGroup`, where no `ProgressListener` does so earlier. Spark's own `commit` comes later: only when there is
  another batch with data.
- **Offsets only grow.** A new leader may not know the newest offsets yet, so an end below the start is asked for again
  for a while before it counts as loss.
- **A partition that is new begins at its beginning**: `start` lacks it, and `offsets.between` takes that for 0. What
  retention has removed of it is a loss, as in Spark, but counts for no limit.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.errors import DataLost, TopicMissing
from barnabas.pipelines.spark.cluster import ClusterView
from barnabas.pipelines.spark.read.offsets import between, from_nested, limit_ends, to_nested
from barnabas.pipelines.spark.read.positions import moves, offsets_at
from barnabas.pipelines.spark.read.tasks import read_task, tasks, wanted_columns, with_source_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.spark.read.offsets import Nested, Offsets
    from barnabas.pipelines.spark.read.options import SourceOptions

DISCOVERY_SECONDS: Final = 1.0
"""How long a list of partitions is good for; Spark may ask for offsets sixty times a second."""
SHORT_SECONDS: Final = 10.0
"""How long a partition may say that it ends before the start: a new leader needs a moment to know better."""
MISSING_SECONDS: Final = 10.0
"""How long a partition that was read may be missing before a stream goes on without it, if it is allowed to: should it
come back later, it is read from its beginning.
"""
RETRY_SECONDS: Final = 0.2
GROUP_SECONDS: Final = 10.0
"""How long a group's coordinator is waited for, and how long one that took no progress is left alone."""
LAST_SECONDS: Final = 1.0
"""How long it is waited for by a query that is to stop."""

T = TypeVar("T")

log = logging.getLogger("barnabas.pipelines")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches beside the driver, reads in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = wanted_columns(schema, options)
        self._cluster: ClusterView | None = None
        self._partitions: list[TopicPartition] = []
        self._discovered = float("-inf")
        self._expects_all = True
        """Whether a topic that is named and missing is an error, and not only a loss."""
        self._initial: Offsets | None = None
        self._pinned = not moves(options.starting)
        self._target: Offsets | None = None
        """Where a run with Trigger.AvailableNow ends."""
        self._ends: Offsets | None = None
        self._triggered = float("-inf")
        """When a batch last was large enough, or late enough; the first one is late, as in Spark."""
        self._done: Offsets = {}
        self._committed: Offsets | None = None
        self._next_commit = float("-inf")

    # What Spark asks for beside the driver

    def initialOffset(self) -> Nested:
        """Where a query without a checkpoint begins; the same whenever it is asked."""
        if self._initial is None:
            options, cluster = self._options, self._view()
            late = options.too_late_is_end
            self._expect_all(True)
            self._initial = self._of_found(
                lambda partitions: offsets_at(options.starting, partitions, cluster, too_late_is_end=late)
            )
        return to_nested(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say about the size of batches."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """This run ends where the partitions end now."""
        self._expect_all(self._options.fail_on_data_loss)
        self._target = self._of_found(self._view().latest)

    def latestOffset(self, start: Nested, limit: ReadLimit) -> Nested:
        """Where the next batch ends: `start` if there is none. Everything before `start` is done."""
        self._done = begin = from_nested(start)
        self._expect_all(self._options.fail_on_data_loss)
        if time.monotonic() >= self._next_commit:
            self._commit(GROUP_SECONDS)
        if not self._pinned and begin == self._initial:
            self._pinned = True
            return start
        self._ends = ends = self._available(begin)
        if isinstance(limit, ReadAllAvailable):
            return to_nested(ends)
        counted = begin | self._firsts(ends.keys() - begin.keys())
        ends = {each: end for each, end in ends.items() if each in counted}
        if self._too_little(counted, ends):
            return start
        return to_nested(limit_ends(counted, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends)

    def reportLatestOffset(self) -> Nested | None:
        """Where the partitions ended when the last batch was planned: Spark shows it beside what it has read."""
        return None if self._ends is None else to_nested(self._ends)

    def partitions(self, start: Nested, end: Nested) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        return tasks(between(from_nested(start), from_nested(end)), self._options)

    def commit(self, end: Nested) -> None:
        """Nothing: `latestOffset` has committed it, or will."""

    def stop(self) -> None:
        """End the connection. What the group did not take before is tried once more."""
        if self._cluster is not None:
            self._commit(LAST_SECONDS)
            self._cluster.close()

    # What Spark asks for in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a range."""
        return read_task(partition, self._options, self._columns)

    # How it is found

    def _view(self) -> ClusterView:
        if self._cluster is None:
            self._cluster = ClusterView(self._options.client)
        return self._cluster

    def _discover(self) -> list[TopicPartition]:
        now = time.monotonic()
        if now - self._discovered > DISCOVERY_SECONDS:
            self._partitions = self._view().partitions(self._options.selection, only_present=not self._expects_all)
            self._discovered = now
        return self._partitions

    def _expect_all(self, expects_all: bool) -> None:
        """A query begins only where all topics are that it names; later it may go on without one that was deleted."""
        if expects_all != self._expects_all:
            self._expects_all, self._discovered = expects_all, float("-inf")

    def _of_found(self, ask: Callable[[list[TopicPartition]], T]) -> T:
        """What is asked of the partitions to read. A topic that was deleted meanwhile, and may be, is left out."""
        deadline = time.monotonic() + SHORT_SECONDS
        while True:
            try:
                return ask(self._discover())
            except TopicMissing:
                self._discovered = float("-inf")
                may_be_gone = self._options.selection.pattern is not None or not self._expects_all
                if not may_be_gone or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _firsts(self, new: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """Where new partitions begin, without those that are gone again."""
        if not new:
            return {}
        return self._of_found(lambda found: self._view().earliest([each for each in found if each in new]))

    def _available(self, begin: Offsets) -> dict[TopicPartition, int]:
        """How far a batch may go: to the ends of all partitions, and not past the target of this run.

        An end that lies before `begin` is where reading goes on, since the records between are lost.
        """
        ends, target = self._ends_from(begin), self._target
        if target is None:
            return ends
        return {
            each: end if end < begin.get(each, 0) else max(begin.get(each, 0), min(end, target.get(each, 0)))
            for each, end in ends.items()
        }

    def _ends_from(self, begin: Offsets) -> dict[TopicPartition, int]:
        """The ends of the partitions of this run, none of which lies before `begin` unless records were lost."""
        began = time.monotonic()
        while True:
            ends = self._of_found(
                lambda found: self._view().latest(each for each in found if each in begin or self._is_wanted(each))
            )
            ends |= self._read_before_commit(begin, ends)
            short = [each for each in sorted(ends) if ends[each] < begin.get(each, 0)]
            waited = time.monotonic() - began
            awaits = not self._options.fail_on_data_loss and begin.keys() - ends.keys() and waited <= MISSING_SECONDS
            if not short and not awaits:
                break
            if short and waited > SHORT_SECONDS:
                first = short[0]
                self._lost(
                    f"{first} ends at offset {ends[first]}, and {begin[first]} was to be read next: the topic was made "
                    "anew or its log was cut off"
                )
                break
            time.sleep(RETRY_SECONDS)
            if awaits:
                self._discovered = float("-inf")
        self._notice_gone(begin, ends)
        return ends

    def _read_before_commit(self, begin: Offsets, ends: Offsets) -> dict[TopicPartition, int]:
        """The starts that lie in an open transaction, as in a checkpoint of a source that reads what is not committed.

        Nothing is lost then, and there is nothing to read before the transaction ends.
        """
        past = {each for each, end in ends.items() if end < begin.get(each, 0)}
        if not past:
            return {}
        whole = self._of_found(lambda found: self._view().latest([e for e in found if e in past], open_too=True))
        return {each: begin[each] for each, end in whole.items() if end >= begin[each]}

    def _is_wanted(self, partition: TopicPartition) -> bool:
        """Whether it is read in this run: with Trigger.AvailableNow, new partitions are left to the next."""
        return self._target is None or partition in self._target

    def _notice_gone(self, begin: Offsets, ends: Offsets) -> None:
        wanted = begin.keys() | (self._target or {}).keys()
        if gone := sorted(wanted - ends.keys()):
            self._lost(f"{', '.join(map(str, gone))} is not read or not there any more, after records of it were")
            self._target = self._target and {each: end for each, end in self._target.items() if each in ends}

    def _too_little(self, begin: Offsets, ends: Offsets) -> bool:
        wanted = self._options.min_offsets
        if wanted is None or self._target is not None:
            return False
        now = time.monotonic()
        is_late = now - self._triggered >= self._options.max_delay
        if not is_late and sum(each.size for each in between(begin, ends)) < wanted:
            return True
        self._triggered = now
        return False

    def _commit(self, timeout: float) -> None:
        group = self._options.progress_group
        if group is None or not self._done or self._done == self._committed:
            return
        try:
            self._view().commit(group, self._done, timeout=timeout)
            self._committed = self._done
        except BarnabasError as error:
            log.warning("Offsets were not committed to the consumer group %s: %s", group, error)
            self._next_commit = time.monotonic() + GROUP_SECONDS

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise with_source_option(DataLost(what))
        log.warning("%s. Reading goes on without these records.", what)
