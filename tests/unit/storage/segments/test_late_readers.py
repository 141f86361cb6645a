"""Readers that come late, or are slow: what they note must not take the place of what is newer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.segments.indexes import TimeIndex
from tests.support.logs import NOW, SMALL, append, batch, new_log, oldest, reopened

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_slow_reader_of_the_largest_timestamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention counts from the largest timestamp: with an older one, it would remove records too early."""
    log = new_log(tmp_path)
    append(log, batch(timestamp=NOW))
    log = reopened(log)
    active = log.segments[-1]
    last = TimeIndex.last

    def last_before_an_append(index: TimeIndex) -> tuple[int, int]:
        found = last(index)
        monkeypatch.undo()
        append(log, batch(timestamp=NOW + 5000))
        return found

    monkeypatch.setattr(TimeIndex, "last", last_before_an_append)
    assert active.largest_timestamp.timestamp == NOW
    assert active.largest_timestamp.timestamp == NOW + 5000


def test_a_removed_file_is_not_kept_open_by_who_comes_late(tmp_path: Path) -> None:
    """It would take room on the disk until the descriptor is needed elsewhere."""
    log = new_log(tmp_path, SMALL)
    append(log, *[batch(10, size=50) for _ in range(6)])
    log.high_watermark = log.log_end_offset
    found = log.read(0, 1 << 20, log.log_end_offset, True)
    first = log.segments[0]
    assert log.remove_segments(oldest(log, 1), NOW) == 1
    before = log.store.pool.open_count
    assert found.slices[0].file.read(10, 0)
    assert first.file.fd == -1
    assert log.store.pool.open_count == before
