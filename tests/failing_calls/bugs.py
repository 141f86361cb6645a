"""Defects that this code had, to be put back: the tool is worth something only if it finds them.

Each is a small patch of today's code that does again what the code did before it was mended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.cleaner_threads import CleanerThread
from barnabas.broker.coordinators.shard import Shard
from barnabas.broker.replication.leader_partition import LeaderPartition
from barnabas.model.errors import ApiError, CoordinatorNotAvailable, StorageFailed
from barnabas.storage.cleaner import cleaner, swap
from barnabas.storage.cleaner.worker.cleaned_segment import CLEANED_SUFFIX
from barnabas.storage.directory import LogDirectory
from barnabas.storage.log.truncation import Truncation
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segments import SWAP_SUFFIX, Segments
from barnabas.storage.segments.txn_index import TransactionIndex
from tests.failing_calls.files import Fault
from tests.failing_calls.story import BrokenRule, Ending, cases

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from barnabas.storage.cleaner.task import CleanedGroup
    from barnabas.storage.files import FileSystem
    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.txn_index import AbortedTransaction
    from tests.failing_calls.story import Teller


class Bug(NamedTuple):
    """A defect, what shows it, and how it is put in."""

    name: str
    story: str
    fault: Fault
    ending: Ending
    plant: Callable[[pytest.MonkeyPatch], None]
    first: int = 0
    """The call that tests begin with, where it takes many to come to the one that shows it."""


def _index_after_batch(patch: pytest.MonkeyPatch) -> None:
    """An aborted transaction is written to its index when its marker cannot be taken back any more."""
    right = Segment.write

    def write(
        self: Segment,
        batch: memoryview,
        size: int,
        start: int,
        last_offset: int,
        max_timestamp: int,
        aborted: AbortedTransaction | None = None,
    ) -> None:
        right(self, batch, size, start, last_offset, max_timestamp)
        if aborted is not None:
            self.txn_index.append(aborted)

    patch.setattr(Segment, "write", write)


def _dead_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A coordinator whose decision could not be stored is not loaded again."""
    right = Shard._fail

    def fail(self: Shard[Any], failure: Exception) -> None:
        if not isinstance(failure, StorageFailed):
            right(self, failure)
            return
        self.end(CoordinatorNotAvailable(str(failure)))

    patch.setattr(Shard, "_fail", fail)


def _refused_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A sync that fails once ends the leadership, though the directory takes writes; nothing begins another one."""
    right = LeaderPartition.when_committed

    def flush_failed(self: LeaderPartition, error: BaseException) -> None:
        self.fail(StorageFailed(str(error)))

    def when_committed(self: LeaderPartition, end_offset: int, done: Callable[[ApiError | None], None]) -> None:
        if self._failure is not None:
            done(self._failure)
        else:
            right(self, end_offset, done)

    patch.setattr(LeaderPartition, "_flush_failed", flush_failed)
    patch.setattr(LeaderPartition, "when_committed", when_committed)


def _stale_swap(patch: pytest.MonkeyPatch) -> None:
    """A replacement of segments that fails stays there, half done, and the next cleaning does not mind."""

    def make_it_count(_: Log, files: FileSystem, directory: str, prefix: str, group: CleanedGroup) -> None:
        for suffix in group.sizes:
            files.rename(prefix + suffix + CLEANED_SUFFIX, prefix + suffix + SWAP_SUFFIX)
        files.sync_dir(directory)

    patch.setattr(swap, "_make_it_count", make_it_count)
    patch.setattr(cleaner, "_clear_leftovers", lambda log, files: None)


def _sealed_too_soon(patch: pytest.MonkeyPatch) -> None:
    """The active segment is sealed before there is another one."""

    def roll(self: Segments, base_offset: int, now_ms: int) -> bool:
        if self.active.base_offset == base_offset:
            return False
        self.active.finish_indexes()
        self.active.seal()
        self._set((*self.all, self._begin(base_offset, now_ms)))
        return True

    patch.setattr(Segments, "roll", roll)


def _index_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The index of aborted transactions is not synced with its log."""
    patch.setattr(TransactionIndex, "sync", lambda self: None)


def _checkpoints_stay(patch: pytest.MonkeyPatch) -> None:
    """The recovery point is lowered in memory when a log is truncated, but not on disk."""

    def lower(self: Truncation, offset: int, log_start_offset: int) -> None:
        log = self._log
        with log.lock:
            log.recovery_point = min(log.recovery_point, offset)
            log.high_watermark = min(log.high_watermark, offset)
            log.log_start_offset = min(log.log_start_offset, log_start_offset)
            if log.cleaned_to is not None:
                log.cleaned_to = min(log.cleaned_to, offset)

    patch.setattr(Truncation, "_lower_offsets", lower)


def _full_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A directory that was full takes no writes before a restart."""
    patch.setattr(LogDirectory, "try_again", lambda self: False)


def _ending_cleaner(patch: pytest.MonkeyPatch) -> None:
    """The cleaner's thread ends with the first error that nobody expected."""

    def run(self: CleanerThread) -> None:
        while self._wait():
            self._clean()

    patch.setattr(CleanerThread, "run", run)


class Found(NamedTuple):
    """How a defect was found."""

    tellings: int
    error: BrokenRule


def find(teller: Teller, bug: Bug, first: int = 0) -> Found | None:
    """Tell the bug's story, with the ending that shows it, until a rule is broken; None if none is."""
    for count, case in enumerate(cases(bug.fault, ending=bug.ending, first=first), 1):
        try:
            if not teller(case).call:
                return None
        except BrokenRule as error:
            return Found(count, error)
    return None


BUGS: Final = (
    Bug(
        "8: the recovery point on disk is not lowered",
        "truncated inside a segment",
        Fault.NO_DESCRIPTOR,
        Ending.KILLED,
        _checkpoints_stay,
    ),
    *(
        Bug("11: transaction index after its batch", "written", fault, Ending.KILLED, _index_after_batch)
        for fault in (Fault.NO_ROOM, Fault.BAD_DISK, Fault.NO_DESCRIPTOR)
    ),
    Bug(
        "12, e4: a coordinator dead after one EMFILE",
        "commit offsets",
        Fault.NO_DESCRIPTOR,
        Ending.GO_ON,
        _dead_coordinator,
    ),
    Bug(
        "12, e5: flush.messages refuses for ever",
        "produce with flush.messages",
        Fault.NO_DESCRIPTOR,
        Ending.GO_ON,
        _refused_for_ever,
    ),
    Bug("12, p3: a stale .swap", "cleaned, with other sizes", Fault.NO_DESCRIPTOR, Ending.STOPPED, _stale_swap, 50),
    Bug(
        "12, p4: a sealed active segment", "written", Fault.NO_DESCRIPTOR, Ending.EVERYTHING_UNSYNCED, _sealed_too_soon
    ),
    Bug("12, p5: transaction index not synced", "written", Fault.NO_DESCRIPTOR, Ending.POWER_LOSS, _index_not_synced),
    Bug("12: the cleaner's thread ends", "cleaned", Fault.NO_DESCRIPTOR, Ending.GO_ON, _ending_cleaner),
    Bug("13: a full disk does not come back", "written", Fault.NO_ROOM, Ending.GO_ON, _full_for_ever),
)
