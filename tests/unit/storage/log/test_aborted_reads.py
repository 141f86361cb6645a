"""Readers of committed records are told of the aborted ones they get, whatever becomes of the segments meanwhile."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.model.errors import OffsetOutOfRange
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.log.log import Log
from barnabas.storage.segments.segments import Segments
from tests.support.compaction import clean_log, compacted, keyed, settle
from tests.support.logs import NOW, TOPIC_ID, TP, append, batch, new_log, oldest, reopened, store
from tests.support.threads import Threads

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.storage.log.log import ReadResult

ABORTED = 7


def write_aborted(log: Log, producer_id: int = ABORTED) -> None:
    """A segment that holds an aborted transaction and nothing else."""
    abort(log, producer_id)
    settle(log)


def abort(log: Log, producer_id: int = ABORTED) -> None:
    append(log, keyed([(b"k", b"aborted")], producer_id=producer_id, sequence=0, transactional=True))
    end = EndOfTransaction(ControlType.ABORT, 0)
    append(log, build_marker(end, timestamp=NOW, producer_id=producer_id, producer_epoch=0))


def read_committed(log: Log, offset: int) -> ReadResult:
    return log.read(offset, 1 << 20, log.last_stable_offset(log.high_watermark), True, committed=True)


def in_between(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let something happen once, between finding the bytes and finding the aborted transactions among them."""
    read = Segments.read
    done: list[bool] = []

    def read_and_change(self: Segments, *wanted: Any) -> ReadResult:
        found = read(self, *wanted)
        if not done:
            done.append(True)
            change()
        return found

    monkeypatch.setattr(Segments, "read", read_and_change)


def test_a_wrong_entry_of_the_offset_index_hides_no_aborted_transaction(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(batch(3))
    log = new_log(tmp_path, LogConfig(index_interval_bytes=30 * size))  # so that one entry is before, one behind it
    append(log, *(batch(3) for _ in range(40)))
    abort(log)
    append(log, *(batch(3) for _ in range(40)))
    settle(log)
    whole, wanted = log.log_end_offset, 45 * size
    expected = log.read(0, wanted, whole, True, committed=True)
    assert [each.first_offset for each in expected.aborted] == [120]
    found_entry = log.segments[0].offset_index.entry_after(expected.slices[0].length)
    assert found_entry is not None
    log.close()
    path = log.directory / "00000000000000000000.index"
    entry, wrong = struct.pack(">II", *found_entry), struct.pack(">II", 111, found_entry[1])
    assert path.read_bytes().count(entry) == 1
    path.write_bytes(path.read_bytes().replace(entry, wrong))
    again = reopened(log)
    again.open()
    found = again.read(0, wanted, whole, True, committed=True)
    assert (found.aborted, found.slices[0].length) == (expected.aborted, expected.slices[0].length)
    assert "is damaged" in caplog.text


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_retention_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay_ms: int) -> None:
    home = store(tmp_path)
    log = Log.create(TP, home, f"{tmp_path}/{TP}", LogConfig(file_delete_delay_ms=delay_ms), TOPIC_ID)
    write_aborted(log)
    append(log, keyed([(b"k", b"good")]))
    log.high_watermark = log.log_end_offset
    in_between(monkeypatch, lambda: log.remove_segments(oldest(log, 1), NOW))
    found = read_committed(log, 0)
    assert found.size
    assert [each.producer_id for each in found.aborted] == [ABORTED]


def test_compaction_between_two_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = store(tmp_path)
    log = Log.create(TP, home, f"{tmp_path}/{TP}", compacted(), TOPIC_ID)
    write_aborted(log)
    append(log, keyed([(b"k", b"good")], producer_id=ABORTED, sequence=1))
    settle(log)

    def clean_twice() -> None:
        clean_log(log, home)  # takes the aborted records away
        clean_log(log, home)  # takes what is known of them away

    in_between(monkeypatch, clean_twice)
    found = read_committed(log, 0)
    assert [each.producer_id for each in found.aborted] == [ABORTED]
    assert not log.producers.has_aborted


def test_retention_in_a_thread(tmp_path: Path) -> None:
    log = Log.create(TP, store(tmp_path), f"{tmp_path}/{TP}", LogConfig(file_delete_delay_ms=60_000), TOPIC_ID)
    write_aborted(log)

    def remove(_: random.Random) -> None:
        if len(log.segments) > 2:
            log.remove_segments(oldest(log, 1), NOW)

    with Threads(remove):
        for producer_id in range(ABORTED + 1, ABORTED + 100):
            write_aborted(log, producer_id)
            for _ in range(5):
                start = log.log_start_offset
                try:
                    found = read_committed(log, start)
                except OffsetOutOfRange:
                    assert start < log.log_start_offset
                    continue
                assert [each.first_offset for each in found.aborted][:1] == [start]
