"""Numbers of JSON are in their column as they were written, or the record is a dead letter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.pipelines.decode.contract import METADATA
from barnabas.pipelines.decode.ddl import parse_ddl
from barnabas.pipelines.decode.json import JsonDecoder
from barnabas.pipelines.decode.tombstones import MarkedTombstones
from barnabas.pipelines.tables.opening import open_table
from tests.support.decoding import batch
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import content

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.decode.contract import Decoder

ID = 1234567890123456781
"""DOUBLE has no such number, and would have 1234567890123456768."""


def values(decoder: JsonDecoder, *texts: str) -> tuple[list[Any], list[str]]:
    """The column `n` of what fits, and why the others do not."""
    found = decoder.decode(batch([b'{"n": %s}' % text.encode() for text in texts]))
    rows = found.rows.column("n").to_pylist() if "n" in found.rows.schema.names else []
    return rows, found.dead.column("reason").to_pylist()


def test_a_whole_number_is_not_rounded_because_a_fraction_was_seen_beside_it() -> None:
    rows, dead = values(JsonDecoder(), str(ID), "1.5")
    assert rows == [ID]
    assert dead == ["n: expected BIGINT, found the number 1.5"]
    rows, dead = values(JsonDecoder(), "1.5", "2", str(ID))
    assert rows == [2, ID]
    assert dead == ["n: expected BIGINT, found the number 1.5"]
    assert values(JsonDecoder(), "1.5", "2", str(2**60)) == ([1.5, 2.0, 2.0**60], []), "DOUBLE has this one"


@pytest.mark.parametrize("text", ["%d", "[%d]", '{"x": [{"y": %d}]}'])
def test_a_whole_number_is_not_rounded_because_the_table_has_a_double(text: str) -> None:
    decoder = JsonDecoder()
    values(decoder, text.replace("%d", "1.5"))
    bound = decoder.bound(decoder.schema)
    assert isinstance(bound, JsonDecoder)
    rows, dead = values(bound, text % 1, text % ID, text % -ID, text.replace("%d", "1e300"), "null")
    assert (len(rows), len(dead)) == (3, 2)
    assert f"DOUBLE would round the number {ID}; give a schema that has BIGINT for it" in dead[0]


def test_whoever_chose_a_type_has_chosen_how_exact_it_is() -> None:
    assert values(JsonDecoder(parse_ddl("n DOUBLE")), str(ID)) == ([float(ID)], [])
    assert values(JsonDecoder(parse_ddl("n FLOAT")), "16777217") == ([16777216.0], [])


def test_a_number_that_is_too_large_does_not_become_infinite() -> None:
    rows, dead = values(JsonDecoder(parse_ddl("n FLOAT")), "1e39", "-1e39", "3.4e38", "Infinity", "NaN")
    assert rows[:2] == [pytest.approx(3.4e38), math.inf]
    assert dead == [f"n: expected FLOAT, found the number {sign}1e+39" for sign in ("", "-")]
    rows, dead = values(JsonDecoder(parse_ddl("n ARRAY<DOUBLE>")), "[1, 1e400]", "[-Infinity]")
    assert rows == [[-math.inf]]
    assert dead == ["n[1]: expected DOUBLE, found the number 1E+400"]
    rows, dead = values(JsonDecoder(), "1e400", "1.5")
    assert rows == [1.5]
    assert "beyond DOUBLE" in dead[0] or "expected DOUBLE" in dead[0]


@pytest.mark.parametrize("decoder", [JsonDecoder(), MarkedTombstones(JsonDecoder())])
@pytest.mark.parametrize("stray", [0, 1])
def test_which_task_saw_a_fraction_first_decides_nothing(
    stray: int, decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, place = MemoryTopic(partitions=2), str(tmp_path / "t")
    topic.send(b'{"id": 1.5, "of": "stray"}', partition=stray)
    topic.send(*(b'{"id": %d}' % (ID + 2 * number) for number in range(3)), partition=1 - stray)
    report = load_from(topic, place, monkeypatch, decoder=decoder)
    assert (report.records, report.dead) == (4, 1)
    assert sorted(content("parquet", place).column("id").to_pylist()) == [ID, ID + 2, ID + 4]


def test_fractions_that_come_late_make_a_new_column_double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far behind the first whole number: further than are looked at for a new field."""
    topic, place = MemoryTopic(), str(tmp_path / "t")
    topic.send(*[b'{"price": 3}'] * 1000, b'{"price": 1.5}')
    assert load_from(topic, place, monkeypatch).dead == 0
    assert sum(content("parquet", place).column("price").to_pylist()) == 3001.5


def test_a_dead_letter_adds_no_columns() -> None:
    decoder = JsonDecoder()
    found = decoder.decode(
        batch(
            [
                b'{"a": 1}',
                b'{"a": "text", "b": 1}',
                b'{"c": 1, "c": 2, "d": 1}',
                b'{"e": {"x": 1, "X": 2}, "f": 1}',
                b'{"g": "\\ud800", "h": 1}',
                b'{"a": 2, "i": {"j": 1}}',
                b'{"a": 3, "i": {"j": "text", "k": 1}}',
            ]
        )
    )
    assert found.rows.schema.names == [*METADATA.names, "a", "i"]
    assert found.rows.column("i").to_pylist() == [None, {"j": 1}]
    reasons = found.dead.column("reason").to_pylist()
    assert len(reasons) == 5
    assert reasons[1] == "c is there twice"


def test_nor_does_one_that_the_table_has_no_place_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, place = MemoryTopic(), str(tmp_path / "t")
    long = b"x" * 300
    topic.send(
        b'{"city": "%s", "other": 1, "size": "L"}' % long, b'{"city": "Ulm", "size": 5}', b'{"city": 5, "no": 1}'
    )
    assert load_from(topic, place, monkeypatch, partition_by=["city"]).dead == 2
    with open_table(place, "parquet") as table:
        schema = table.schema()
    assert schema is not None
    assert set(schema.names) - set(METADATA.names) == {"city", "size"}
    assert content("parquet", place, schema).column("size").to_pylist() == [5]
