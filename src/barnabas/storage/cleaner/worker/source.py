"""Reading the segments of a log from their files, batch after batch, each with its CRC checked.

A cleaned batch gets a new CRC, so damage that went unnoticed here would be sealed for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.errors import CorruptMessage
from barnabas.protocol.records.batch import CRC_START, HEADER, HEADER_SIZE, MAGIC, BatchHeader
from barnabas.protocol.records.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.storage.files import FileSystem


class SourceBatch(NamedTuple):
    """A batch, which begins at `at` of `data`; `position` is where it begins in the file."""

    header: BatchHeader
    data: bytes
    at: int
    position: int


def batches(files: FileSystem, path: str, size: int, chunk: int, spend: Callable[[int], None]) -> Iterator[SourceBatch]:
    """The batches of the log file `path`, of which `size` bytes are read, about `chunk` at a time.

    `spend` is called with the number of bytes after each read, and may wait. Raises CorruptMessage at the first batch
    that is not sound.
    """
    fd = files.open(path)
    try:
        position = 0
        while position < size:
            data = files.read(fd, min(chunk, size - position), position)
            spend(len(data))
            at = 0
            view = memoryview(data)
            while len(data) - at >= HEADER_SIZE:
                header = BatchHeader._make(HEADER.unpack_from(data, at))
                total = header.size
                if header.magic != MAGIC or total < HEADER_SIZE or position + at + total > size:
                    raise CorruptMessage(f"{path} has no sound batch at byte {position + at}")
                if at + total > len(data):
                    if at > 0:
                        break
                    data = files.read(fd, total, position)
                    view = memoryview(data)
                    spend(total - chunk)
                    if len(data) < total:
                        raise CorruptMessage(f"{path} ends inside the batch at byte {position}")
                if crc32c(view[at + CRC_START : at + total]) != header.crc:
                    raise CorruptMessage(f"the CRC of the batch at byte {position + at} of {path} is wrong")
                yield SourceBatch(header, data, at, position + at)
                at += total
            if at == 0:
                raise CorruptMessage(f"{size - position} bytes at the end of {path} are no batch")
            position += at
    finally:
        files.close(fd)
