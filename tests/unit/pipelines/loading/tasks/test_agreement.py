"""Tasks that saw different records of JSON come to one schema, and no value gets lost on the way there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.tables.opening import open_table
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import content

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("format", ["parquet", "iceberg"])
def test_fields_that_are_found_by_decoding_again_get_columns(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, place = MemoryTopic(partitions=2), str(tmp_path / "lake" / "t")
    topic.send(b'{"a": {"x": 1}}')
    topic.send(b'{"a": 5}', b'{"a": {"y": 7}}', partition=1)
    assert load_from(topic, place, monkeypatch, format=format).dead == 1
    with open_table(place, format) as table:
        found = content(format, place, table.schema()).column("a").to_pylist()
    assert sorted(found, key=str) == [{"x": 1, "y": None}, {"x": None, "y": 7}]
