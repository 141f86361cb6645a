"""A topic of many partitions with few records each: they share tasks and files, and what goes wrong names its range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.errors import DataLost, PipelineError
from barnabas.pipelines.loading import plan
from barnabas.pipelines.spark.read.offsets import RANGE_COST
from barnabas.pipelines.spark.read.reading import _RangeReader
from barnabas.pipelines.tables.opening import open_table
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import content

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from barnabas.pipelines.spark.read.offsets import OffsetRange


def test_they_share_tasks_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PIECE_OFFSETS", 20 * RANGE_COST)
    topic, place = MemoryTopic(partitions=40), str(tmp_path / "t")
    for number in range(40):
        topic.send(b'{"n": %d}' % number, b"broken", partition=number)
    topic.send(b'{"n": 40}', partition=39)
    assert load_from(topic, place, monkeypatch).dead == 40
    with open_table(place, "parquet") as table:
        assert table.size().files == 2
        rows = content("parquet", place, table.schema()).column("n").to_pylist()
    assert sorted(rows) == list(range(41))
    assert content("parquet", f"{place}_dead").num_rows == 40


class Cut(MemoryTopic):
    """A topic that lost what was still to be read of its partition 2."""

    def read(self, wanted: OffsetRange, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        if wanted.partition == 2:
            reader = object.__new__(_RangeReader)
            reader._fail = True
            reader._lost("t-2 begins at offset 9 now")
        return super().read(wanted, *given, **named)


def test_an_error_names_the_range_and_the_way_out_of_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Cut(partitions=4)
    for number in range(4):
        topic.send(b"{}", partition=number)
    with pytest.raises(
        PipelineError, match=r"^t-2 \[0, 1\) could not be loaded: t-2 begins at offset 9 now$"
    ) as caught:
        load_from(topic, str(tmp_path / "t"), monkeypatch)
    assert caught.value.remedy == Remedy(RemedyKind.ALLOW_DATA_LOSS)


def test_records_of_a_new_partition_that_were_removed_before_they_were_loaded_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "t")
    topic = MemoryTopic(partitions=2)
    topic.send(b'{"n": 1}', b'{"n": 2}')
    topic.firsts = {0: 1}
    assert load_from(topic, place, monkeypatch).records == 1, "what was removed before the first start is nobody's loss"
    topic.values.append([])
    topic.send(b'{"n": 3}', b'{"n": 4}', partition=2)
    topic.firsts[2] = 1
    with pytest.raises(DataLost, match=r"t-2 was added .* 1 offsets were removed before they were loaded"):
        load_from(topic, place, monkeypatch)
    assert load_from(topic, place, monkeypatch, fail_on_data_loss=False).records == 1
    topic.firsts = {0: 2, 1: 0, 2: 2}
    assert load_from(topic, place, monkeypatch).records == 0
