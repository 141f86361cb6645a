from __future__ import annotations

import random
import struct
from bisect import bisect_right
from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import CorruptMessage, StorageFailed
from barnabas.storage.file_pool import FilePool
from barnabas.storage.files import ColdRead, FileSystem
from barnabas.storage.segments.indexes import OffsetIndex, TimeIndex
from barnabas.storage.segments.txn_index import AbortedTransaction, TransactionIndex, aborted_between

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BASE = 1000


@pytest.fixture
def pool() -> Iterator[FilePool]:
    pool = FilePool(FileSystem(), 8)
    yield pool
    pool.close_idle()


def offset_index(pool: FilePool, path: Path) -> OffsetIndex:
    size = path.stat().st_size if path.exists() else None
    return OffsetIndex(pool.files, pool.handle(str(path)), BASE, size)


def time_index(pool: FilePool, path: Path) -> TimeIndex:
    size = path.stat().st_size if path.exists() else None
    return TimeIndex(pool.files, pool.handle(str(path)), BASE, size)


def test_an_empty_index_points_to_the_start(pool: FilePool, tmp_path: Path) -> None:
    index = offset_index(pool, tmp_path / "x.index")
    assert index.lookup(5000) == index.last() == (BASE, 0)
    assert index.entries == 0
    times = time_index(pool, tmp_path / "x.timeindex")
    assert times.lookup(5000) == times.last() == (-1, BASE)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 300, 1000])
def test_lookups_find_the_entry_at_or_before(pool: FilePool, tmp_path: Path, count: int) -> None:
    path = tmp_path / "x.index"
    index = offset_index(pool, path)
    entries = [(BASE + 10 * number, 100 * number) for number in range(1, count + 1)]
    for number, entry in enumerate(entries):
        if number % 97 == 96:
            index.write()
        index.append(*entry)

    def check(index: OffsetIndex) -> None:
        chance = random.Random(count)
        for offset in [
            BASE,
            BASE + 9,
            BASE + 10 * count + 50,
            *(BASE + chance.randint(0, 10 * count) for _ in range(50)),
        ]:
            at = bisect_right(entries, offset, key=lambda entry: entry[0]) - 1
            expected = entries[at] if at >= 0 else (BASE, 0)
            assert index.lookup(offset) == index.lookup(offset, cached=True) == expected

    check(index)
    assert (index.entries, index.last()) == (count, entries[-1])
    index.trim()
    again = offset_index(pool, path)
    assert (again.entries, again.last()) == (count, entries[-1])
    check(again)
    assert path.read_bytes()[:8] == struct.pack(">ii", 10, 100)


def test_zeroes_at_the_end_are_no_entries(pool: FilePool, tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    entries = b"".join(struct.pack(">ii", 10 * number, 100 * number) for number in range(1, 200))
    path.write_bytes(entries.ljust(10_000, b"\x00"))
    index = offset_index(pool, path)
    assert (index.entries, index.last()) == (199, (BASE + 1990, 19_900))
    assert index.lookup(BASE + 5000) == (BASE + 1990, 19_900)
    index.append(BASE + 2000, 20_000)
    index.trim()
    assert path.read_bytes() == entries + struct.pack(">ii", 2000, 20_000)

    path.write_bytes(bytes(800))
    assert offset_index(pool, path).entries == 0


@pytest.mark.parametrize("offset", [BASE, BASE + 10, BASE + 11, BASE + 1505, BASE + 9999])
def test_truncation_drops_later_entries(pool: FilePool, tmp_path: Path, offset: int) -> None:
    index = offset_index(pool, tmp_path / "x.index")
    times = time_index(pool, tmp_path / "x.timeindex")
    for number in range(1, 301):
        index.append(BASE + 10 * number, number)
        times.append(5 * number, BASE + 10 * number)
        if number == 200:
            index.write()
            times.write()
    index.cut(index.kept_before(offset))
    times.cut(times.kept_before(offset))
    kept = sum(BASE + 10 * number < offset for number in range(1, 301))
    assert index.entries == times.entries == kept
    times.append(5 * kept + 1, offset + 1)
    assert times.last() == (5 * kept + 1, offset + 1)


def test_time_entries_only_grow(pool: FilePool, tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    times = time_index(pool, path)
    for timestamp, offset in ((50, 1001), (50, 1002), (40, 1003), (60, 1004)):
        times.append(timestamp, offset)
    assert times.entries == 2
    assert times.lookup(59) == (50, 1001)
    assert times.lookup(49) == (-1, BASE)
    times.trim()
    assert path.read_bytes() == struct.pack(">qiqi", 50, 1, 60, 4)
    again = time_index(pool, path)
    again.append(60, 1005)
    assert again.entries == 2


def test_a_file_that_cannot_be_an_index_is_known_by_its_length(pool: FilePool, tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    assert offset_index(pool, path).damaged
    path.write_bytes(b"12345")
    assert offset_index(pool, path).damaged
    path.write_bytes(b"12345678")
    index = offset_index(pool, path)
    assert not index.damaged
    path.write_bytes(b"12")
    with pytest.raises(StorageFailed):
        index.last()


def test_a_reset_index_is_empty(pool: FilePool, tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    times = time_index(pool, path)
    times.append(50, 1001)
    times.trim()
    times.append(60, 1002)
    times.reset()
    assert (times.entries, path.stat().st_size) == (0, 0)
    times.append(10, 1001)
    assert times.last() == (10, 1001)


def test_aborted_transactions_are_kept_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = TransactionIndex(FileSystem(), str(path)).truncate_to(0)
    assert index.entries() == []
    assert not path.exists()
    entries = [AbortedTransaction(number, 10 * number, 10 * number + 5, 10 * number + 6) for number in range(3)]
    for entry in entries:
        index.append(entry)
    assert index.entries() == entries
    assert path.stat().st_size == 3 * 34
    index = index.truncate_to(15)
    with pytest.raises(ColdRead):
        index.ended_since(0, cached=True)
    assert index.entries() == index.ended_since(5, cached=True) == entries[:1]
    assert index.ended_since(6, cached=True) == []
    with pytest.raises(CorruptMessage, match="34 bytes instead of 68"):
        TransactionIndex(FileSystem(), str(path), 2 * 34).entries()
    assert index.truncate_to(5).is_empty
    assert not path.exists()


def test_aborted_transactions_are_found_where_they_end(tmp_path: Path) -> None:
    indexes = [TransactionIndex(FileSystem(), str(tmp_path / f"{number}.txnindex")) for number in range(3)]
    short, long = AbortedTransaction(1, 5, 8, 2), AbortedTransaction(2, 2, 25, 26)
    late = AbortedTransaction(1, 30, 40, 41)
    indexes[0].append(short)
    indexes[2].append(long)
    indexes[2].append(late)

    def between(first: int, end: int) -> list[AbortedTransaction]:
        return aborted_between(indexes, first, end, cached=True)

    assert between(0, 2) == []
    assert between(0, 5) == [long]
    assert between(0, 9) == [short, long]
    assert between(9, 26) == [long]
    assert between(9, 31) == [long, late]
    assert between(26, 50) == [late]
    assert between(41, 50) == []


def test_the_entry_that_lies_behind_a_position(pool: FilePool, tmp_path: Path) -> None:
    index = offset_index(pool, tmp_path / "x.index")
    assert index.entry_after(0) is None
    for number in range(1, 9):
        index.append(BASE + 10 * number, 100 * number)
        if number == 5:
            index.write()
    found = [index.entry_after(position) for position in (0, 100, 101, 500, 501, 700, 800, 801)]
    expected = [(BASE + 10 * number, 100 * number) for number in (1, 1, 2, 5, 6, 7, 8)]
    assert found == [*expected, None]


def test_time_zero_at_the_base_offset_is_not_written_as_an_entry_of_zeroes(pool: FilePool, tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    index = time_index(pool, path)
    index.append(0, BASE)
    index.append(5, BASE + 1)
    index.write()
    assert path.read_bytes() == struct.pack(">qi", 5, 1)
    assert index.lookup(0) == (-1, BASE)
