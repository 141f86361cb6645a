"""A table by a column of JSON whose first records do not have it: they stop nothing, and none of them gets lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.decode.choosing import choose_decoder
from barnabas.pipelines.tables.errors import SchemaConflict
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import content

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    import pyarrow as pa

pytestmark = pytest.mark.slow

BY_CITY = ["city"]


class OneByOne(MemoryTopic):
    """A topic that is read in batches of one record."""

    def read(self, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in super().read(*given, **named):
            yield from (batch.slice(index, 1) for index in range(batch.num_rows))


@pytest.mark.parametrize("kind", FORMATS)
def test_records_without_it_come_first(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, place = OneByOne(partitions=3), str(tmp_path / "lake" / "t")
    topic.send(b"broken", None, b'{"n": 1}', b'{"n": 2, "city": "Ulm", "more": 1}', b'{"n": 3}')
    topic.send(b'{"n": 4, "city": "Bern"}', b"[]", partition=1)
    topic.send(b'{"n": 5}', None, partition=2)
    assert load_from(topic, place, monkeypatch, format=kind, partition_by=BY_CITY).dead == 2
    with open_table(place, kind) as table:
        rows = content(kind, place, table.schema()).to_pylist()
    found = {(row["_partition"], row["_offset"]): (row["n"], row["city"]) for row in rows}
    assert len(found) == len(rows)
    assert found == {
        (0, 1): (None, None),
        (0, 2): (1, None),
        (0, 3): (2, "Ulm"),
        (0, 4): (3, None),
        (1, 0): (4, "Bern"),
        (2, 0): (5, None),
        (2, 1): (None, None),
    }
    dead = content(kind, f"{place}_dead").to_pylist()
    assert {(row["partition"], row["offset"]) for row in dead} == {(0, 0), (1, 1)}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("values", [[b"broken"], [None], [b'{"n": 1}'], [b'{"city": {"name": "Ulm"}}']])
def test_a_table_waits_for_it_and_takes_a_schema(
    tmp_path: Path, kind: str, values: list[bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, place = MemoryTopic(), str(tmp_path / "lake" / "t")
    topic.send(*values)
    with pytest.raises(SchemaConflict, match=r'column "city".*Give a schema'):
        load_from(topic, place, monkeypatch, format=kind, partition_by=BY_CITY)
    with open_table(place, kind) as table:
        assert table.position("p") is None
    decoder = choose_decoder("json", "n BIGINT, city STRING")
    assert load_from(topic, place, monkeypatch, format=kind, decoder=decoder, partition_by=BY_CITY).records == 1
