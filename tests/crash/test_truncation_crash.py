"""A follower's log is cut or starts anew, and is written to again: whenever that ends, a log of one piece is left.

The process ends, or the power goes off, in each file operation in turn. What is found then is the old log up to where
the cut left it, or what was kept and a part of what came after; never what was cut behind what came in its place.

Or there is no descriptor for a file that is opened meanwhile. That passes: the log directory takes writes all the time,
the cut is tried again, and nothing is written behind it before the disk has it.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.model.errors import StorageFailed
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import read_header
from barnabas.storage.check import check
from tests.support.faulty_files import FaultyFiles, PowerLoss
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, batch, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.storage.log.log import Log

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200, file_delete_delay_ms=0)


class Story(NamedTuple):
    """What is done to a log that starts at 12 and ends at 40."""

    cut: Callable[[Log], None]
    begin: int
    """Where it goes on."""
    within: int | None = None
    """Where its leader's log starts, in the middle of a batch that the log begins anew with."""

    @property
    def end(self) -> int:
        """Where it ends then."""
        return self.begin if self.within is None else self.begin + 9

    def kept(self, old: list[bytes]) -> list[bytes]:
        """What is left of what there was."""
        return [data for data in old if self.within is None and read_header(data).last_offset < self.begin < 40]


def begin_within(log: Log, base_offset: int) -> None:
    """As a follower does, also when that is tried again."""
    if log.log_end_offset != base_offset + 2:
        log.truncate_fully(base_offset + 2)
    batches = [
        placed.to_bytes(8, "big") + data[8:12] + (2).to_bytes(4, "big") + data[16:]
        for placed, data in ((base_offset, batch(5, size=60)), (base_offset + 5, batch(4, size=60)))
    ]
    log.start_within(b"".join(batches), now_ms=NOW)


STORIES = {
    "inside a segment": Story(lambda log: log.truncate_to(21), 20),
    "to the log's start": Story(lambda log: log.truncate_to(12), 12),
    "before the log's start": Story(lambda log: log.truncate_to(4), 4),
    "after its end": Story(lambda log: log.truncate_fully(90), 90),
    "within a batch": Story(lambda log: begin_within(log, 90), 90, 92),
    "within the batch that its end is in": Story(lambda log: begin_within(log, 38), 38, 40),
}


def fill(log: Log, epoch: int, count: int) -> None:
    for number in range(count):
        data = batch(2, size=60, producer_id=epoch, sequence=2 * number)
        log.append(data, leader_epoch=epoch, now_ms=NOW)


class ShortFiles(FaultyFiles):
    """Files of which one, the `fails_in`-th from now on, cannot be opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fails_in: int | None = None
        self.error = errno.EMFILE

    def _opens(self, path: str) -> None:
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in == -1:
                raise OSError(self.error, os.strerror(self.error), path)

    def open(self, path: str, *, create: bool = False) -> int:
        self._opens(path)
        return super().open(path, create=create)

    def sync_dir(self, path: str) -> None:
        self._opens(path)
        super().sync_dir(path)

    def read_file(self, path: str) -> bytes:
        self._opens(path)
        return super().read_file(path)


class Life:
    """A log of epoch 1 on disk, of which nothing is to be seen before offset 12."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = ShortFiles(root)
        log = self.start()
        fill(log, 1, 20)
        log.high_watermark = 40
        log.delete_records_before(12)
        self.manager.retention_pass(NOW)
        log.flush()
        self.manager.checkpoint()
        self.log = log
        self.old = stored(log)

    def start(self) -> Log:
        self.manager = StepManager(self.root, self.files).start({TP.topic: CONFIG})
        return self.manager.create(TP, TOPIC_ID, CONFIG)

    def tell(self, story: Story) -> None:
        story.cut(self.log)
        assert self.log.log_end_offset == story.end
        if story.within is not None:
            assert self.log.log_start_offset == self.log.high_watermark == story.within
        fill(self.log, 2, 5)
        self.manager.checkpoint()

    def check(self, story: Story) -> None:
        log = self.start()
        found = stored(log)
        epochs = [read_header(data).leader_epoch for data in found]
        cut = epochs.index(2) if 2 in epochs else len(found)
        old, new = found[:cut], found[cut:]
        assert all(read_header(data).leader_epoch == 2 for data in new), "the old comes after the new"
        if new:
            assert old == story.kept(self.old)
            start = 0 if story.within is not None else log.log_start_offset
            assert read_header(new[0]).base_offset == max(story.begin, start)
            assert log.log_end_offset > story.begin
            assert log.high_watermark <= max(story.begin, log.log_start_offset)
        else:
            first = self.old.index(old[0]) if old else 0
            assert old == self.old[first : first + len(old)]
        for data in found:
            header = read_header(data)
            assert log.epoch_at(max(header.base_offset, log.log_start_offset)) == header.leader_epoch
        assert check(self.root).errors == []


@contextmanager
def life() -> Iterator[Life]:
    with tempfile.TemporaryDirectory() as directory:
        begun = Life(Path(directory))
        try:
            yield begun
        finally:
            begun.manager.close(clean=False)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_log_that_is_cut_when_everything_ends_is_of_one_piece(story: Story) -> None:
    with life() as whole:
        before = whole.files.operations
        whole.tell(story)
        operations = whole.files.operations - before
    for done in range(operations):
        for power_stays in (True, False):
            with life() as ended:
                ended.files.crash_in = done
                with pytest.raises(PowerLoss):
                    ended.tell(story)
                if power_stays:
                    ended.files.kill()
                else:
                    ended.files.power_loss(seed=done)
                ended.check(story)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_was_written_and_flushed_after_a_cut_survives(story: Story) -> None:
    for seed in range(3):
        with life() as ended:
            ended.tell(story)
            ended.log.flush()
            expected = stored(ended.log)
            ended.files.power_loss(seed)
            assert stored(ended.start()) == expected


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get)
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_cut_without_descriptors_is_tried_again_and_the_directory_takes_writes(story: Story, error: int) -> None:
    calls, hit = 0, True
    while hit:
        with life() as short:
            short.manager.pool.close_idle()
            short.files.fails_in, short.files.error = calls, error
            refused = until_done(short, lambda: story.cut(short.log))
            assert short.log.log_end_offset == story.end
            refused += until_done(short, lambda: fill(short.log, 2, 1))
            assert refused <= 2
            hit, short.files.fails_in = short.files.fails_in < 0, None
            short.files.power_loss(seed=calls)
            short.check(story)
        calls += 1
    assert calls > 8


def until_done(short: Life, work: Callable[[], None]) -> int:
    """Do something, again as long as there is no descriptor; returns how often there was none."""
    for refused in range(3):
        try:
            work()
            return refused
        except StorageFailed:
            assert not short.manager.failed_directories
            short.manager.drain()
    raise AssertionError("it is still refused")


def test_nothing_is_written_behind_a_cut_that_is_not_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    with life() as short:
        with monkeypatch.context() as failing:
            failing.setattr(short.files, "sync_dir", no_descriptor)
            with pytest.raises(StorageFailed, match="Too many open files"):
                short.log.truncate_to(21)
            for _ in range(2):
                with pytest.raises(StorageFailed, match="the truncation is not on disk yet"):
                    fill(short.log, 2, 1)
                with pytest.raises(StorageFailed, match="the truncation is not on disk yet"):
                    short.log.roll(NOW)
                short.log.update_config(CONFIG)
                short.manager.drain()
        assert not short.manager.failed_directories
        assert short.log.log_end_offset == 20
        with pytest.raises(StorageFailed, match="the truncation is not on disk yet"):
            fill(short.log, 2, 1)
        short.manager.drain()
        fill(short.log, 2, 1)
        assert short.log.log_end_offset == 22


def no_descriptor(path: str) -> None:
    """For the log's directory; that of the checkpoints can be synced."""
    if path.endswith(str(TP)):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
