"""The names of a segment's files: the base offset in twenty digits, and a suffix that says what the file holds."""

from __future__ import annotations

from typing import Final

OFFSET_DIGITS: Final = 20
LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
TEMPORARY_SUFFIX: Final = ".tmp"
"""Of a file that does not count yet: it is removed after a crash."""


def file_name(offset: int, suffix: str) -> str:
    """The name of a file of the segment that begins at `offset`.

    >>> file_name(42, ".log")
    '00000000000000000042.log'
    """
    return f"{offset:0{OFFSET_DIGITS}d}{suffix}"
