"""Where a load begins, and that it stays there until something was loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.decode.text import Plain
from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.positions import AtOffsets, Edge
from barnabas.pipelines.tables.opening import FORMATS
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import content

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.positions import Position


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
