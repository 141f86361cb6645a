from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from barnabas.storage.files import FilePool, FileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.files import FileHandle


@pytest.fixture
def pool() -> FilePool:
    return FilePool(FileSystem(), 8)


def handles(pool: FilePool, tmp_path: Path, count: int) -> list[FileHandle]:
    for number in range(count):
        (tmp_path / str(number)).write_bytes(b"content %d" % number)
    return [pool.handle(str(tmp_path / str(number))) for number in range(count)]


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_files_are_opened_when_needed_and_closed_when_too_many(pool: FilePool, tmp_path: Path) -> None:
    made = handles(pool, tmp_path, 30)
    assert pool.open_count == 0
    for number, handle in enumerate(made):
        assert handle.read(100, 0) == b"content %d" % number
    assert pool.open_count == 8
    pool.close_idle()
    assert pool.open_count == 0


def test_the_file_that_was_not_used_for_longest_goes_first(pool: FilePool, tmp_path: Path) -> None:
    made = handles(pool, tmp_path, 9)
    for handle in (*made[:8], made[0], made[8]):
        handle.read(1, 0)
    assert made[0].fd >= 0
    assert made[1].fd < 0
    pool.close_idle()


def test_a_lease_holds_a_file_open(pool: FilePool, tmp_path: Path) -> None:
    held, *others = handles(pool, tmp_path, 30)
    fd = held.acquire()
    for handle in others:
        handle.read(1, 0)
    held.close()
    assert is_open(fd)
    assert held.fd == fd
    held.release()
    assert held.fd < 0
    assert not is_open(fd)
    pool.close_idle()


def test_leases_may_go_over_the_limit(pool: FilePool, tmp_path: Path) -> None:
    made = handles(pool, tmp_path, 20)
    for handle in made:
        handle.acquire()
    assert pool.open_count == 20
    for handle in made:
        handle.release()
    pool.handle(made[0].path).read(1, 0)
    assert pool.open_count == 8
    pool.close_idle()


def test_pins_are_few_and_the_oldest_goes_first(pool: FilePool, tmp_path: Path) -> None:
    made = handles(pool, tmp_path, 10)
    for handle in made:
        assert handle.pin() == handle.pinned_fd >= 0
    assert [handle.pinned_fd >= 0 for handle in made] == [False] * 4 + [True] * 6
    made[9].close()
    assert made[9].fd < 0
    pool.close_idle()
    assert pool.open_count == 0


def test_a_renamed_file_is_found(pool: FilePool, tmp_path: Path) -> None:
    (handle,) = handles(pool, tmp_path, 1)
    pool.rename(handle, str(tmp_path / "other"))
    assert handle.read(7, 0) == b"content"
    pool.close_idle()


def test_writing_a_file_replaces_it_as_a_whole(tmp_path: Path) -> None:
    files = FileSystem()
    path = tmp_path / "file"
    files.write_file(str(path), b"first")
    files.write_file(str(path), b"x", sync=False)
    assert path.read_bytes() == b"x"
    assert [entry.name for entry in files.entries(str(tmp_path))] == ["file"]


def test_reads_stop_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    files = FileSystem()
    fd = files.open(str(path))
    for read in (files.read, files.read_cached):
        assert read(fd, 4, 3) == b"3456"
        assert read(fd, 100, 8) == b"89"
        assert read(fd, 5, 20) == b""
    files.close(fd)


def test_a_locked_file_cannot_be_locked_again(tmp_path: Path) -> None:
    files = FileSystem()
    path = str(tmp_path / "lock")
    fd = files.lock(path)
    assert fd is not None
    assert files.lock(path) is None
    files.close(fd)
    again = files.lock(path)
    assert again is not None
    files.close(again)


def test_a_file_that_may_only_be_read_is_opened_for_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    real = os.open

    def read_only(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_RDWR:
            raise OSError(30, "Read-only file system")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    files = FileSystem()
    fd = files.open(str(path))
    assert files.read(fd, 7, 0) == b"content"
    files.close(fd)
    with pytest.raises(OSError, match="Read-only"):
        files.open(str(tmp_path / "new"), create=True)
