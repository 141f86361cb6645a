from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.storage.file_pool import HALTED, FilePool
from barnabas.storage.files import FileSystem
from tests.support.processes import WITHOUT_HYPOTHESIS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.storage.file_pool import FileHandle


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
        assert handle.pin() == handle.fd >= 0
    assert [handle.pinned for handle in made] == [False] * 4 + [True] * 6
    made[9].close()
    assert made[9].fd < 0
    pool.close_idle()
    assert pool.open_count == 0


def test_a_pinned_file_is_never_idle(pool: FilePool, tmp_path: Path) -> None:
    pinned, *others = handles(pool, tmp_path, 30)
    fd = pinned.pin()
    pinned.read(1, 0)
    for handle in others:
        handle.read(1, 0)
    assert pinned.fd == fd
    assert is_open(fd)
    pool.close_idle()
    assert (pinned.fd, pinned.pinned) == (-1, False)


def test_no_pin_is_taken_from_somebody_who_writes(pool: FilePool, tmp_path: Path) -> None:
    made = handles(pool, tmp_path, 20)
    made[0].writing = True
    fd = made[0].pin()
    for handle in made[1:]:
        handle.pin()
    assert (made[0].fd, made[0].pinned) == (fd, True)
    assert is_open(fd)
    made[0].writing = False
    pool.close_idle()
    assert pool.open_count == 0


@pytest.mark.parametrize("leases", [0, 1])
def test_a_lease_that_nobody_holds_ends_the_process_when_it_is_given_back(tmp_path: Path, leases: int) -> None:
    story = WITHOUT_HYPOTHESIS + (
        "from barnabas.storage.file_pool import FilePool; from barnabas.storage.files import FileSystem\n"
        "handle = FilePool(FileSystem(), 8).handle(sys.argv[1])\n"
        "handle.pin()\n"
        f"for _ in range({leases}): handle.acquire()\n"
        f"for _ in range({leases} + 1): handle.release()\n"
    )
    path = tmp_path / "file"
    path.touch()
    ended = subprocess.run([sys.executable, "-c", story, str(path)], capture_output=True, text=True, check=False)
    assert ended.returncode == HALTED
    assert f"A lease on {path} was given back that nobody holds" in ended.stderr


def test_nothing_is_written_to_a_number_that_belongs_to_another_file_by_now(tmp_path: Path) -> None:
    story = WITHOUT_HYPOTHESIS + (
        "import os\n"
        "from barnabas.model.log_config import LogConfig\n"
        "from barnabas.storage.file_pool import FilePool; from barnabas.storage.files import FileSystem\n"
        "from barnabas.storage.segments.segment import Segment\n"
        "pool, batch = FilePool(FileSystem(), 8), memoryview(bytearray(100))\n"
        "segment = Segment.begin(pool, sys.argv[1], 0, LogConfig(), 0)\n"
        "segment.make_file()\n"
        "segment.write(batch, 100, 0, 0, 0)\n"
        "os.close(segment.file.fd)\n"
        "assert pool.handle(sys.argv[2]).acquire() == segment.file.fd\n"
        "segment.write(batch, 100, 1, 1, 0)\n"
    )
    other = tmp_path / "other"
    other.touch()
    words = [sys.executable, "-c", story, str(tmp_path), str(other)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == HALTED
    assert f"is not that of {tmp_path}/00000000000000000000.log any more" in ended.stderr
    assert not other.stat().st_size


class FewDescriptors(FileSystem):
    """A system that gives a process so many descriptors."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open_now = 0

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file, if there is a descriptor for it."""
        if self.open_now >= self.most and not self.close_unused():
            raise OSError(errno.EMFILE, "Too many open files", path)
        self.open_now += 1
        return super().open(path, create=create)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        self.open_now -= 1
        super().close(fd)


def test_what_nobody_uses_is_closed_when_descriptors_run_out(tmp_path: Path) -> None:
    files = FewDescriptors(5)
    pool = FilePool(files, 20)
    for handle in handles(pool, tmp_path, 10):
        assert handle.read(7, 0) == b"content"
    files.write_file(str(tmp_path / "another"), b"content")
    for handle in handles(pool, tmp_path, 10):
        handle.pin()
    files.sync_file(str(tmp_path / "another"))
    pool.close_idle()
    assert files.open_now == 0


def test_what_nobody_uses_is_closed_for_a_directory_that_is_listed(
    pool: FilePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = handles(pool, tmp_path, 1)[0]
    real = os.scandir

    def scan(path: str) -> object:
        if pool.open_count:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scan)
    for look in (pool.files.entries, pool.files.subdirectories):
        handle.read(7, 0)
        look(str(tmp_path))
    handle.acquire()
    with pytest.raises(OSError, match="Too many open files"):
        pool.files.entries(str(tmp_path))
    handle.release()


def test_a_slice_gets_no_file_where_too_many_are_held(pool: FilePool, tmp_path: Path) -> None:
    made = handles(pool, tmp_path, 20)
    assert [handle.lease() for handle in made] == [True] * 16 + [False] * 4
    assert made[0].lease()
    assert made[19].read(7, 0) == b"content"
    for handle in (*made[:16], made[0]):
        handle.release()
    assert made[19].lease()
    made[19].release()
    pool.close_idle()
    assert pool.open_count == 0


def test_a_slice_gets_no_file_where_the_system_has_none(tmp_path: Path) -> None:
    pool = FilePool(FewDescriptors(3), 20)
    made = handles(pool, tmp_path, 5)
    assert [handle.lease() for handle in made] == [True, True, True, False, False]
    for handle in made[:3]:
        handle.release()
    assert made[4].lease()
    made[4].release()
    pool.close_idle()


def test_writers_and_a_pool_that_takes_their_pins_never_meet_in_a_wrong_file(tmp_path: Path) -> None:
    pool = FilePool(FileSystem(), 8)
    made = handles(pool, tmp_path, 12)
    until = time.monotonic() + 0.3

    def write(own: list[FileHandle]) -> None:
        for number, handle in enumerate(itertools.cycle(own)):
            if number >= len(own) and time.monotonic() > until:
                return
            handle.writing = True
            fd = handle.fd if handle.pinned else handle.pin()
            os.write(fd, handle.path.encode() + b"\n")
            handle.writing = False

    def squeeze() -> None:
        while time.monotonic() < until:
            pool.close_unused()

    with ThreadPoolExecutor(5) as threads:
        done = [threads.submit(write, made[start::4]) for start in range(4)] + [threads.submit(squeeze)]
    assert [each.exception() for each in done] == [None] * 5
    pool.close_idle()
    for number, handle in enumerate(made):
        written = Path(handle.path).read_text().removeprefix(f"content {number}")
        assert set(written.splitlines()) == {handle.path}


def test_a_renamed_file_is_found(pool: FilePool, tmp_path: Path) -> None:
    (handle,) = handles(pool, tmp_path, 1)
    pool.rename(handle, str(tmp_path / "other"))
    assert handle.read(7, 0) == b"content"
    pool.close_idle()


class SlowFiles(FileSystem):
    """Opens one file when it is told to."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self._slow = slow
        self.opening, self.go_on = threading.Event(), threading.Event()

    def open(self, path: str, *, create: bool = False) -> int:
        """See FileSystem."""
        if path == self._slow and not self.opening.is_set():
            self.opening.set()
            assert self.go_on.wait(timeout=30)
        return super().open(path, create=create)


def test_nobody_waits_for_a_file_that_another_opens(tmp_path: Path) -> None:
    files = SlowFiles(str(tmp_path / "0"))
    pool = FilePool(files, 8)
    slow, other = handles(pool, tmp_path, 2)
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(slow.read, 100, 0)
        assert files.opening.wait(timeout=30)
        assert other.read(100, 0) == b"content 1"
        assert slow.read(100, 0) == b"content 0"
        files.go_on.set()
        assert reading.result(timeout=30) == b"content 0"
    assert pool.open_count == 2
    pool.close_idle()
    assert pool.open_count == 0


@pytest.mark.parametrize("in_its_place", [b"", b"something else"])
def test_a_file_that_is_renamed_while_it_is_opened_is_found(tmp_path: Path, in_its_place: bytes) -> None:
    """And not the one that has its name by then."""
    files = SlowFiles(str(tmp_path / "0"))
    pool = FilePool(files, 8)
    (handle,) = handles(pool, tmp_path, 1)
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(handle.read, 100, 0)
        assert files.opening.wait(timeout=30)
        pool.rename(handle, str(tmp_path / "other"))
        if in_its_place:
            (tmp_path / "0").write_bytes(in_its_place)
        files.go_on.set()
        assert reading.result(timeout=30) == b"content 0"
    pool.close_idle()


def test_a_file_that_is_removed_while_its_directory_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a log that is taken back can be loaded while its old segments are removed."""
    for name in ("gone.deleted", "kept"):
        (tmp_path / name).write_bytes(b"x")
    real = os.scandir

    @contextmanager
    def scan(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with real(path) as found:
            listed = list(found)
        (tmp_path / "gone.deleted").unlink(missing_ok=True)
        yield listed

    monkeypatch.setattr(os, "scandir", scan)
    assert FileSystem().entries(str(tmp_path)) == [("kept", False, 1)]
    (tmp_path / "lost.log").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"lost\.log"):
        FileSystem().entries(str(tmp_path))


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


def test_a_new_directory_and_its_parents_are_brought_to_the_disk(tmp_path: Path) -> None:
    synced: list[str] = []

    class Noting(FileSystem):
        def sync_dir(self, path: str) -> None:
            synced.append(path)

    files = Noting()
    for _ in range(2):  # the second time there is nothing new
        files.make_durable_dir(str(tmp_path / "a" / "b"))
    assert synced == [str(tmp_path), str(tmp_path / "a")]
