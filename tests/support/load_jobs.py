"""A load without Spark and without a broker: a topic of values in memory, and tasks that run in this process."""

from __future__ import annotations

import datetime
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.decode.json import JsonDecoder
from barnabas.pipelines.loading.job import LoadJob
from barnabas.pipelines.loading.settings import LoadSettings
from barnabas.pipelines.loading.stopping import run_beside
from barnabas.pipelines.loading.tasks import task
from barnabas.pipelines.spark.read.positions import Edge
from barnabas.pipelines.spark.read.rows import record_schema
from barnabas.pipelines.tables.opening import dead_letters_location, open_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import pytest
    from pyspark import SparkContext

    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.loading.progress import LoadProgress, LoadReport
    from barnabas.pipelines.spark.cluster import ClusterView
    from barnabas.pipelines.spark.read.offsets import OffsetRange, Offsets
    from barnabas.pipelines.spark.read.positions import Position
    from barnabas.pipelines.spark.read.selection import Selection

NAME = "t"
WHEN = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)


class MemoryTopic:
    """The topic `t`, a list of values for each partition; it answers what a load asks of a cluster."""

    def __init__(self, partitions: int = 1) -> None:
        self.values: list[list[bytes | None]] = [[] for _ in range(partitions)]
        self.firsts: dict[int, int] = {}
        """Where partitions begin whose first records were removed."""
        self.id = "topic-one"

    def send(self, *values: bytes | None, partition: int = 0) -> None:
        self.values[partition] += values

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(topics, self.id)

    def partitions(self, _: Selection) -> list[TopicPartition]:
        return [TopicPartition(NAME, number) for number in range(len(self.values))]

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.firsts.get(place.partition, 0) for place in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: len(self.values[place.partition]) for place in partitions}

    def at(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        raise NotImplementedError("no test asks for a moment")

    def commit(self, group: str, offsets: Offsets, *, timeout: float) -> None:
        """Nobody looks at the group."""

    def read(
        self, wanted: OffsetRange, _: Mapping[str, object], *, columns: Collection[str], fail_on_data_loss: bool
    ) -> Iterator[pa.RecordBatch]:
        """The records of a range, for `ranges_by`."""
        values = self.values[wanted.partition][wanted.start : wanted.end]
        every = {
            "key": [None] * len(values),
            "value": values,
            "topic": [NAME] * len(values),
            "partition": [wanted.partition] * len(values),
            "offset": list(range(wanted.start, wanted.end)),
            "timestamp": [WHEN] * len(values),
        }
        schema = record_schema(columns=columns)
        yield pa.record_batch([pa.array(every[field.name], field.type) for field in schema], schema=schema)


def ranges_by(read: Callable[..., Iterator[pa.RecordBatch]]) -> Callable[..., Any]:
    """What `reading.read_ranges` is, by a function that reads one range."""

    def read_ranges(ranges: Sequence[OffsetRange], *words: Any, **options: Any) -> Iterator[Any]:
        def batches(wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
            yield from read(wanted, *words, **options)

        return ((wanted, batches(wanted)) for wanted in ranges)

    return read_ranges


class OneProcess:
    """What a load uses of a Spark context: tasks run one after the other, here."""

    defaultParallelism = 1  # noqa: N815  (Spark's own name)

    def broadcast(self, value: Any) -> Any:
        return _Shared(value)

    def accumulator(self, zero: Any, param: Any) -> Any:
        return _Accumulator(zero, param)

    def getConf(self) -> dict[str, str]:  # noqa: N802  (Spark's own name)
        return {"spark.driver.host": "127.0.0.1"}

    def parallelize(self, pieces: Sequence[Any], _: int) -> _Pieces:
        return _Pieces(pieces)


class _Shared:
    """What is sent to tasks: one copy, which all of them share, as those of one of Spark's workers do."""

    def __init__(self, value: Any) -> None:
        self.value = pickle.loads(pickle.dumps(value))

    def destroy(self) -> None:
        """Nobody can have it any more, as with Spark's own."""
        del self.value


class _Accumulator:
    def __init__(self, zero: Any, param: Any) -> None:
        self.value = zero
        self._param = param

    def add(self, more: Any) -> None:
        self.value = self._param.addInPlace(self.value, more)


class _Pieces:
    def __init__(self, pieces: Sequence[Any]) -> None:
        self._pieces = pieces

    def map(self, function: Callable[[Any], Any]) -> _Pieces:
        return _Pieces([function(piece) for piece in self._pieces])

    def collect(self) -> list[Any]:
        return list(self._pieces)


def load_from(
    topic: MemoryTopic,
    to: str,
    patch: pytest.MonkeyPatch,
    *,
    format: str = "parquet",
    decoder: Decoder | None = None,
    starting: Position = Edge.EARLIEST,
    partition_by: Sequence[str] = (),
    fail_on_data_loss: bool = True,
    on_progress: Callable[[LoadProgress], None] = lambda _: None,
) -> LoadReport:
    """What `barnabas load --available-now` does."""
    patch.setattr(task, "read_ranges", ranges_by(topic.read))
    settings = LoadSettings(
        topic=NAME,
        pipeline="p",
        group="p",
        client={},
        decoder=decoder or JsonDecoder(),
        starting=starting,
        max_offsets_per_commit=1_000_000,
        fail_on_data_loss=fail_on_data_loss,
    )
    with (
        open_table(to, format, partition_by=partition_by) as rows,
        open_table(dead_letters_location(to), format) as dead,
    ):
        job = LoadJob(settings, cast("ClusterView", topic), rows, dead, on_progress)
        job.begin()
        run = partial(job.run, lambda: cast("SparkContext", OneProcess()), None)
        return run_beside(run, job.stopping, lambda: None)
