"""Defects that this code had, to be put back: the tool is worth something only if it finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.storage.cleaner import cleaner
from barnabas.storage.cleaner.worker.cleaning import CleaningAborted
from barnabas.storage.file_pool import FilePool
from barnabas.storage.log.reading import LogReader
from barnabas.storage.log.truncation import Truncation
from barnabas.storage.segments import segments
from barnabas.storage.segments.indexes import _Index
from barnabas.storage.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from barnabas.storage.cleaner.plan import LogToClean
    from barnabas.storage.file_pool import FileHandle


class Bug(NamedTuple):
    """A defect, the pair that shows it, and how it is put in."""

    name: str
    pair: str
    plant: Callable[[pytest.MonkeyPatch], None]
    switches: int = 1


def _look_twice(patch: pytest.MonkeyPatch) -> None:
    """Aborted transactions are looked up in the segments of a later moment than the records."""
    right = LogReader.read

    def read(
        self: LogReader, offset: int, size: int, up_to: int, *args: Any, committed: bool = False, **kw: Any
    ) -> Any:
        found = right(self, offset, size, up_to, *args, **kw)
        if committed and found.size:
            aborted = segments.aborted_transactions(self._log.segments, offset, found, up_to, cached=False)
            found = found._replace(aborted=aborted)
        return found

    patch.setattr(LogReader, "read", read)


def _count_late(patch: pytest.MonkeyPatch) -> None:
    """A reader notes how many entries an index has, whatever became of the file meanwhile."""
    right = _Index._counted

    def count(self: _Index, on_file: Any) -> int:
        found = right(self, on_file)
        self._on_file = on_file
        return found

    patch.setattr(_Index, "_counted", count)


def _keep_open(patch: pytest.MonkeyPatch) -> None:
    """A removed file that is opened once more stays open, and takes room."""
    right = FilePool.acquire

    def acquire(self: FilePool, handle: FileHandle) -> int:
        fd = right(self, handle)
        handle._is_closed = False
        return fd

    patch.setattr(FilePool, "acquire", acquire)


def _cut_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """A cut is not counted, so nobody who reads knows of it."""
    right = Truncation._cut

    def cut(self: Truncation, *args: Any) -> None:
        self._log.truncations -= 1
        right(self, *args)

    patch.setattr(Truncation, "_cut", cut)


def _sealed_late(patch: pytest.MonkeyPatch) -> None:
    """A segment that was rolled during its sync counts as synced as a whole."""
    right = Segment.sync

    def sync(self: Segment) -> bool:
        right(self)
        return self.sealed

    patch.setattr(Segment, "sync", sync)


def _noted_within_a_cut(patch: pytest.MonkeyPatch) -> None:
    """The cleaner notes how far it came in the middle of a cut, which has lowered that already."""

    def note(todo: LogToClean, end_offset: int) -> None:
        with todo.log.lock:
            if todo.log.truncations != todo.truncations:
                raise CleaningAborted
            todo.log.cleaned_to = end_offset

    patch.setattr(cleaner, "_note", note)


BUGS: Final = (
    Bug("aborted transactions of a later view", "committed read x retention", _look_twice),
    Bug("aborted transactions of a later view", "committed read x cleaning", _look_twice),
    Bug("entries counted before a cut", "read x truncation", _count_late),
    Bug("removed files stay open", "read x retention", _keep_open),
    Bug("a cut that readers do not notice", "read x truncation", _cut_unnoticed),
    Bug("sealed during its sync", "append and roll x flush", _sealed_late),
    Bug("noted within a cut", "cleaning x truncation", _noted_within_a_cut, switches=2),
)
