"""TLS under a connection: the same frames and answers, encrypted between our own sockets and OpenSSL.

The handshake is over when a `TlsConnection` is made (`net/handshakes`). The socket is an ordinary one; ciphertext goes
through memory (`TlsPipe`), for two reasons:

- OpenSSL that reads a socket itself reads on while there is something that is no data, as key updates, which anybody
  may send without end: one client would hold the event loop. Here it gets what was received in one call, and a client
  that sends much without a byte of data is disconnected.
- What some clients send as many small records is received at once, and what is sent leaves in one call.

What differs from plaintext beyond that:

- Data may be inside of OpenSSL, or wait for it, while the socket is not readable. So what has arrived is decrypted
  and served until nothing is left of it, or a request must be waited for; then it is gone on with after that.
- Slices of files are read into a buffer and encrypted from there: reads that would have to wait for the disk are left
  to a thread, as on plaintext. `os.sendfile` would send the file's bytes as they are, and is never called here.
- A client that leaves says so inside of the encrypted stream (close_notify), and some wait for an answer to it before
  they close. So some bytes are read ahead while a request is parked. If they are another request, only the end of the
  TCP stream shows that the client left.

Renegotiation is switched off (`net/contexts`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import ssl
import struct
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.errors import InvalidFrame
from barnabas.net.connection import Connection
from barnabas.net.outbox import BLOCKED, CAN_PROBE, DONE, MOST_PER_TURN, Broken, Outbox, Progress

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from barnabas.net.reply import Part, Slice
    from barnabas.net.server import Server

logger = logging.getLogger(__name__)

RECORD: Final = 16 * 1024
"""The most bytes of data in one record of a client."""
HEAD: Final = 5
"""Bytes before a record's ciphertext: its type, a version, and in the last two its length."""
LENGTH_AT: Final = struct.Struct(">3xH")
MOST_SEALED: Final = RECORD + 2048
"""The most bytes of ciphertext in a record: TLS 1.2 allows so many more than there are of data."""
LARGEST: Final = HEAD + MOST_SEALED
"""The most bytes of a record, and of records that OpenSSL gets together."""
RECEIVED: Final = RECORD + 4 * 1024
"""Bytes of ciphertext that are received at once: a batch of 16 KB, as Java producers send, with all around it.

What has come behind a request that is waited for stays with the connection, so it is not more.
"""
RECEIVED_MORE: Final = 256 * 1024
"""The same where so much of a request is still to come; OpenSSL gets it record by record and needs memory for one."""
SEALED: Final = 16 * 1024
"""Bytes of data in one record of ours; OpenSSL's memory for them stays with the connection, too."""
CHUNK: Final = 4 * SEALED
"""Bytes that are encrypted and sent at once."""
RECEIVED_PER_TURN: Final = 256 * 1024
"""Bytes after which a client that sends much lets others have their turn."""
MOST_WITHOUT_DATA: Final = 3 * RECORD
"""Bytes of records in a row without a byte of data, after which a client is disconnected."""
CANNOT_PROBE: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL})
"""Answers of file systems that cannot tell whether bytes are in memory."""


class TlsBuffers:
    """What all connections over TLS of a server share."""

    def __init__(self) -> None:
        self.received = memoryview(bytearray(RECEIVED_MORE))
        """Ciphertext is received into it."""
        self.scratch = memoryview(bytearray(CHUNK))
        """Data of files is read into it and encrypted from it."""


class TlsPipe:
    """OpenSSL between two buffers of ciphertext."""

    __slots__ = ("_begun", "_fresh", "incoming", "is_ended", "outgoing", "ssl", "without_data")

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.ssl = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.is_ended = False
        """Whether the other side has said that nothing more comes."""
        self._fresh = memoryview(b"")
        """Ciphertext in somebody else's buffer that OpenSSL has not got yet."""
        self._begun = bytearray()
        """The beginning of a record whose end has not come."""
        self.without_data = 0
        """Bytes of the records that came since the last one with data."""

    @property
    def has_more(self) -> bool:
        """Whether there may be data that was not decrypted, or not fetched."""
        return not self.is_ended and bool(self._fresh or self.incoming.pending or self.ssl.pending())

    def end_handshake(self) -> None:
        """OpenSSL has read all records of the handshake: it gets no others but whole ones from now on."""
        self.take(memoryview(self.incoming.read()))
        self.keep()

    def take(self, ciphertext: memoryview) -> None:
        """Take what has arrived, without a copy until it is decrypted or kept."""
        self._fresh = self._complete(ciphertext) if self._begun else ciphertext

    def keep(self) -> None:
        """Copy what is left of it: its buffer is going to be used for something else."""
        if self._fresh:
            while self._feed():
                pass
            self._begun += self._fresh
            self._fresh = memoryview(b"")

    def _complete(self, ciphertext: memoryview) -> memoryview:
        """Add to the record that has begun what belongs to it; returns the rest."""
        begun = self._begun
        if (lacking := HEAD - len(begun)) > 0:
            begun += ciphertext[:lacking]
            ciphertext = ciphertext[lacking:]
            if len(begun) < HEAD:
                return ciphertext
        (length,) = LENGTH_AT.unpack_from(begun)
        lacking = HEAD + length - len(begun) if length <= MOST_SEALED else 0  # OpenSSL refuses it by its head
        begun += ciphertext[:lacking]
        if len(ciphertext) >= lacking:
            self.incoming.write(begun)
            self.without_data += len(begun)
            self._begun = bytearray()
        return ciphertext[lacking:]

    def _feed(self) -> bool:
        """Hand OpenSSL the next records that are whole, as many as it takes at once; whether there were any.

        It would take a part of a record, too, but tell by an exception that it wants the rest, which costs more than
        to look where records end.
        """
        fresh = self._fresh
        size, end = min(len(fresh), LARGEST), 0
        while size - end >= HEAD:
            (length,) = LENGTH_AT.unpack_from(fresh, end)
            following = end + HEAD + length
            if following > size:
                if length > MOST_SEALED:
                    end = size  # OpenSSL refuses it
                break
            end = following
        if end:
            self.incoming.write(fresh[:end])
            self.without_data += end
            self._fresh = fresh[end:]
        return end > 0

    def decrypt(self, room: memoryview) -> int:
        """Decrypt into `room` what has arrived; returns how many bytes. Raises InvalidFrame if much has no data."""
        read, incoming = self.ssl.read, self.incoming
        filled, size = 0, len(room)
        while filled < size and not self.is_ended and (incoming.pending or self._feed() or self.ssl.pending()):
            try:
                count: Any = read(size, room[filled:] if filled else room)  # a number, since there is a buffer
            except ssl.SSLWantReadError:  # the last of these records had no data
                self._check_data()
                continue
            except ssl.SSLZeroReturnError:
                count = 0
            if not count:
                self.is_ended = True
                break
            self.without_data = 0
            filled += count
        return filled

    def _check_data(self) -> None:
        if self.without_data > MOST_WITHOUT_DATA:
            raise InvalidFrame(f"{self.without_data} bytes of TLS came without a byte of data")

    def encrypt(self, data: memoryview | bytes) -> bytes:
        """Encrypt data; returns what is to be sent, with what OpenSSL has to say for itself."""
        write, outgoing = self.ssl.write, self.outgoing
        if len(data) <= SEALED:
            write(data)
            return outgoing.read()
        sealed = []
        view = memoryview(data)
        for start in range(0, len(view), SEALED):
            write(view[start : start + SEALED])
            sealed.append(outgoing.read())  # at once, so that OpenSSL's memory does not grow
        return b"".join(sealed)

    def farewell(self) -> bytes:
        """What tells the other side that nothing more comes."""
        with contextlib.suppress(OSError, ValueError):  # it may not have told that it goes, or be out of step
            self.ssl.unwrap()
        return self.outgoing.read()


class TlsOutbox(Outbox):
    """The queue of one connection over TLS; `_sent` counts the bytes of the first part that are encrypted already."""

    __slots__ = ("_pipe", "_scratch", "_unsent")

    def __init__(self, sock: socket.socket, pipe: TlsPipe, scratch: memoryview) -> None:
        super().__init__(sock)
        self._pipe = pipe
        self._scratch = scratch
        """Where parts are gathered to be encrypted; all connections share it."""
        self._unsent = b""
        """Ciphertext that the socket did not take."""

    def __bool__(self) -> bool:
        return bool(self._parts or self._unsent)

    @property
    def is_in_a_write(self) -> bool:
        """Whether ciphertext waits: nothing else may be sent before it."""
        return bool(self._unsent)

    def put(self, parts: Sequence[Part]) -> None:
        """Queue an answer in parts; the outbox takes over the slices' leases."""
        self._parts.extend(parts)

    def send(self) -> Progress:
        """Send as much as the socket takes, up to a fair share."""
        self._added = 0
        parts, budget = self._parts, MOST_PER_TURN
        try:
            if self._unsent or self._pipe.outgoing.pending:
                self._send_sealed(self._unsent + self._pipe.outgoing.read())
            while parts and not self._unsent:
                if budget <= 0:
                    return BLOCKED
                if len(parts) == 1 and not self._sent and isinstance(data := parts[0], bytes) and len(data) <= CHUNK:
                    parts.clear()  # in one piece, the commonest queue
                    self._send_sealed(self._pipe.encrypt(data))
                    break
                filled = self._fill(self._scratch)
                if not filled:
                    return Progress.COLD
                self._send_sealed(self._pipe.encrypt(self._scratch[:filled]))
                budget -= filled
        except OSError as error:
            raise Broken(str(error)) from error
        return BLOCKED if self._unsent else DONE

    def _send_sealed(self, sealed: bytes) -> None:
        try:
            sent = self._sock.send(sealed)
        except (BlockingIOError, InterruptedError):
            sent = 0
        self._unsent = sealed[sent:]

    def _fill(self, room: memoryview) -> int:
        """Copy from the first parts into `room` until it is full, or the disk would have to be waited for."""
        filled = 0
        while self._parts and filled < len(room):
            part = self._parts[0]
            if isinstance(part, bytes):
                length = len(part)
                count = min(length - self._sent, len(room) - filled)
                room[filled : filled + count] = memoryview(part)[self._sent : self._sent + count]
            else:
                length = part.length
                count = self._read(part, room[filled : filled + length - self._sent])
                if not count:
                    break
            filled += count
            self._advance(count, length)
        return filled

    def _read(self, part: Slice, room: memoryview) -> int:
        """Read the next bytes of a slice that are in memory; returns how many, 0 if the next byte is not."""
        flags = os.RWF_NOWAIT if CAN_PROBE and not self._warmed else 0
        position = part.position + self._sent
        try:
            count = _read_at(part.file.fd, room, position, flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            if not flags or error.errno not in CANNOT_PROBE:
                raise
            count = _read_at(part.file.fd, room, position, 0)
        if part.file.revoked:
            raise Broken("the log was truncated below a response that was being sent")
        if not count:
            raise Broken("the log file is shorter than a response that was being sent")
        return count

    def clear(self) -> None:
        """Drop everything and give back the leases."""
        super().clear()
        self._unsent = b""


class TlsConnection(Connection):
    """A client's connection whose TLS handshake is done."""

    __slots__ = ("_pipe", "_received", "certificate")

    def __init__(
        self, server: Server, sock: socket.socket, pipe: TlsPipe, listener: str, address: tuple[str, int]
    ) -> None:
        self.certificate = pipe.ssl.getpeercert(binary_form=True)
        pipe.end_handshake()
        self._pipe = pipe
        super().__init__(server, sock, listener, address)
        assert server.tls_buffers is not None  # made with the listener
        self._received = server.tls_buffers.received
        self._outbox = TlsOutbox(sock, pipe, server.tls_buffers.scratch)

    # Receiving

    def _on_readable(self) -> None:
        if self._busy:
            if not self._giving_way:
                self._peek()
            return
        self._attempt(self._receive)

    def _on_buffered(self) -> None:
        """Go on with what has arrived before."""
        if not (self._busy or self._closed):
            self._attempt(self._serve_buffered)

    def _attempt(self, work: Callable[[], None]) -> None:
        self.last_active = self.server.loop.time()
        try:
            work()
        except (BlockingIOError, InterruptedError):
            return
        except InvalidFrame as error:
            self._refuse(error)
        except (OSError, Broken):
            self.close()
        except Exception:
            self._fail()

    def _receive(self) -> None:
        """Receive and serve until nothing is there, some request must be waited for, or it is the turn of others."""
        left, size = RECEIVED_PER_TURN, RECEIVED
        while left > 0:
            count = self._pull(size)
            if not count:
                self._on_end()
                return
            try:
                self._serve_buffered()
            finally:
                self._pipe.keep()
            if self._busy or self._closed or count < size or self._pipe.is_ended or self._pipe.without_data:
                return
            left -= count
            size = max(RECEIVED, min(self._missing(), RECEIVED_MORE))

    def _missing(self) -> int:
        """Bytes that an unfinished request still lacks: as much ciphertext never holds anything beyond it."""
        inbox = self._inbox
        return self._frame_length(inbox.data()) - inbox.filled if inbox else 0

    def _pull(self, size: int = RECEIVED) -> int:
        """Receive ciphertext; returns how many bytes, 0 at the end of the stream."""
        received = self._received
        count = self._sock.recv_into(received, size)
        self._pipe.take(received[:count])
        return count

    def _serve_buffered(self) -> None:
        """Decrypt and serve what has arrived, until nothing is left of it or a request must be waited for."""
        pipe = self._pipe
        while not (self._busy or self._closed) and pipe.has_more:
            count = self._decrypt_more() if self._inbox else self._decrypt_first()
            if not count:
                break
        if pipe.outgoing.pending and not self._closed:  # OpenSSL answers a key update
            self._send()
        if pipe.is_ended:
            self._on_farewell()

    def _decrypt_first(self) -> int:
        """Decrypt into the shared buffer, where most frames are whole."""
        shared = self.server.shared
        count = self._pipe.decrypt(shared)
        if count:
            served = self._serve_frames(shared, count)
            if served < count and not self._closed:
                rest = shared[served:count]
                self._inbox.keep(rest, self._frame_length(rest), self.last_active, self._evict)
        return count

    def _decrypt_more(self) -> int:
        """Decrypt the next bytes of an unfinished frame."""
        inbox = self._inbox
        wanted = self._frame_length(inbox.data())
        count = self._pipe.decrypt(inbox.room(wanted, self.last_active))
        inbox.filled += count
        if inbox.filled >= wanted:
            self._serve_inbox()
        return count

    def _peek(self) -> None:
        """Something happened while a request is parked: the client left, or its next request must wait."""
        if self._inbox or self._pipe.has_more or not self.server.budget.has_room(RECEIVED):
            super()._peek()
        else:
            self._attempt(self._read_ahead)

    def _read_ahead(self) -> None:
        """Take some bytes while a request is parked: a client that leaves may say so in them, and go on waiting."""
        if not self._pull():
            self._on_end()
            return
        shared = self.server.shared
        count = self._pipe.decrypt(shared)
        self._pipe.keep()
        if count:
            self._inbox.keep(shared[:count], count, self.last_active, self._evict)
            self._read_off()
            self.server.departures.watch(self._sock.fileno(), self)
        if self._pipe.is_ended:
            self._on_farewell()

    def _on_farewell(self) -> None:
        """The client has said that nothing more comes; what it sent before may still wait to be served."""
        if self._closed:
            return
        if self._inbox and self._busy:
            self._read_off()
            self.expect_end()
        else:
            self._on_end()

    def _read_on(self) -> None:
        super()._read_on()
        if self._pipe.has_more or self._pipe.is_ended:
            self.server.loop.call_soon(self._on_buffered)

    # Ending

    def close(self) -> None:
        """End it: the client is told so, unless something else would have to be sent before."""
        if not self._closed and not (isinstance(self._outbox, TlsOutbox) and self._outbox.is_in_a_write):
            with contextlib.suppress(OSError):
                self._sock.send(self._pipe.farewell())
        super().close()


def _read_at(descriptor: int, room: memoryview, position: int, flags: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [room], position, flags)
    data = os.pread(descriptor, len(room), position)
    room[: len(data)] = data
    return len(data)
