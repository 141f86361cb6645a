"""Reading a segment batch by batch, to find the first byte that cannot be trusted."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import StartupError
from barnabas.protocol.records.batch import CRC_START, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader
from barnabas.protocol.records.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.storage.segments.segment import Segment

_CHUNK: Final = 1 << 20


class CheckedBatch(NamedTuple):
    """A batch whose CRC is right; `payload` is that of control batches only."""

    position: int
    header: BatchHeader
    payload: bytes


class Scan:
    """The batches of a segment whose CRC is right, up to the first that is not; `damage` then says what is wrong."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.damage: str | None = None

    def in_order(self) -> Iterator[CheckedBatch]:
        """The same, up to the first whose offsets cannot be.

        The base offset of a batch is not covered by its CRC. A batch that leaves a gap may follow what compaction has
        removed, or have a higher offset than it was given: then the batch behind it goes back, and neither is
        among these.
        """
        waiting: CheckedBatch | None = None
        before = offset = self._segment.base_offset
        for batch in self:
            header = batch.header
            if header.base_offset < offset or header.last_offset_delta < 0:
                self.damage = f"offsets go back at byte {batch.position} of {self._segment.path}"
                if header.base_offset >= before:  # it follows the one before the gap
                    waiting = None
                break
            if waiting is not None:
                yield waiting
            waiting = batch if header.base_offset > offset else None
            if waiting is None:
                yield batch
            before, offset = offset, header.last_offset + 1
        if waiting is not None:
            yield waiting

    def __iter__(self) -> Iterator[CheckedBatch]:
        segment = self._segment
        position, begin, data = 0, 0, b""
        while position < segment.size:
            start = position - begin
            if start + HEADER_SIZE > len(data):
                data, begin, start = segment.file.read(_CHUNK, position), position, 0
                if len(data) < HEADER_SIZE:
                    return
            header = BatchHeader._make(HEADER.unpack_from(data, start))
            size = header.size
            if size < HEADER_SIZE or position + size > segment.size:
                self.damage = f"{size} bytes are claimed by the batch at byte {position} of {segment.path}"
                return
            if start + size > len(data) and size <= _CHUNK:
                data, begin, start = segment.file.read(_CHUNK, position), position, 0
            if header.magic in (0, 1):
                self._refuse_old_format(position, size)
            if header.magic != MAGIC or self._crc(data, start, position, size) != header.crc:
                self.damage = f"the CRC of the batch at byte {position} of {segment.path} is wrong"
                return
            payload = data[start + HEADER_SIZE : start + size] if header.is_control else b""
            yield CheckedBatch(position, header, payload)
            position += size

    def _crc(self, data: bytes, start: int, position: int, size: int) -> int:
        if start + size <= len(data):
            return crc32c(memoryview(data)[start + CRC_START : start + size])
        return self._checksum(crc32c, position + CRC_START, position + size)

    def _checksum(self, function: Callable[[bytes, int], int], position: int, end: int) -> int:
        crc = 0
        while position < end:
            part = self._segment.file.read(min(_CHUNK, end - position), position)
            crc = function(part, crc)
            position += len(part)
        return crc

    def _refuse_old_format(self, position: int, size: int) -> None:
        """Raise if this really is a message of the old format, which must not be taken for damage."""
        covered = position + LOG_OVERHEAD + 4
        crc = int.from_bytes(self._segment.file.read(4, covered - 4), "big")
        if self._checksum(zlib.crc32, covered, position + size) == crc:
            raise StartupError(
                f"{self._segment.path} holds messages of Kafka's format v0 or v1, which Barnabas does not read. "
                "Copy the topic with Kafka 3 into one of format v2"
            )
