"""What one thread does to a log holds up no other, and loses nothing that another one does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from barnabas.model.log_config import LogConfig
from tests.support.logs import (
    NOW,
    UnsyncedFiles,
    append,
    batch,
    new_log,
    oldest,
    recovered,
    reopened,
    stored,
)

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.files import DirEntry


def test_settings_that_change_while_a_log_is_loaded_are_used(tmp_path: Path) -> None:
    """Whoever changes them does not wait for that."""
    first = new_log(tmp_path)
    append(first, batch())
    log = reopened(first)
    files = log.store.files
    entries, meanwhile = files.entries, LogConfig(segment_bytes=12345)

    def entries_late(path: str) -> list[DirEntry]:
        changing = threading.Thread(target=log.update_config, args=(meanwhile,))
        changing.start()
        changing.join(timeout=30)
        assert not changing.is_alive()
        return entries(path)

    files.entries = entries_late  # type: ignore[method-assign]
    log.open()
    assert (log.config, log.segments[-1].limits._size_limit) == (meanwhile, 12345)


class StuckFiles(UnsyncedFiles):
    """Files of a disk on which renames and new snapshots take until somebody says so."""

    def __init__(self) -> None:
        self.is_stuck = False
        self.waiting = threading.Event()
        self.go_on = threading.Event()

    def _wait(self) -> None:
        if self.is_stuck:
            self.waiting.set()
            assert self.go_on.wait(30)

    def rename(self, old: str, new: str) -> None:
        self._wait()
        super().rename(old, new)

    def write_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._wait()
        super().write_file(path, data, sync=sync)


def test_batches_are_appended_and_read_and_segments_begun_while_old_ones_are_renamed(tmp_path: Path) -> None:
    files = StuckFiles()
    log = new_log(tmp_path, LogConfig(segment_bytes=1000), files)
    append(log, *(batch(1, size=200, producer_id=7, sequence=number) for number in range(10)))
    log.high_watermark = 10
    log.flush()
    files.is_stuck = True
    cleared = threading.Thread(target=log.remove_segments, args=(oldest(log, 2), NOW))
    cleared.start()
    assert files.waiting.wait(30)
    count = len(log.segments)
    append(log, *(batch(1, size=200, producer_id=7, sequence=number) for number in range(10, 20)))
    assert len(log.segments) > count
    assert len(stored(log)) == 20 - log.log_start_offset
    assert log.log_start_offset == 6
    cut = threading.Thread(target=log.truncate_to, args=(18,))  # it waits: names must not be used again meanwhile
    cut.start()
    files.is_stuck = False
    files.go_on.set()
    for thread in (cleared, cut):
        thread.join(30)
        assert not thread.is_alive()
    assert (log.log_start_offset, log.log_end_offset) == (6, 18)
    names = {path.name for path in log.directory.iterdir()}
    assert len([name for name in names if name.endswith(".deleted")]) >= 6
    log = recovered(log)
    assert len(stored(log)) == 12
    assert log.producers.ends() == {7: (17, 0)}


def test_a_log_that_is_deleted_while_old_segments_are_renamed_is_left_alone(tmp_path: Path) -> None:
    files = StuckFiles()
    log = new_log(tmp_path, LogConfig(segment_bytes=1000), files)
    append(log, *(batch(1, size=200) for _ in range(10)))
    log.high_watermark = 10
    log.flush()
    removed: list[int] = []
    files.is_stuck = True
    cleared = threading.Thread(target=lambda: removed.append(log.remove_segments(oldest(log, 2), NOW)))
    cleared.start()
    assert files.waiting.wait(30)
    assert log.is_flushing, "so the name is not used again"
    files.is_stuck = False
    log.mark_deleted(f"{tmp_path}/gone")
    files.go_on.set()
    cleared.join(30)
    assert removed == [0]
    assert not log.store.failed


def test_a_snapshot_that_was_not_written_is_not_needed(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=1000))
    append(log, *(batch(1, size=200, producer_id=7, sequence=number) for number in range(10)))
    assert len(log.segments) > 2
    assert not list(log.directory.glob("*.snapshot"))
    log = recovered(log)
    assert log.producers.ends() == {7: (9, 0)}
    append(log, batch(1, size=200, producer_id=7, sequence=10))
    log.truncate_to(8)
    assert log.producers.ends() == {7: (7, 0)}
    append(log, batch(1, size=200, producer_id=7, sequence=8))
