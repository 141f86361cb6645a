"""Which table a sink of a pipeline has, and where its query begins."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.runner.queries import table_query
from barnabas.pipelines.runner.queries.table_query import TableQuery, table_of
from barnabas.pipelines.spark.read.offsets import OffsetRange, from_text
from barnabas.pipelines.spec import SpecError, load_pipelines
from barnabas.pipelines.spec.flows import flow_to
from barnabas.pipelines.spec.model import Pipeline, TableSink, TopicSource
from barnabas.pipelines.tables.errors import Fenced, ForeignTable, TopicReplaced
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import dead_letters_location, open_table
from tests.support.dead_letters import delivered, letters, promise
from tests.support.tables import one, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from barnabas.pipelines.spark.read.selection import Selection
    from barnabas.pipelines.tables.table import Table

pytestmark = pytest.mark.slow

NUMBERS = pa.schema([("n", pa.int64())])


def test_a_table_can_be_in_any_catalog(tmp_path: Path) -> None:
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/warehouse"}
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f'''
name = "p"
[kafka]
"bootstrap.servers" = "localhost:9092"
[sources.numbers]
topic = "numbers"
[sinks.all]
from = "numbers"
table = "shop.numbers"
format = "iceberg"
catalog = "main"
options = {{ type = "sql", uri = "{options["uri"]}", warehouse = "{options["warehouse"]}" }}
'''
    )
    [pipeline] = load_pipelines([file])
    [sink] = pipeline.sinks
    assert isinstance(sink, TableSink)
    with table_of(pipeline, sink) as table:
        table.commit("p", [], {}, [], NUMBERS)
    with open_table("shop.numbers", "iceberg", catalog="main", options=options) as table:
        assert table.position("p") is not None


class Cluster:
    """Topics of two partitions each, by the offset at which all of them end."""

    def __init__(self, **ends: int) -> None:
        self.ends = ends

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in selection.topics for number in (0, 1)]

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: f"id of {topic}" for topic in topics}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.ends[each.topic] for each in partitions}


class Begins:
    """Where the query of a pipeline begins, each time that it is prepared, without Spark."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table = str(folder / "table")
        self.format = "parquet"
        self.partition_by: Sequence[str] = ()
        self.meanwhile: Callable[[], None] = lambda: None
        """What others do after the query has looked at the table."""
        self.spark_says: SpecError | None = None
        """What Spark's plan has against keeping the table by offsets."""
        self._starts: Mapping[str, str] = {}
        monkeypatch.setattr(table_query, "make_views", self._make_views)
        monkeypatch.setattr(table_query, "check_stateless", self._check_stateless)
        monkeypatch.setattr(table_query, "table_schema", lambda _: NUMBERS)

    def _make_views(self, *arguments: Any) -> MagicMock:
        self._starts = arguments[-1]
        self.meanwhile()
        return MagicMock()

    def _check_stateless(self, *_: Any) -> None:
        if self.spark_says is not None:
            raise self.spark_says

    def __call__(self, cluster: Cluster, *topics: str, start: str) -> dict[TopicPartition, int]:
        source = TopicSource(name="numbers", topics=topics, start=start)
        sink = TableSink(
            name="all", reads="numbers", table=self.table, format=self.format, partition_by=self.partition_by
        )
        pipeline = Pipeline(name="p", sources=[source], sinks=[sink])
        with ExitStack() as resources:
            flow = flow_to(pipeline, sink)
            spark, note = cast("Any", None), cast("Any", None)
            TableQuery(spark, cast("Any", cluster), pipeline, sink, flow, resources, note).writer()
        return from_text(self._starts["numbers"])


@pytest.fixture
def begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begins:
    return Begins(tmp_path, monkeypatch)


A, B = ([TopicPartition(topic, number) for number in (0, 1)] for topic in "ab")


def test_what_begins_at_the_end_begins_there_again_until_its_first_rows(begins: Begins) -> None:
    assert begins(Cluster(a=5), "a", start="latest") == dict.fromkeys(A, 5)
    assert begins(Cluster(a=9), "a", start="latest") == dict.fromkeys(A, 5)
    both = dict.fromkeys(A, 5) | dict.fromkeys(B, 100)
    assert begins(Cluster(a=9, b=100), "a", "b", start="latest") == both, "a topic that was added to the file"
    assert begins(Cluster(a=9, b=300), "a", "b", start="latest") == both
    with open_table(begins.table, "parquet") as table:
        table.commit("p", [OffsetRange("b", 0, 100, 110)], {"b": "id of b"}, [], NUMBERS)
    assert begins(Cluster(a=9, b=300), "a", "b", start="latest") == both | {B[0]: 110}


def test_a_beginning_is_not_noted_where_spark_has_to_remember_rows(begins: Begins) -> None:
    begins.spark_says = SpecError([])
    with pytest.raises(SpecError):
        begins(Cluster(a=5), "a", start="latest")
    with open_table(begins.table, "parquet") as table:
        assert table.position("p") is None


def test_what_begins_at_the_beginning_is_noted_with_its_first_rows(begins: Begins) -> None:
    assert begins(Cluster(a=5), "a", start="earliest") == dict.fromkeys(A, 0)
    with open_table(begins.table, "parquet") as table:
        assert table.position("p") is None


def test_a_topic_that_was_made_again_is_refused_before_anything_is_asked_of_its_offsets(begins: Begins) -> None:
    with open_table(begins.table, "parquet") as table:
        table.commit("p", [OffsetRange("a", 0, 0, 7)], {"a": "another id"}, [], NUMBERS)
    with pytest.raises(TopicReplaced, match='topic "a" was deleted and created again'):
        begins(Cluster(a=5), "a", start="earliest")


T_IDS = {"t": "id of t"}


@contextmanager
def both(begins: Begins) -> Iterator[tuple[Table, Table]]:
    """The table of a query and that of its dead letters, as another process has them."""
    with (
        open_table(begins.table, begins.format, partition_by=begins.partition_by) as table,
        open_table(dead_letters_location(begins.table), begins.format) as dead,
    ):
        yield table, dead


@pytest.mark.parametrize("partition_by", [[], ["text"]], ids=["of a load", "of a pipeline"])
@pytest.mark.parametrize("kind", FORMATS)
def test_letters_that_the_last_run_promised_are_delivered_before_anything_else(
    begins: Begins, kind: str, partition_by: list[str]
) -> None:
    """A load promises them for tables that are partitioned by nothing, too; a pipeline of its name takes them over."""
    begins.format, begins.partition_by = kind, partition_by
    with both(begins) as (table, dead):
        promise(table, dead, 0, T_IDS)
    for _ in range(2):
        begins(Cluster(t=5), "t", start="latest")
        with both(begins) as (table, dead):
            assert delivered(dead) == [0]


@pytest.mark.parametrize("rows_too", [True, False])
def test_letters_of_a_table_that_was_there_before_are_refused(begins: Begins, rows_too: bool) -> None:
    begins.format, begins.partition_by = "delta", ["n"]
    with both(begins) as (table, dead):
        dead.commit("p", one(0, 9), T_IDS, written(dead, letters(8)), letters(8).schema)
        if rows_too:
            table.commit("p", one(0, 3), T_IDS, [], NUMBERS)
    found = "they reach to offset 9 of t-0, and the table does not" if rows_too else "the table is not there"
    with pytest.raises(ForeignTable, match=f"has dead letters of a table that was here before, .*{found}"):
        begins(Cluster(t=20), "t", start="earliest")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_beginning_is_not_noted_over_letters_that_another_job_has_just_promised(begins: Begins, kind: str) -> None:
    """Nobody would deliver them any more: a promise stays until the next commit."""
    begins.format, begins.partition_by = kind, ["text"]

    def another_job() -> None:
        with both(begins) as (table, dead):
            promise(table, dead, 1, T_IDS)

    with both(begins) as (table, dead):
        promise(table, dead, 0, T_IDS)
    begins.meanwhile = another_job
    with pytest.raises(Fenced, match="was changed while records were read for it"):
        begins(Cluster(t=5), "t", start="latest")
    begins.meanwhile = lambda: None
    begins(Cluster(t=5), "t", start="latest")
    with both(begins) as (_, dead):
        assert delivered(dead) == [0, 1]
