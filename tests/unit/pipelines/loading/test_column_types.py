"""Columns that a format cannot have are told before anything is read; one that is found by records stops nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.decode.avro import AvroDecoder
from barnabas.pipelines.decode.choosing import choose_decoder
from barnabas.pipelines.tables.errors import SchemaConflict
from barnabas.pipelines.tables.formats import FORMATS
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import content

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.decode.contract import Decoder

pytestmark = pytest.mark.slow

TIME_OF_DAY = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "at", "type": {"type": "int", "logicalType": "time-millis"}}],
}


class Unread(MemoryTopic):
    """A topic that nobody may read."""

    def read(self, *_: object, **__: object) -> None:  # type: ignore[override]
        raise AssertionError("it was read")


@pytest.mark.parametrize(
    ("kind", "decoder", "why"),
    [
        ("delta", AvroDecoder(json.dumps(TIME_OF_DAY)), 'Delta has no type for the column "at", which is time64'),
        ("iceberg", choose_decoder("json", "`a.b` INT, a STRUCT<b: INT>"), "multiple fields for name a.b"),
    ],
)
def test_a_schema_that_a_format_cannot_have(
    tmp_path: Path, kind: str, decoder: Decoder, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Unread()
    topic.send(b"{}")
    with pytest.raises(SchemaConflict, match=why):
        load_from(topic, str(tmp_path / "t"), monkeypatch, format=kind, decoder=decoder)


@pytest.mark.parametrize("kind", FORMATS)
def test_records_whose_fields_come_to_one_name(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, place = MemoryTopic(partitions=2), str(tmp_path / "lake" / "t")
    topic.send(b'{"a.b": 1}', b'{"a.b": 2, "a": {"b": 3}}')
    topic.send(b'{"a": {"b": 4, "c": 5}}', b'{"a": {"c": 6}}', partition=1)
    assert load_from(topic, place, monkeypatch, format=kind).dead == 2
    topic.send(b'{"a": {"b": 7}}')
    assert load_from(topic, place, monkeypatch, format=kind).dead == 1
    rows = content(kind, place).select(["_partition", "_offset"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(0, 0), (1, 1)]
