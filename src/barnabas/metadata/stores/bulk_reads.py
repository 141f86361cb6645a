"""Reading many nodes with one request: ZooKeeper's multiRead (3.6 and later), which kazoo does not have.

kazoo sends a request at a time and wakes a thread for each, which is what thousands of single reads cost. It takes any
object for a request that has a `type`, `serialize` and `deserialize`; those here hold what ZooKeeper's own records say:

    request    for each node a head, its path, and that it is not to be watched; then the last head
    response   for each node a head, and what was read or an error code; then the last head

Each node is read, or not, on its own.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")

_HEAD: Final = Struct(">i?i")
"""What is to be done, or was; whether this is the last head; the error."""
_LAST: Final = _HEAD.pack(-1, True, -1)
_FAILED: Final = -1
"""As what was done: nothing, for the error that follows."""
_LENGTH: Final = Struct(">i")
_STAT: Final = Struct(">qqqqiiiqiiq")


class ReadNode(NamedTuple):
    """What a node holds, and of what ZooKeeper notes about it the part that is used."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    owner: int
    child_count: int


class ReadMany(Generic[T]):
    """Read the same of every one of `paths`."""

    type: Final = 22
    operation: ClassVar[int]

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        """The request, after its own head."""
        head = _HEAD.pack(self.operation, False, -1)
        pieces: list[bytes] = []
        for path in self._paths:
            name = path.encode()
            pieces += (head, _LENGTH.pack(len(name)), name, b"\0")
        return b"".join(pieces) + _LAST

    def deserialize(self, answer: bytes, offset: int) -> list[T | int]:
        """What was read of each node in turn, or the code of the error."""
        return list(self._results(answer, offset))

    def _results(self, answer: bytes, offset: int) -> Iterator[T | int]:
        while True:
            operation, is_last, _ = _HEAD.unpack_from(answer, offset)
            offset += _HEAD.size
            if is_last:
                return
            if operation == _FAILED:
                (error,) = _LENGTH.unpack_from(answer, offset)
                offset += _LENGTH.size
                yield error
            else:
                found, offset = self._found(answer, offset)
                yield found

    def _found(self, answer: bytes, offset: int) -> tuple[T, int]:
        raise NotImplementedError


class ReadNodes(ReadMany[ReadNode]):
    """Read what nodes hold."""

    operation = 4

    def _found(self, answer: bytes, offset: int) -> tuple[ReadNode, int]:
        data, offset = _buffer(answer, offset)
        czxid, mzxid, _, _, version, _, _, owner, _, child_count, _ = _STAT.unpack_from(answer, offset)
        return ReadNode(data, version, czxid, mzxid, owner, child_count), offset + _STAT.size


class ReadChildren(ReadMany[list[str]]):
    """Read the names of nodes' children."""

    operation = 8

    def _found(self, answer: bytes, offset: int) -> tuple[list[str], int]:
        (count,) = _LENGTH.unpack_from(answer, offset)
        offset += _LENGTH.size
        names: list[str] = []
        for _ in range(count):
            name, offset = _buffer(answer, offset)
            names.append(name.decode())
        return names, offset


def _buffer(answer: bytes, offset: int) -> tuple[bytes, int]:
    """Bytes behind their length, which is -1 where there are none."""
    (length,) = _LENGTH.unpack_from(answer, offset)
    start = offset + _LENGTH.size
    end = start + max(length, 0)
    return bytes(answer[start:end]), end
