"""What waits for the disk in a thread holds no lock that the event loop takes."""

from __future__ import annotations

import errno
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from barnabas.model.errors import UnknownTopicOrPartition
from barnabas.storage.files import FileSystem
from tests.support.compaction import clean_log, compacted, keyed, records_of
from tests.support.logs import NOW, UnsyncedFiles, append, batch, new_log, oldest, recovered, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.storage.log.log import Log

CONFIG: Final = compacted(segment_bytes=600, cleanup_policy=frozenset({"compact", "delete"}), file_delete_delay_ms=1000)


class WatchedFiles(UnsyncedFiles):
    """Files that note every call which is made while a lock is held that the event loop takes."""

    def __init__(self) -> None:
        self.log: Log | None = None
        self.calls = 0
        self.under_a_lock: list[str] = []
        self._other = ThreadPoolExecutor(1)

    @contextmanager
    def watching(self, log: Log) -> Iterator[None]:
        """Note what is done to the files of this log meanwhile."""
        self.log = log
        with self._other:
            yield
        self.log = None

    def note(self, call: str) -> None:
        """Another thread, as the event loop is, tries to take the locks."""
        if self.log is not None:
            self.calls += 1
            locks = {"log": self.log.lock, "pool": self.log.store.pool._lock}
            self.under_a_lock += [
                f"{call} under the lock of the {name}"
                for name, lock in locks.items()
                if not self._other.submit(_is_free, lock).result(30)
            ]


def _is_free(lock: Any) -> bool:
    if lock.acquire(blocking=False):
        lock.release()
        return True
    return False


def _noted(name: str) -> Any:
    def call(self: WatchedFiles, *args: Any, **kwargs: Any) -> Any:
        self.note(f"{name} {' '.join(part.rsplit('/', 1)[-1] for part in args if isinstance(part, str))}")
        return getattr(super(WatchedFiles, self), name)(*args, **kwargs)

    return call


for _name, _ in inspect.getmembers(FileSystem, inspect.isfunction):
    if not _name.startswith("_") and _name != "close_unused":
        setattr(WatchedFiles, _name, _noted(_name))


def _written(tmp_path: Path, files: FileSystem) -> Log:
    """A log of several segments, with producers, whose records supersede each other."""
    log = new_log(tmp_path, CONFIG, files)
    for number in range(20):
        pairs = [(b"k%d" % (number % 3), b"%d" % number * 40)]
        append(log, keyed(pairs, producer_id=7, producer_epoch=0, sequence=number))
    log.high_watermark = log.log_end_offset
    assert len(log.segments) > 3
    return log


def _retire(log: Log) -> None:
    log.remove_segments(oldest(log, 2), NOW)


WORK: Final[dict[str, Callable[[Log], object]]] = {
    "flush": lambda log: log.flush(),
    "cleaning": lambda log: clean_log(log, log.store),
    "retention": _retire,
    "the next file": lambda log: log.appender.make_next_file(),
    "a search by time": lambda log: log.offset_for_time(NOW, up_to=log.log_end_offset),
    "a read in a thread": lambda log: log.read(0, 1 << 20, log.log_end_offset, True),
    "closing": lambda log: log.close(),
    "setting aside": lambda log: log.mark_deleted(f"{log.path}-stray"),
    "abandoning": lambda log: log.abandon(),
}


@pytest.mark.parametrize("work", WORK)
def test_no_call_to_the_file_system_is_made_under_a_lock_of_the_event_loop(tmp_path: Path, work: str) -> None:
    files = WatchedFiles()
    log = _written(tmp_path, files)
    with files.watching(log):
        WORK[work](log)
    assert files.calls
    assert files.under_a_lock == []


def test_the_first_file_of_a_log_is_made_without_its_lock(tmp_path: Path) -> None:
    files = WatchedFiles()
    log = new_log(tmp_path, CONFIG, files)
    with files.watching(log):
        log.prepare()
    assert log.is_ready
    assert files.calls
    assert files.under_a_lock == []
    append(log, batch(3))
    assert len(stored(recovered(log))) == 1


def test_retention_of_everything_opens_nothing_under_the_lock(tmp_path: Path) -> None:
    """The segment that is begun then gets its name under the lock, as one that an append begins."""
    files = WatchedFiles()
    log = _written(tmp_path, files)
    with files.watching(log):
        assert log.remove_segments(oldest(log, len(log.segments)), NOW)
    assert log.log_start_offset == log.log_end_offset == 20
    assert {call.split()[0] for call in files.under_a_lock} <= {"remove", "rename"}


def test_retention_of_everything_waits_for_the_next_pass_if_no_file_can_be_made(tmp_path: Path) -> None:
    class NoNewFiles(UnsyncedFiles):
        def open(self, path: str, *, create: bool = False) -> int:
            if create and path.rpartition("/")[2].startswith("next-"):
                raise OSError(errno.EMFILE, "Too many open files")
            return super().open(path, create=create)

    log = new_log(tmp_path, CONFIG, NoNewFiles())
    append(log, batch(3))
    log.high_watermark = 3
    assert log.remove_segments(oldest(log, 1), NOW) == 0
    assert log.log_start_offset == 0


class StuckFiles(UnsyncedFiles):
    """Files of a disk that hangs with the first call of a kind, until somebody says so."""

    def __init__(self) -> None:
        self.sticks_at = ""
        self.waiting = threading.Event()
        self.go_on = threading.Event()

    def stick(self, call: str) -> None:
        """Hang once, in a call of this name."""
        if call == self.sticks_at:
            self.sticks_at = ""
            self.waiting.set()
            assert self.go_on.wait(30)

    def rename(self, old: str, new: str) -> None:
        self.stick(f"rename{old[old.rfind('.') :]}")
        self.stick("rename")
        super().rename(old, new)

    def open(self, path: str, *, create: bool = False) -> int:
        self.stick("create" if create else "open")
        return super().open(path, create=create)


@contextmanager
def _stuck(files: StuckFiles, call: str, work: Callable[[], object]) -> Iterator[list[object]]:
    """Work in a thread while its first call of this name hangs; what came of it is known afterwards."""
    result: list[object] = []
    files.sticks_at = call
    thread = threading.Thread(target=lambda: result.append(_result(work)))
    thread.start()
    try:
        while not files.waiting.wait(0.1):
            assert thread.is_alive(), result
        yield result
    finally:
        files.go_on.set()
        thread.join(30)
    assert not thread.is_alive()


def _result(work: Callable[[], object]) -> object:
    try:
        return work()
    except Exception as error:
        return error


@pytest.mark.parametrize("call", ["rename.cleaned", "rename.log", "rename.index", "rename.swap"])
def test_batches_are_appended_and_read_while_the_cleaner_renames(tmp_path: Path, call: str) -> None:
    files = StuckFiles()
    log = _written(tmp_path, files)
    log.flush()
    with _stuck(files, call, lambda: clean_log(log, log.store)) as result:
        before = {record.offset for record in records_of(stored(log))}
        count = len(log.segments)
        append(log, *(batch(1, size=200) for _ in range(6)))
        assert len(log.segments) > count
        assert before >= {17, 18, 19}
        assert len(records_of(stored(log))) == len(before) + 6
    assert not isinstance(result[0], Exception), result
    assert len(records_of(stored(log))) < len(before) + 6
    assert {record.offset for record in records_of(stored(recovered(log)))} >= {17, 18, 19, *range(20, 26)}


@pytest.mark.parametrize("call", ["rename.log", "rename.swap"])
def test_a_log_that_is_set_aside_while_the_cleaner_renames_keeps_its_records(tmp_path: Path, call: str) -> None:
    files = StuckFiles()
    log = _written(tmp_path, files)
    log.flush()
    newest = {(record.key, record.value) for record in records_of(stored(log)) if record.offset >= 17}
    with _stuck(files, call, lambda: clean_log(log, log.store)):
        assert log.is_flushing, "so the name is not used again"
        log.mark_deleted(f"{tmp_path}/aside")
    assert log.store.failed is None
    (tmp_path / "aside").rename(log.path)
    assert {(record.key, record.value) for record in records_of(stored(recovered(log)))} >= newest


def test_a_batch_does_not_go_to_a_file_that_is_being_made(tmp_path: Path) -> None:
    """It is refused; nobody waits for the disk."""
    files = StuckFiles()
    log = new_log(tmp_path, CONFIG, files)
    with _stuck(files, "create", log.prepare) as result:
        assert not log.is_ready
        assert log.read(0, 1 << 20, 0, True).size == 0
        with pytest.raises(Exception, match="try again"):
            append(log, batch())
        log.update_config(CONFIG)
    assert result == [None]
    append(log, batch())
    assert len(stored(recovered(log))) == 1


def test_a_log_that_is_set_aside_while_its_first_file_is_made_harms_nobody(tmp_path: Path) -> None:
    files = StuckFiles()
    log = new_log(tmp_path, CONFIG, files)
    with _stuck(files, "create", log.prepare) as result:
        assert log.is_flushing, "so the name is not used again"
        log.mark_deleted(f"{tmp_path}/aside")
    assert isinstance(result[0], UnknownTopicOrPartition)
    assert log.store.failed is None


def test_nothing_is_appended_to_a_log_that_is_being_closed(tmp_path: Path) -> None:
    files = StuckFiles()
    log = _written(tmp_path, files)
    with _stuck(files, "create", log.close) as result:
        log.update_config(CONFIG)
        with pytest.raises(UnknownTopicOrPartition):
            append(log, batch())
        assert records_of(stored(log))[-1].offset == 19
    assert result == [None]
    assert len(records_of(stored(recovered(log)))) == 20


@pytest.mark.parametrize("call", ["rename.cleaned", "rename.log", "rename.swap"])
def test_a_log_is_closed_when_its_cleaner_has_come_to_an_end(tmp_path: Path, call: str) -> None:
    files = StuckFiles()
    log = _written(tmp_path, files)
    log.flush()

    def clean_with_upkeep() -> None:
        with log.upkeep:
            clean_log(log, log.store)

    closing = threading.Thread(target=log.close)
    with _stuck(files, call, clean_with_upkeep) as result:
        before = sorted(each.name for each in log.directory.iterdir())
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
        assert sorted(each.name for each in log.directory.iterdir()) == before
    closing.join(30)
    assert result == [None]
    assert log.is_closed
    assert not {each.suffix for each in log.directory.iterdir()} & {".cleaned", ".swap"}
    assert {record.offset for record in records_of(stored(recovered(log)))} >= {17, 18, 19}


def test_settings_change_while_a_log_is_truncated(tmp_path: Path) -> None:
    """Its lock is held over the cut, and the event loop does not wait for it."""
    files = StuckFiles()
    log = _written(tmp_path, files)
    later: list[Callable[[], None]] = []
    log.store.background = later.append
    config = compacted(segment_bytes=12345)
    with _stuck(files, "rename.log", lambda: log.truncate_to(7)):
        log.update_config(config)
        assert log.config is config
    for work in later:
        work()
    assert log.segments[-1].limits._size_limit == 12345
    assert log.log_end_offset == 7
