"""Walking over the batches of a file by their headers, without reading what is in them.

The walk begins where a batch begins, and follows the lengths in the headers. It trusts the file: what recovery has not
looked at yet is read by `recovery/scan`, with its checksums.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import CorruptMessage
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.protocol.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, BatchHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.storage.file_pool import FileHandle

_RANGE: Final = struct.Struct(">qi11xi")
_SMALL_CHUNK: Final = 4096
_LARGE_CHUNK: Final = 65536


class BatchRange(NamedTuple):
    """Where a batch lies."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def batch_ranges(file: FileHandle, position: int, end: int, *, cached: bool = False) -> Iterator[BatchRange]:
    """The batches from `position` (the start of one) to `end`, where one ends: CorruptMessage if none does."""
    read = file.read_cached if cached else file.read
    walked = position
    for at, data, start in _walk(file, position, end, read, _SMALL_CHUNK):
        base_offset, length, last_delta = _RANGE.unpack_from(data, start)
        walked = at + length + LOG_OVERHEAD
        yield BatchRange(at, length + LOG_OVERHEAD, base_offset, base_offset + last_delta)
    if walked != end:
        raise _corrupt(file, f"ends at byte {end}, inside of a batch")


def batch_headers(file: FileHandle, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """The headers of the batches from `position` (the start of one) to `end`, each with its position."""
    for at, data, start in _walk(file, position, end, file.read, _LARGE_CHUNK):
        yield at, BatchHeader._make(HEADER.unpack_from(data, start))


def _walk(
    file: FileHandle, position: int, end: int, read: Callable[[int, int], bytes], chunk: int
) -> Iterator[tuple[int, bytes, int]]:
    """The position of each batch, with bytes that hold its header and where in them it begins."""
    if position < 0:  # as a damaged index has it
        raise _corrupt(file, f"has no byte {position}")
    data, begin = b"", position
    while end - position >= HEADER_SIZE:
        start = position - begin
        if start + HEADER_SIZE > len(data):
            data, begin, start = read(min(chunk, end - position), position), position, 0
            if len(data) < HEADER_SIZE:
                return
        length = int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise _corrupt(file, f"has no batch at byte {position}")
        if position + LOG_OVERHEAD + length > end:
            return
        yield position, data, start
        position += LOG_OVERHEAD + length


def _corrupt(file: FileHandle, what: str) -> CorruptMessage:
    remedy = Remedy(RemedyKind.CHECK_LOG, str(Path(file.path).parent))
    return CorruptMessage(f"{file.path} {what}").with_remedy(remedy)
