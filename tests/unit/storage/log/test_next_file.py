"""The file of the next segment is made ahead of time, in a thread; whatever happens to it, the log goes on."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.model.errors import OffsetOutOfRange, StorageFailed
from barnabas.model.log_config import LogConfig
from barnabas.storage.check import check
from barnabas.storage.log.retention import expired_segments
from tests.support.logs import (
    NOW,
    TOPIC_ID,
    TP,
    StepManager,
    UnsyncedFiles,
    append,
    batch,
    file_names,
    oldest,
    read_bytes,
    split,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.storage.log.log import Log

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)
ONE = batch(1, size=20)
NEARLY_FULL = 900 // len(ONE) + 1
"""So many batches reach into the last part of a segment."""


class CountedFiles(UnsyncedFiles):
    """Files that say what was done with them, and fail where they are told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}
        self.meanwhile: Callable[[], object] | None = None

    def _note(self, call: str, path: str) -> None:
        self.calls.append(call)
        if call in self.fails:
            raise OSError(self.fails[call], os.strerror(self.fails[call]), path)

    def open(self, path: str, *, create: bool = False) -> int:
        self._note("create" if create else "open", path)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().open(path, create=create)

    def rename(self, old: str, new: str) -> None:
        self._note("rename", old)
        super().rename(old, new)

    def write_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.calls.append("write file")
        super().write_file(path, data, sync=sync)


class Story:
    """A log whose background work is done when the test says so."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = CountedFiles()
        self.manager = StepManager(root, self.files).start({TP.topic: CONFIG})
        self.log = self.manager.create(TP, TOPIC_ID, CONFIG)

    def fill(self) -> None:
        """Append up to where the next segment's file is wanted, which is then all that is left to be done."""
        append(self.log, ONE)
        self.manager.drain()
        append(self.log, *(ONE for _ in range(NEARLY_FULL - 1)))
        assert len(self.log.segments) == 1

    def roll(self) -> None:
        """Append until there is another segment."""
        before = len(self.log.segments)
        while len(self.log.segments) == before:
            append(self.log, ONE)

    def prepared(self) -> list[str]:
        """The files that were made ahead of time."""
        return prepared_in(self.log)

    def restart(self, *, clean: bool) -> Log:
        """Stop, or end suddenly, and start again."""
        self.manager.close(clean=clean)
        self.manager = StepManager(self.root, None).start({TP.topic: CONFIG})
        log = self.manager.get(TP)
        assert log is not None
        return log


def prepared_in(log: Log) -> list[str]:
    return sorted(name for name in file_names(log) if name.startswith("next-"))


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def test_a_full_segment_is_followed_by_a_file_that_was_made_before(story: Story) -> None:
    story.fill()
    assert story.prepared() == []
    story.manager.drain()
    assert len(story.prepared()) == 1
    story.files.calls.clear()
    story.roll()
    assert story.files.calls == ["rename"]  # nothing was made, opened or written but the batch
    assert story.prepared() == []
    assert len(stored(story.log)) == story.log.log_end_offset
    story.manager.drain()
    story.manager.close()
    assert check(story.root).findings == []


def test_every_segment_has_its_file_made_ahead(story: Story) -> None:
    made = 0
    for _ in range(100):
        append(story.log, ONE)
        story.files.calls.clear()
        story.manager.drain()
        made += bool(story.prepared())
    rolled = len(story.log.segments) - 1
    assert rolled > 5
    assert made >= rolled
    assert len(stored(story.log)) == 100


def test_an_old_segment_is_followed_by_a_file_that_was_made_before(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.log.update_config(LogConfig(segment_ms=8000))
    append(story.log, batch(timestamp=NOW), batch(timestamp=NOW + 7000))
    story.manager.drain()
    assert story.prepared() == []
    append(story.log, batch(timestamp=NOW + 7001))
    story.manager.drain()
    assert len(story.prepared()) == 1
    append(story.log, batch(timestamp=NOW + 8001))
    assert story.prepared() == []
    assert [segment.base_offset for segment in story.log.segments] == [0, 3]


def test_a_file_that_is_not_there_in_time_is_made_by_the_append(story: Story) -> None:
    story.fill()
    story.roll()
    assert "create" in story.files.calls
    story.manager.drain()
    assert len(stored(story.log)) == story.log.log_end_offset
    assert len(story.prepared()) == 1  # for the next time
    story.manager.close()
    assert check(story.root).findings == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("call", ["create", "open"])
def test_a_file_that_cannot_be_made_ahead_fails_nothing(story: Story, call: str, number: int) -> None:
    story.fill()
    story.files.fails = {call: number}
    story.manager.drain()
    assert story.prepared() == []
    assert not story.manager.failed_directories
    story.files.fails = {}
    story.roll()
    assert len(stored(story.log)) == story.log.log_end_offset


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_a_file_that_cannot_get_its_name_leaves_the_log_as_it_was(story: Story, number: int) -> None:
    story.fill()
    story.manager.drain()
    story.files.fails = {"rename": number}
    with pytest.raises(StorageFailed):
        story.roll()
    end = story.log.log_end_offset
    assert len(story.log.segments) == 1
    assert len(stored(story.log)) == end
    story.files.fails = {}
    again = story.restart(clean=False)
    assert (len(stored(again)), again.log_end_offset) == (end, end)
    assert prepared_in(again) == []


def test_a_file_that_somebody_removed_is_made_anew(story: Story) -> None:
    story.fill()
    story.manager.drain()
    for name in story.prepared():
        (story.log.directory / name).unlink()
    story.roll()
    assert len(stored(story.log)) == story.log.log_end_offset


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_file_that_was_not_used_is_gone_after_a_restart(story: Story, clean: bool) -> None:
    story.fill()
    story.manager.drain()
    end = story.log.log_end_offset
    assert check(story.root).errors == []
    story.manager.close(clean=clean)
    assert check(story.root).findings == []
    again = story.restart(clean=clean)
    assert len(stored(again)) == end
    assert [segment.base_offset for segment in again.segments] == [0]
    assert prepared_in(again) == []
    assert append(again, ONE) == [end]


def test_a_clean_stop_leaves_no_such_file_behind(story: Story) -> None:
    story.fill()
    story.manager.drain()
    assert story.prepared()
    story.manager.close()
    assert story.prepared() == []
    assert check(story.root).findings == []


def test_a_file_outlives_a_truncation(story: Story) -> None:
    story.fill()
    story.manager.drain()
    story.log.truncate_to(2)
    append(story.log, *(ONE for _ in range(NEARLY_FULL - 2)))
    story.manager.drain()
    assert len(story.prepared()) == 1
    story.log.truncate_fully(100)
    story.fill()
    story.manager.drain()
    assert len(story.prepared()) == 1
    story.roll()
    assert story.log.segments[-1].base_offset == story.log.log_end_offset - 1
    assert len(stored(story.log)) == story.log.log_end_offset - 100


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda story: story.log.abandon(),
        lambda story: story.manager.set_aside(story.log),
        lambda story: story.roll(),
        lambda story: story.log.truncate_to(1),
    ],
    ids=["closed", "set aside", "rolled", "truncated"],
)
def test_what_happens_while_the_file_is_made(story: Story, meanwhile: Callable[[Story], object]) -> None:
    """Whoever comes in the middle, there is at most one such file, and it is the log's own."""
    story.fill()
    directory = story.log.directory
    story.files.meanwhile = lambda: meanwhile(story)
    story.manager.drain()
    left = [path.name for path in directory.glob("next-*")] if directory.exists() else []
    if story.log.is_closed:
        assert left == []
        return
    assert len(left) <= 1
    story.roll()
    assert len(stored(story.log)) == story.log.log_end_offset


def test_a_new_topic_of_the_same_name_gets_no_file_of_the_old_one(story: Story) -> None:
    story.fill()

    def make_again() -> None:
        story.manager.set_aside(story.log)
        story.manager.create(TP, UUID(int=9), CONFIG)

    story.files.meanwhile = make_again
    story.manager.drain()
    again = story.manager.get(TP)
    assert again is not None
    assert again.log_end_offset == 0
    assert prepared_in(again) == []


def test_readers_and_retention_go_on_while_segments_begin(tmp_path: Path) -> None:
    story = Story(tmp_path)
    ended = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not ended.is_set():
                start, end = story.log.log_start_offset, story.log.log_end_offset
                for offset in (start, end - 1):
                    try:
                        assert split(read_bytes(story.log, offset, up_to=end))
                    except OffsetOutOfRange:
                        assert offset < story.log.log_start_offset
        except BaseException as error:
            failures.append(error)

    def work() -> None:
        try:
            while not ended.is_set():
                story.manager.drain()
                if len(story.log.segments) > 4:
                    story.log.remove_segments(oldest(story.log, 1), NOW)
        except BaseException as error:
            failures.append(error)

    append(story.log, ONE)
    threads = [threading.Thread(target=each) for each in (read, read, work)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3000):
            append(story.log, ONE)
            story.log.high_watermark = story.log.log_end_offset
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failures == []
    story.manager.drain()
    story.manager.close()
    assert check(story.root).findings == []


def test_retention_makes_the_next_file_before_it_holds_up_appends(story: Story) -> None:
    append(story.log, ONE)
    story.log.high_watermark = story.log.log_end_offset
    locked: list[bool] = []
    story.files.meanwhile = lambda: locked.append(story.log.lock.locked())
    expired = expired_segments(story.log, NOW + 30 * 24 * 3_600_000)
    assert story.log.remove_segments(expired, NOW) == 1
    assert locked == [False]
    append(story.log, ONE)
    assert len(stored(story.log)) == 1
