"""What waits to be sent on one socket: bytes, and file slices that go out by sendfile.

Answers that are not large are copied instead. One call to the system is cheaper than the three that bytes, slice and
bytes take, and the client is woken once: a third less time for 64 KB, while a megabyte would take up to twice as long.
What a socket does not take of a copy goes by sendfile, unless it is small: slow clients do not cost us their answers.

sendfile waits for the disk when pages are not in memory, and the event loop must not. A slice goes out on the loop only
if it is known to be warm (the recent tail) or a probe finds its pages in memory; otherwise a thread reads it first,
which brings the pages in. A slice in the queue holds a lease on its file; if the file was truncated meanwhile, the
bytes promised in the response's length are gone, and the connection is closed.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

from barnabas.net.reply import release

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.net.reply import Part, Slice

MOST_PER_TURN: Final = 1 << 20
"""Bytes after which a fast reader lets the other connections have their turn."""
JOINED: Final = 64 * 1024
"""Answers are joined to pieces of up to this size."""
SMALL: Final = 16 * 1024
"""An answer up to this size goes out in one piece, however slow its client."""
COPIED: Final = 128 * 1024
"""One up to this size does if the socket takes it at once, as it does with Kafka's socket.send.buffer.bytes."""
PROBE_STEP: Final = 1 << 17
"""Distance of the bytes that a probe looks at: the kernel's usual read-ahead."""
MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)
CAN_PROBE: Final = hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")


class Progress(Enum):
    """How far a turn of sending came."""

    DONE = "everything is sent"
    BLOCKED = "the socket takes no more for the moment"
    COLD = "the next slice must be read from disk first"


DONE: Final = Progress.DONE
BLOCKED: Final = Progress.BLOCKED
"""Short names: in every turn of sending, looking into the Enum would show."""


class Broken(Exception):
    """The socket or a file under it failed: the connection cannot go on."""


class Outbox:
    """The queue of one connection."""

    __slots__ = ("_added", "_at_hand", "_parts", "_sent", "_sock", "_warmed")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._parts: deque[Part] = deque()
        self._added = 0
        self._at_hand = False
        """Whether the queue is an answer in several parts, in memory and not large, that nobody tried to send yet."""
        self._sent = 0
        """Bytes of the first part that are gone already."""
        self._warmed = False
        """Whether the first part, a slice, was brought into memory."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, data: bytes) -> int:
        """Queue bytes; returns how many bytes were queued since the last time that something was sent."""
        self._parts.append(data)
        self._added += len(data)
        return self._added

    def put(self, parts: Sequence[Part]) -> None:
        """Queue an answer in parts; the outbox takes over the slices' leases."""
        size = COPIED + 1 if self._parts else _size_at_hand(parts)
        self._at_hand = SMALL < size <= COPIED and len(parts) > 1
        if size > SMALL:
            self._parts.extend(parts)
            return
        try:
            self._parts.append(_copied(parts))
        finally:
            release(parts)

    def send(self) -> Progress:
        """Send as much as the socket takes, up to a fair share."""
        self._added = 0
        parts = self._parts
        try:
            if len(parts) == 1 and not self._sent and isinstance(answer := parts[0], bytes):
                sent = self._sock.send(answer)  # in one piece, the commonest queue
                if sent == len(answer):
                    parts.clear()
                    return DONE
                self._sent = sent
                return BLOCKED
            if self._at_hand:
                return self._send_copy()
            budget = MOST_PER_TURN
            while parts:
                part = parts[0]
                if isinstance(part, bytes):
                    if budget <= 0 and len(part) > SMALL:  # not the end of a large answer
                        return BLOCKED
                    budget -= self._send_bytes(part)
                elif budget <= 0:
                    return BLOCKED
                elif not (part.warm or self._warmed or self._is_warm(part)):
                    return Progress.COLD
                else:
                    budget -= self._send_slice(part)
                if self._sent:
                    return BLOCKED  # the socket did not take all of it
        except (BlockingIOError, InterruptedError):
            return BLOCKED
        except OSError as error:
            raise Broken(str(error)) from error
        return DONE

    def _send_copy(self) -> Progress:
        """Send the whole queue in one piece; what the socket does not take is not kept as a copy."""
        self._at_hand = False
        parts = self._parts
        copied = _copied(parts)
        left = self._sock.send(copied)
        if left == len(copied):
            self.clear()
            return DONE
        while left:
            part = parts[0]
            length = len(part) if isinstance(part, bytes) else part.length
            gone = min(left, length)
            left -= gone
            self._advance(gone, length)
        return BLOCKED

    def _send_bytes(self, part: bytes) -> int:
        parts = self._parts
        if len(parts) > 1 and isinstance(parts[1], bytes):
            part = self._join()
        more = MSG_MORE if len(parts) > 1 else 0
        sent = self._sock.send(part if not self._sent else memoryview(part)[self._sent :], more)
        self._advance(sent, len(part))
        return sent

    def _join(self) -> bytes:
        """Make one part of the small byte parts at the front."""
        parts = self._parts
        together = [parts.popleft()]
        size = len(together[0])  # type: ignore[arg-type]  # the front is bytes
        while parts and isinstance(following := parts[0], bytes) and size + len(following) <= JOINED:
            together.append(parts.popleft())
            size += len(following)
        joined = b"".join(together)  # type: ignore[arg-type]  # all are bytes
        parts.appendleft(joined)
        return joined

    def _send_slice(self, part: Slice) -> int:
        file, before = part.file, self._sent
        if file.revoked:
            raise Broken("the log was truncated below a response that was being sent")
        left = part.length - before
        most = left if left < MOST_PER_TURN else MOST_PER_TURN
        sent = os.sendfile(self._sock.fileno(), file.fd, part.position + before, most)
        if sent == left:
            self._drop_first()
        elif sent:
            self._sent = before + sent
        else:
            raise Broken("the log file is shorter than a response that was being sent")
        return sent

    def _advance(self, sent: int, length: int) -> None:
        self._sent += sent
        if self._sent == length:
            self._drop_first()

    def _drop_first(self) -> None:
        part = self._parts.popleft()
        if not isinstance(part, bytes):
            part.file.release()
        self._sent = 0
        self._warmed = False

    def _is_warm(self, part: Slice) -> bool:
        if not CAN_PROBE:
            return True
        byte = bytearray(1)
        end = part.position + part.length
        try:
            for position in (*range(part.position + self._sent, end, PROBE_STEP), end - 1):
                os.preadv(part.file.fd, [byte], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system that cannot be asked: sendfile is all that is left
        self._warmed = True
        return True

    def warm_up(self) -> None:
        """Bring the first slice into memory. Runs in a thread; the queue is not touched meanwhile."""
        part = self._parts[0]
        assert not isinstance(part, bytes)
        scratch = bytearray(PROBE_STEP)
        for position in range(part.position + self._sent, part.position + part.length, PROBE_STEP):
            os.preadv(part.file.fd, [scratch], position)
        self._warmed = True

    def clear(self) -> None:
        """Drop everything and give back the leases."""
        for part in self._parts:
            if not isinstance(part, bytes):
                part.file.release()
        self._parts.clear()


class DiscardingOutbox:
    """The outbox of a client that is gone: takes every answer, and sends none."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def add(self, data: bytes) -> int:
        """Drop bytes."""
        return 0

    def put(self, parts: Sequence[Part]) -> None:
        """Drop an answer in parts."""
        release(parts)

    def send(self) -> Progress:
        """There is nothing to send."""
        return DONE

    def warm_up(self) -> None:
        """There is nothing to read."""

    def clear(self) -> None:
        """There is nothing to drop."""


def _size_at_hand(parts: Sequence[Part]) -> int:
    """The bytes of an answer whose slices are known to be in memory; more than COPIED for any other."""
    size = 0
    for part in parts:
        if isinstance(part, bytes):
            size += len(part)
        elif part.warm:
            size += part.length
        else:
            return COPIED + 1
        if size > COPIED:
            break
    return size


def _copied(parts: Iterable[Part]) -> bytes:
    """The bytes of parts that are in memory."""
    pieces = [part if isinstance(part, bytes) else _read(part) for part in parts]
    return b"".join(pieces)


def _read(part: Slice) -> bytes:
    data = os.pread(part.file.fd, part.length, part.position)
    if part.file.revoked:
        raise Broken("the log was truncated below a response that was being sent")
    if len(data) != part.length:
        raise Broken("the log file is shorter than a response that was being sent")
    return data
