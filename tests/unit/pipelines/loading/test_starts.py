"""Where a load begins, and that it stays there until something was loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.decode.text import Plain
from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.loading.api import load
from barnabas.pipelines.spark.read.positions import AtOffsets, Edge
from barnabas.pipelines.tables.contract import Compaction
from barnabas.pipelines.tables.errors import SchemaConflict
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import NO_TIME, content

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.spark.read.positions import Position


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "lake" / "t")


@pytest.mark.parametrize("format", FORMATS)
def test_a_load_that_begins_at_the_end_loads_what_comes_after_its_first_start(
    format: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = MemoryTopic(partitions=2)
    topic.send(b"before")
    decoder = Plain(pa.string())
    for _ in range(2):
        found = load_from(topic, place, monkeypatch, format=format, decoder=decoder, starting=Edge.LATEST)
        assert found.records == 0
    topic.send(b"after")
    topic.send(b"also after", partition=1)
    found = load_from(topic, place, monkeypatch, format=format, decoder=decoder, starting=Edge.LATEST)
    assert found.records == 2
    assert sorted(content(format, place).column("value").to_pylist()) == ["after", "also after"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_that_has_no_rows_yet_is_looked_after_like_others(
    format: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_from(MemoryTopic(), place, monkeypatch, format=format, decoder=Plain(pa.string()), starting=Edge.LATEST)
    with open_table(place, format) as table:
        assert table.compact(1 << 20) == Compaction(0, 0)
        table.expire(NO_TIME)
        table.remove_orphans(NO_TIME)
        assert table.size().rows == 0
    assert content(format, place).num_rows == 0


@pytest.mark.parametrize("topic", ["", "a/b", "orders, fines", "x" * 250])
def test_what_cannot_name_a_topic_is_told_before_a_broker_is_asked(topic: str, place: str) -> None:
    with pytest.raises(InvalidOption, match="cannot be the name of a topic"):
        load(topic, place, bootstrap_servers="localhost:1")


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_is_partitioned_by_a_list_of_columns_each_once(format: str, place: str) -> None:
    with pytest.raises(SchemaConflict, match=r"a list of columns: \['record_date'\]"):
        open_table(place, format, partition_by="record_date")
    with pytest.raises(SchemaConflict, match="cannot be partitioned twice by city"):
        open_table(place, format, partition_by=["city", "day", "city"])


@pytest.mark.parametrize("starting", [Edge.LATEST, AtOffsets({TopicPartition("t", 0): -1})])
def test_columns_that_are_found_later_join_a_table_that_was_empty(
    starting: Position, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = MemoryTopic()
    topic.send(b'{"n": 1}')
    assert load_from(topic, place, monkeypatch, starting=starting).records == 0
    topic.send(b'{"n": 2}')
    assert load_from(topic, place, monkeypatch, starting=starting).records == 1
    assert content("parquet", place).column("n").to_pylist() == [2]


def test_a_table_without_rows_needs_a_schema_that_has_what_it_is_partitioned_by(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidOption, match=r'no column "country" to partition by.*Give a schema'):
        load_from(MemoryTopic(), place, monkeypatch, starting=Edge.LATEST, partition_by=["country"])
