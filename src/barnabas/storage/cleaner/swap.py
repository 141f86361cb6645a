"""Putting a new segment in the place of old ones, so that a crash at any moment leaves the old or the new.

    .cleaned   the new segment's files, complete and on disk. After a crash they are removed
    .swap      the same files, all renamed. From here on the new segment counts: recovery removes the old ones in its
               range, and takes the suffix away
    .deleted   the old segments' files, renamed; whoever reads them goes on, and they are removed later. Each has a
               number in its name (`BASE.log.NUMBER.deleted`), because the next cleaning replaces the same base offset

If `.cleaned` and `.swap` files of one segment are found together, the renaming was not done, and both are removed. The
directory is synced after the first renaming, and again at the end, never while the log's lock is held.

A replacement that fails, or whose log has changed, before the new segment counts is undone the same way back. A `.swap`
must not stay: the log goes on, and a later start would put that segment in the place of newer ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.cleaner.worker.cleaned_segment import CLEANED_SUFFIX, discard
from barnabas.storage.segments.file_names import file_name
from barnabas.storage.segments.segments import SWAP_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.storage.cleaner.task import CleanedGroup
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.files import FileSystem
    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.segment import Segment


def swap_in(log: Log, store: LogDirectory, old: Sequence[Segment], group: CleanedGroup, truncations: int) -> bool:
    """Put a cleaned segment in place; False if the log is not what it was, and nothing was done. Waits for the disk."""
    files, directory = store.files, str(log.directory)
    prefix = f"{directory}/{file_name(group.bases[0], '')}"
    if not log.is_as_planned(old, truncations):
        discard(files, prefix)
        return False
    doing = f"replacing segments of {directory}"
    with store.writing(doing):
        if not _unless_deleted(log, lambda: _make_it_count(log, files, directory, prefix, group)):
            return False
    with store.writing(doing, undone=False):
        replaced = log.replace_segments(old, group.sizes, truncations)
    with store.writing(doing):
        if replaced:
            return _unless_deleted(log, lambda: files.sync_dir(directory))
        _unless_deleted(log, lambda: _take_back(files, directory, prefix, group))
        return False


def _unless_deleted(log: Log, work: Callable[[], None]) -> bool:
    """Do something with the log's files; False if the log was deleted or set aside meanwhile.

    Its directory is then as a crash would leave it. It may have its name again soon, with other files under the names
    of these: whoever gives it that name waits for the lock, and whoever has the lock asks first whether the log ended.
    """
    with log.durability.lock:
        if log.is_closed:
            return False
        try:
            work()
        except FileNotFoundError:
            if not log.is_closed:
                raise
            return False
        return True


def _make_it_count(log: Log, files: FileSystem, directory: str, prefix: str, group: CleanedGroup) -> None:
    """Rename the new segment's files to `.swap`, all of them or none."""
    try:
        for suffix in group.sizes:
            files.rename(prefix + suffix + CLEANED_SUFFIX, prefix + suffix + SWAP_SUFFIX)
        files.sync_dir(directory)
    except OSError:
        if not log.is_closed:
            _take_back(files, directory, prefix, group)
        raise


def _take_back(files: FileSystem, directory: str, prefix: str, group: CleanedGroup) -> None:
    """Undo the renaming to `.swap`, and remove the files once that is on disk."""
    for suffix in group.sizes:
        if files.exists(prefix + suffix + SWAP_SUFFIX):
            files.rename(prefix + suffix + SWAP_SUFFIX, prefix + suffix + CLEANED_SUFFIX)
    files.sync_dir(directory)
    discard(files, prefix)
