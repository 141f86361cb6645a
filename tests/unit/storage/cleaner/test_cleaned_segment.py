"""The files that a cleaning writes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from barnabas.storage.cleaner.worker.cleaned_segment import CleanedSegment
from tests.support.logs import UnsyncedFiles, batch

if TYPE_CHECKING:
    from pathlib import Path


def time_entries(path: Path, *batches: tuple[int, int]) -> list[tuple[int, int]]:
    """The time index of a cleaned segment whose batches have these last offsets and times."""
    out = CleanedSegment(UnsyncedFiles(), str(path), 100, 4096, lambda _: None)
    for last_offset, timestamp in batches:
        out.add(memoryview(batch()), last_offset, timestamp)
    out.finish((), 1_700_000_000_000)
    return list(struct.iter_unpack(">qi", (path / f"{100:020}.timeindex.cleaned").read_bytes()))


def test_time_zero_at_the_base_offset_is_not_written_as_an_entry_of_zeroes(tmp_path: Path) -> None:
    assert time_entries(tmp_path, (100, 0)) == []
    assert time_entries(tmp_path, (101, 0)) == [(0, 1)]
    assert time_entries(tmp_path, (100, 0), (101, 7)) == [(7, 1)]
