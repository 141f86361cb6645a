"""What a crash left half-done in a log's directory: dealt with before the log is loaded.

Files being deleted or cleaned when the process ended are removed, and finished replacements (`.swap`) are put in place.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import CorruptMessage
from barnabas.protocol.records.batch import HEADER, HEADER_SIZE, BatchHeader
from barnabas.storage.segments.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    OFFSET_DIGITS,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from barnabas.storage.segments.segments import SWAP_SUFFIX

if TYPE_CHECKING:
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.files import FileSystem

logger = logging.getLogger(__name__)

_CLEANED: Final = ".cleaned"


def clear_leftovers(directory: LogDirectory, path: str) -> tuple[dict[int, dict[str, int]], set[int]]:
    """Remove what a crash left half-done.

    Returns the lengths of the segments' files, by base offset and suffix, and the offsets of the snapshots.
    """
    files = directory.files
    found = {entry.name: entry.size for entry in files.entries(path) if not entry.is_dir}
    _finish_swaps(directory, path, found)
    sizes: dict[int, dict[str, int]] = {}
    snapshots: set[int] = set()
    for name, size in found.items():
        digits, suffix = name[:OFFSET_DIGITS], name[OFFSET_DIGITS:]
        if not (len(digits) == OFFSET_DIGITS and digits.isdecimal()):
            if name.endswith(TEMPORARY_SUFFIX):
                files.remove(f"{path}/{name}")
        elif suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            sizes.setdefault(int(digits), {})[suffix] = size
        elif suffix == SNAPSHOT_SUFFIX:
            snapshots.add(int(digits))
        elif suffix.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
            files.remove(f"{path}/{name}")
    for base in [base for base, of_segment in sizes.items() if LOG_SUFFIX not in of_segment]:
        for suffix in sizes.pop(base):
            logger.warning("Removed %s/%s: its segment has no log file.", path, file_name(base, suffix))
            files.remove(f"{path}/{file_name(base, suffix)}")
    return sizes, snapshots


def remove_cleaned(files: FileSystem, path: str) -> None:
    """Remove what a cleaning that was broken off left, before a clean stop.

    Beside an unfinished replacement it stays: that one must not count (`_finish_swaps`).
    """
    names = [entry.name for entry in files.entries(path)]
    if not any(name.endswith(SWAP_SUFFIX) for name in names):
        for name in names:
            if name.endswith(_CLEANED):
                files.remove(f"{path}/{name}")


def _finish_swaps(directory: LogDirectory, path: str, found: dict[str, int]) -> None:
    """Put finished replacements of segments (`.swap`) in place, drop unfinished ones (`.cleaned`)."""
    files = directory.files
    cleaned = [name for name in found if name.endswith(_CLEANED)]
    first_cleaned = min((int(name[:OFFSET_DIGITS]) for name in cleaned), default=None)
    for name in cleaned:
        files.remove(f"{path}/{name}")
        del found[name]
    swaps = [name for name in found if name.endswith(SWAP_SUFFIX)]
    if first_cleaned is not None:
        for name in [name for name in swaps if int(name[:OFFSET_DIGITS]) >= first_cleaned]:
            files.remove(f"{path}/{name}")
            swaps.remove(name)
            del found[name]
    for name in [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]:
        first = int(name[:OFFSET_DIGITS])
        end = _end_of_file(directory, f"{path}/{name}", first)
        for other in [
            other for other in found if other[:OFFSET_DIGITS].isdecimal() and not other.endswith(SWAP_SUFFIX)
        ]:
            if first <= int(other[:OFFSET_DIGITS]) < end:
                files.remove(f"{path}/{other}")
                del found[other]
    for name in swaps:
        final = name.removesuffix(SWAP_SUFFIX)
        files.rename(f"{path}/{name}", f"{path}/{final}")
        found[final] = found.pop(name)
        logger.info("Put %s/%s in the place of the segments that compaction made it from.", path, final)


def _end_of_file(directory: LogDirectory, path: str, base_offset: int) -> int:
    """The offset after the last batch of a log file that has no index."""
    handle = directory.pool.handle(path)
    position, end = 0, base_offset
    try:
        while len(head := handle.read(HEADER_SIZE, position)) == HEADER_SIZE:
            header = BatchHeader._make(HEADER.unpack(head))
            if header.size < HEADER_SIZE:
                raise CorruptMessage(
                    f"{path} has no batch at byte {position}. Remove the file: the segments that it was made from stay"
                )
            end = header.last_offset + 1
            position += header.size
    finally:
        handle.close()
    return end
