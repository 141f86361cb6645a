"""Which table a sink of a pipeline has, and where its query begins."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.offsets import OffsetRange, from_text
from barnabas.pipelines.runner import table_query
from barnabas.pipelines.runner.table_query import TableQuery, table_of
from barnabas.pipelines.spec import load_pipelines
from barnabas.pipelines.spec.flows import flow_to
from barnabas.pipelines.spec.model import Pipeline, TableSink, TopicSource
from barnabas.pipelines.tables.errors import TopicReplaced
from barnabas.pipelines.tables.opening import open_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from barnabas.pipelines.selection import Selection

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
        self._starts: Mapping[str, str] = {}
        monkeypatch.setattr(table_query, "make_views", self._make_views)
        monkeypatch.setattr(table_query, "table_schema", lambda _: NUMBERS)

    def _make_views(self, *arguments: Any) -> MagicMock:
        self._starts = arguments[-1]
        return MagicMock()

    def __call__(self, cluster: Cluster, *topics: str, start: str) -> dict[TopicPartition, int]:
        source = TopicSource(name="numbers", topics=topics, start=start)
        sink = TableSink(name="all", reads="numbers", table=self.table)
        pipeline = Pipeline(name="p", sources=[source], sinks=[sink])
        with ExitStack() as resources:
            flow = flow_to(pipeline, sink)
            TableQuery(cast("Any", None), cast("Any", cluster), pipeline, sink, flow, resources).writer()
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


def test_what_begins_at_the_beginning_is_noted_with_its_first_rows(begins: Begins) -> None:
    assert begins(Cluster(a=5), "a", start="earliest") == dict.fromkeys(A, 0)
    with open_table(begins.table, "parquet") as table:
        assert table.position("p") is None


def test_a_topic_that_was_made_again_is_refused_before_anything_is_asked_of_its_offsets(begins: Begins) -> None:
    with open_table(begins.table, "parquet") as table:
        table.commit("p", [OffsetRange("a", 0, 0, 7)], {"a": "another id"}, [], NUMBERS)
    with pytest.raises(TopicReplaced, match='topic "a" was deleted and made again'):
        begins(Cluster(a=5), "a", start="earliest")
