"""An append succeeds as a whole, or leaves no trace: what is in the file and what is in memory stay the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import StorageFailed
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.log.producers import LogProducers
from tests.support.compaction import keyed
from tests.support.logs import NOW, TOPIC_ID, TP, StepManager, UnsyncedFiles, append, batch, stored

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from barnabas.storage.log.log import Log

ABORT = build_marker(EndOfTransaction(ControlType.ABORT, 0), timestamp=NOW, producer_id=7, producer_epoch=0)


class FailingWrites(UnsyncedFiles):
    """Files of one ending that cannot be written to: not at all, or not to the end."""

    ending = ""
    error = 0
    half = False

    def open(self, path: str, *, create: bool = False) -> int:
        if self.ending and create and not self.half and path.endswith(self.ending):
            raise OSError(self.error, os.strerror(self.error), path)
        return super().open(path, create=create)

    def append(self, fd: int, data: Buffer) -> int:
        if self.half and str(Path(f"/proc/self/fd/{fd}").readlink()).endswith(self.ending):
            super().append(fd, memoryview(data)[: memoryview(data).nbytes // 2])
            raise OSError(self.error, os.strerror(self.error))
        return super().append(fd, data)


def written(path: Path, files: FailingWrites) -> Log:
    """A log with an open transaction."""
    log = StepManager(path, files).start({TP.topic: LogConfig()}).create(TP, TOPIC_ID, LogConfig())
    append(log, batch(1), keyed([(b"k", b"aborted")], producer_id=7, sequence=0, transactional=True))
    return log


def after_kill(path: Path) -> list[bytes]:
    again = StepManager(path).start({TP.topic: LogConfig()}).get(TP)
    assert again is not None
    return stored(again)


@pytest.mark.parametrize(("ending", "half"), [(".log", True), (".txnindex", True), (".txnindex", False)])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_marker_that_cannot_be_written_leaves_no_trace(tmp_path: Path, error: int, ending: str, half: bool) -> None:
    files = FailingWrites()
    log = written(tmp_path, files)
    before, size, end = stored(log), log.segments[-1].size, log.log_end_offset
    files.ending, files.error, files.half = ending, error, half
    with pytest.raises(StorageFailed):
        append(log, ABORT)
    files.ending, files.half = "", False
    assert log.log_end_offset == end
    assert Path(log.segments[-1].path).stat().st_size == size
    assert stored(log) == before
    if error == errno.EMFILE:  # which passes
        append(log, batch(10), ABORT, batch(1))
        before = stored(log)
        assert [each.producer_id for each in log.segments[-1].txn_index.entries()] == [7]
    else:
        assert log.is_failed
    log.store.unlock()
    assert after_kill(tmp_path) == before


def test_nothing_follows_a_batch_that_is_in_the_file_and_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path, FailingWrites())

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(LogProducers, "add", fail)
        append(log, ABORT)
    for more in (batch(1), ABORT):
        with pytest.raises(StorageFailed, match="not in memory"):
            append(log, more)
    log.store.unlock()
    assert len(after_kill(tmp_path)) == 3
