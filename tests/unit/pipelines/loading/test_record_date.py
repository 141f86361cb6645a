"""A table by the day of its records, and records that have a field of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.decode.choosing import choose_decoder
from barnabas.pipelines.tables.opening import open_table
from tests.support.load_jobs import WHEN, MemoryTopic, load_from
from tests.support.tables import content

if TYPE_CHECKING:
    from pathlib import Path

BY_DAY = ["record_date"]


@pytest.mark.parametrize("first", [b'{"a": 1}', b'{"a": 1, "record_date": "x"}'])
def test_a_field_that_is_called_so_gets_another_name(
    first: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, place = MemoryTopic(), str(tmp_path / "t")
    topic.send(first)
    load_from(topic, place, monkeypatch, partition_by=BY_DAY)
    topic.send(b'{"a": 2, "record_date": "y"}', b'{"a": 3}', b'{"Record_Date": 4}')
    assert load_from(topic, place, monkeypatch).dead == 1
    topic.send(b'{"a": 5, "record_date": "z"}', b'{"record_date": 6}')
    assert load_from(topic, place, monkeypatch).dead == 1
    with open_table(place, "parquet") as table:
        found = content("parquet", place, table.schema()).sort_by("a").to_pylist()
    assert [row["a"] for row in found] == [1, 2, 3, 5]
    assert [row["record_date_value"] for row in found[1:]] == ["y", None, "z"]
    assert {row["record_date"] for row in found} == {WHEN.date()}


def test_a_field_that_a_schema_names_is_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, place = MemoryTopic(), str(tmp_path / "t")
    topic.send(b'{"record_date": "2020-02-29"}')
    load_from(topic, place, monkeypatch, decoder=choose_decoder("json", "record_date DATE"), partition_by=BY_DAY)
    with open_table(place, "parquet") as table:
        [row] = content("parquet", place, table.schema()).to_pylist()
    assert str(row["record_date"]) == "2020-02-29"
