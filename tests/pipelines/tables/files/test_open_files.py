"""More partitions than files may be open: there are more files then, and not many times as many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from barnabas.pipelines.tables.files import writing
from barnabas.pipelines.tables.files.destinations import Destination, partition_folder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def files(place: Path, groups: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many files row groups with rows for these partitions make, if four may be open."""
    monkeypatch.setattr(writing, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(writing, "MAX_OPEN_FILES", 4)
    batches = [pa.record_batch({"day": pa.array(group), "n": pa.array(group)}) for group in groups]
    return len(writing.write_files(batches, Destination(str(place), partition_by=("day",))))


def test_one_partition_too_many_does_not_begin_all_files_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files(tmp_path, [[1, 2, 3, 4]] * 20, monkeypatch) == 4
    assert files(tmp_path, [[1, 2, 3, 4, 5]] * 20, monkeypatch) < 40, "and not 100"


def test_partitions_that_get_no_rows_any_more_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files(tmp_path, [[day, day + 1] for day in range(20)], monkeypatch) == 21


def test_a_folder_has_no_character_that_deltalake_spells_otherwise_when_it_looks_for_it() -> None:
    assert partition_folder((("c", "a~b"),)) == "c=a%7Eb"
