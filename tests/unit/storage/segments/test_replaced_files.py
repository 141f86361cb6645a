"""A handle opens the file that it means or none, whatever has got that file's name meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.storage.log.log import Log
from barnabas.storage.segments.file_names import file_name
from barnabas.storage.segments.txn_index import AbortedTransaction, TransactionIndex
from tests.support.compaction import clean_log, compacted, keyed, settle
from tests.support.logs import NOW, TOPIC_ID, TP, UnsyncedFiles, append, file_names, oldest, read_bytes, store

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.segments.segment import FileSlice

DELAY = 60_000


class Home:
    """A compacted log whose first segment is replaced, and becomes shorter, with each cleaning."""

    def __init__(self, path: Path, delay_ms: int = 0) -> None:
        self.store: LogDirectory = store(path)
        self.config = compacted(segment_bytes=100_000, file_delete_delay_ms=delay_ms)
        self.log = self.made()
        for number in range(10):
            append(self.log, keyed([(b"%d" % number, bytes([number]) * 100)]))
        settle(self.log)

    def made(self) -> Log:
        return Log.create(TP, self.store, f"{self.store.path}/{TP}", self.config, TOPIC_ID)

    def replace(self, number: int) -> None:
        """A later record of a key: the earlier one goes."""
        append(self.log, keyed([(b"%d" % number, b"later")]))
        settle(self.log)
        before = self.log.segments[0]
        clean_log(self.log, self.store)
        assert self.log.segments[0] is not before

    def slice(self) -> FileSlice:
        """What a read of the log's beginning gives, before anybody has a lease on it."""
        (part,) = self.log.read(0, 1 << 20, self.log.log_end_offset, True).slices
        return part

    def forget(self) -> None:
        """No descriptor is left open that nobody holds, and what is due is removed."""
        self.store.pool.close_idle()
        self.store.empty_trash(self.store.clock.now_ms())


def content(part: FileSlice) -> bytes:
    return part.file.read(part.length, part.position)


def test_a_segment_that_was_removed_is_not_found_in_the_next_one_of_its_base(tmp_path: Path) -> None:
    home = Home(tmp_path)
    part = home.slice()
    home.replace(0)
    home.forget()
    home.replace(1)
    home.store.pool.close_idle()
    with pytest.raises(FileNotFoundError):
        content(part)


def test_a_segment_that_was_replaced_is_read_until_its_time_has_come(tmp_path: Path) -> None:
    """Also while those that were put in its place are replaced; and these have their own time."""
    home = Home(tmp_path, DELAY)
    parts, contents = [], []
    for number in range(3):
        parts.append(home.slice())
        contents.append(content(parts[-1]))
        home.replace(number)
        home.forget()
    assert len(set(contents)) == 3
    assert [content(part) for part in parts] == contents
    assert sum(".log." in name for name in file_names(home.log)) >= 3


def test_indexes_of_a_segment_that_was_replaced_are_its_own(tmp_path: Path) -> None:
    home = Home(tmp_path, DELAY)
    old = home.log.segments[0]
    home.store.pool.close_idle()
    for number in range(2):
        home.replace(number)
    home.forget()
    for offset in range(10):
        found = old.locate(offset, old.size)
        assert found is not None
        assert found.base_offset == offset
    assert old.time_index.last()[0] == NOW


def test_a_reader_whose_view_is_replaced_twice_gets_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    home.log.segments[0].locate(9, home.log.segments[0].size)
    read, turns = type(home.log.open()).read, [0, 1]

    def read_late(*args: object) -> object:
        while turns:
            home.replace(turns.pop(0))
            home.store.pool.close_idle()
            if turns:
                home.forget()
        return read(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(type(home.log.open()), "read", read_late)
    first = read_bytes(home.log, 9)
    assert int.from_bytes(first[:8], "big") == 9


def test_a_log_that_starts_again_twice_is_not_read_in_the_place_of_the_first(tmp_path: Path) -> None:
    home = Home(tmp_path)
    part = home.slice()
    for _ in range(2):
        home.log.truncate_fully(0)
        append(home.log, *(keyed([(b"other", b"x")]) for _ in range(20)))
        home.forget()
    home.log.truncate_fully(0)
    home.store.pool.close_idle()
    with pytest.raises(FileNotFoundError):
        content(part)


def test_a_later_topic_of_the_same_name_is_not_read_in_the_place_of_a_deleted_one(tmp_path: Path) -> None:
    home = Home(tmp_path)
    part = home.slice()
    home.replace(0)
    home.log.mark_deleted(f"{tmp_path}/gone")
    home.log = home.made()
    append(home.log, *(keyed([(b"other", b"x")]) for _ in range(20)))
    settle(home.log)
    assert home.log.remove_segments(oldest(home.log, 1), NOW)
    home.store.pool.close_idle()
    with pytest.raises(FileNotFoundError):
        content(part)


def test_a_deleted_log_has_its_own_aborted_transactions(tmp_path: Path) -> None:
    home = Home(tmp_path)
    segment = home.log.segments[0]
    ours, other = (AbortedTransaction(producer_id, 1, 2, 3) for producer_id in (1, 2))
    segment.txn_index.append(ours)
    segment.txn_index._data = b""  # as one that was found on disk
    home.log.mark_deleted(f"{tmp_path}/gone")
    home.made().segments[0].txn_index.append(other)
    assert segment.txn_index.entries() == [ours]


def test_a_transaction_index_that_is_replaced_while_it_is_opened_is_read_all_the_same(tmp_path: Path) -> None:
    ours, other = (AbortedTransaction(producer_id, 1, 2, 3) for producer_id in (1, 2))
    path = f"{tmp_path}/{file_name(0, '.txnindex')}"

    class ReplacedFiles(UnsyncedFiles):
        def read_file(self, path: str) -> bytes:
            if index.path == path and not self.exists(path + ".1.deleted") and not path.endswith(".deleted"):
                self.rename(path, path + ".1.deleted")
                index.path = path + ".1.deleted"
                TransactionIndex(self, path).append(other)
            return super().read_file(path)

    files = ReplacedFiles()
    TransactionIndex(files, path).append(ours)
    index = TransactionIndex(files, path, 34)
    assert index.entries() == [ours]


@pytest.mark.parametrize("is_told", [True, False], ids=["it knows its new name", "not yet"])
def test_a_transaction_index_whose_name_is_gone_while_it_is_opened_is_read_all_the_same(
    tmp_path: Path, is_told: bool
) -> None:
    """Whoever replaces a segment reads its index into memory first; the new one's file comes last."""
    ours = AbortedTransaction(1, 1, 2, 3)
    path = f"{tmp_path}/{file_name(0, '.txnindex')}"

    class RenamedFiles(UnsyncedFiles):
        is_replacing = False

        def read_file(self, path: str) -> bytes:
            if not self.is_replacing:
                self.is_replacing = True
                index.entries()
                self.rename(path, path + ".1.deleted")
                if is_told:
                    index.path = path + ".1.deleted"
            return super().read_file(path)

    files = RenamedFiles()
    TransactionIndex(files, path).append(ours)
    index = TransactionIndex(files, path, 34)
    assert index.entries() == [ours]
