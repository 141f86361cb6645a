"""One client: frames in, answers out, in order.

A request is served as soon as its frame is whole, within the callback that received its last byte. One request at a
time: while one is parked, nothing more is taken from the socket, unless it is `overtakable` (see `net/reply`). While
the client does not read its responses, its requests are not read either: one that never reads costs one response.

A client that has closed its end may still read, as after shutdown(SHUT_WR), and is answered like any other for a
moment. After that it counts as gone: what it waits for is abandoned, what it sent before (acks=0) is served, and the
connection is closed. That it closed its end is known also while its socket is not read (`net/departures`).

A client that has sent many requests at once gets some of them served, then others have their turn, as it would have to
let them if it had asked one by one.

Answers are sent when the turn of the event loop is over: those of one connection go out together, and clients are
woken after the broker's work and not in the middle of it. Where many connections are answered in one turn, the first of
them do not wait for the others (`MOST_ANSWERED` of the server).

A client that has used more than its quota is muted for a while: it is answered, but nothing more of it is read or
served until then. What it has sent meanwhile stays with the system, but for what came with the last request; where
memory is short, a muted connection is closed first. That the client has left is noticed all the same.

Before a client has logged in, its connection is restricted (`restrict`): other frames, another server of them, and a
share of memory of its own, so that nobody who has proved nothing takes the memory of those who have.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import InvalidFrame
from barnabas.net.inbox import Inbox
from barnabas.net.outbox import BLOCKED, DONE, Broken, DiscardingOutbox, Outbox
from barnabas.net.reply import HANG_UP, Answer, Parked, release
from barnabas.protocol.wire.framing import HEADER, LENGTH, frame_size

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from barnabas.net.outbox import Progress
    from barnabas.net.server import Server
    from barnabas.protocol.wire.framing import FrameLimits

logger = logging.getLogger(__name__)

MOST_UNSENT: Final = 64 * 1024
"""Bytes of answers after which the end of the turn is not waited for."""
REQUESTS_PER_TURN: Final = 32
"""Requests of one connection that are served in a row: some milliseconds at most, since none takes long by itself."""
SMALLEST_FRAME: Final = HEADER.size
ESTABLISHED: Final = 1
"""TCP's state of a connection that neither end has closed or reset."""
MOST_PARKED: Final = 1000
"""Answers of one connection that may wait before its next request must, too."""
ABANDON_SECONDS: Final = 1.0
"""Seconds for which a client that has closed its end may wait for answers."""


class Connection:
    """A client's connection; `server` says what to do with its frames."""

    __slots__ = (
        "_busy",
        "_closed",
        "_giving_way",
        "_hanging_up",
        "_inbox",
        "_is_gone",
        "_leaving",
        "_muted",
        "_outbox",
        "_parked",
        "_reading",
        "_serving",
        "_sock",
        "_to_flush",
        "_warming",
        "_writing",
        "address",
        "frames",
        "last_active",
        "listener",
        "max_frame",
        "on_close",
        "serve",
        "server",
        "state",
    )

    certificate: bytes | None = None
    """The client's certificate (DER), where it has shown one (`net/tls`)."""

    def __init__(self, server: Server, sock: socket.socket, listener: str, address: tuple[str, int]) -> None:
        self.server = server
        self.listener = listener
        self.address = address
        self.state: object = None
        """Whatever the server's handler keeps per connection."""
        self.serve = server.serve
        """What answers its frames."""
        self.frames = server.frames
        """Which frames it takes."""
        self.max_frame = server.frames.largest
        """The same, of their largest, at hand."""
        self.on_close: Callable[[], object] | None = None
        """Called when it has ended."""
        self.last_active = server.loop.time()
        self._sock = sock
        self._inbox = Inbox(server.budget)
        self._outbox: Outbox | DiscardingOutbox = Outbox(sock)
        self._parked: deque[Parked] = deque()
        self._busy = False
        self._hanging_up = False
        self._leaving = False
        """Whether the client has closed its end."""
        self._is_gone = False
        """Whether it did so ABANDON_SECONDS seconds ago: nothing is answered any more."""
        self._giving_way = False
        """Whether requests that have arrived wait for the next turn."""
        self._muted: asyncio.TimerHandle | None = None
        """What ends the time in which it is not read."""
        self._warming = False
        self._reading = False
        self._serving = False
        self._writing = False
        self._to_flush = False
        self._closed = False
        self._read_on()

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._closed

    @property
    def parked(self) -> Iterable[Parked]:
        """Answers that wait, to be looked at and not to be changed."""
        return self._parked

    @property
    def idle(self) -> bool:
        """Whether nothing is being answered or sent."""
        return not (self._busy or self._parked or self._outbox)

    @property
    def left(self) -> bool:
        """Whether the client has closed its end; what it sent before may still wait to be served. Known on Linux."""
        if self._closed or not hasattr(socket, "TCP_INFO"):
            return False
        return self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED

    # Logging in

    def restrict(self, serve: Callable[[Connection, memoryview], Answer | Parked], frames: FrameLimits) -> None:
        """Have other frames served otherwise, within the memory for clients that have not logged in."""
        self.serve, self.frames, self.max_frame = serve, frames, frames.largest
        self._inbox.charge(self.server.login_budget, self.server.loop.time(), self._evict)

    def change_frames(self, frames: FrameLimits) -> None:
        """Take other frames from now on."""
        self.frames, self.max_frame = frames, frames.largest

    def admit(self, serve: Callable[[Connection, memoryview], Answer | Parked]) -> None:
        """The client has logged in: `serve` answers what comes after this, within the limits of all clients."""
        self.serve = serve
        self.change_frames(self.server.frames)
        self._inbox.charge(self.server.budget, self.server.loop.time(), self._evict)

    # Muting

    def mute(self, seconds: float, whose: object = None) -> None:
        """Read and serve nothing more for a while; what is under way is answered. A longer time counts.

        `whose` quota makes it wait is what `Server.unmute` is asked about.
        """
        if self._closed:
            return
        self.server.throttles += 1
        self.server.throttled_seconds += seconds
        until = self.server.loop.time() + seconds
        if self._muted is not None:
            if self._muted.when() >= until:
                return
            self._muted.cancel()
        self._busy = True
        self._muted = self.server.loop.call_at(until, self.unmute)
        self.server.muted[self] = whose

    def unmute(self) -> None:
        """Go on with what has waited."""
        if self._stop_muting():
            self._go_on()

    def _stop_muting(self) -> bool:
        """Whether it was muted."""
        if self._muted is None:
            return False
        self._muted.cancel()
        self._muted = None
        self.server.muted.pop(self, None)
        return True

    # Receiving

    def _on_readable(self) -> None:
        if self._busy:
            if not self._giving_way:
                self._peek()
            return
        server = self.server
        now = self.last_active = server.loop.time()
        try:
            if self._inbox.filled:
                count = self._sock.recv_into(self._inbox.room(self._frame_length(self._inbox.data()), now))
                self._inbox.filled += count
                if count:
                    self._serve_inbox()
            else:
                shared = server.shared
                count = self._sock.recv_into(shared)
                if count:
                    served = self._serve_frames(shared, count)
                    if served < count and not self._closed:
                        rest = shared[served:count]
                        self._inbox.keep(rest, self._frame_length(rest), now, self._evict)
            if not count:
                self._on_end()
        except (BlockingIOError, InterruptedError):
            return
        except InvalidFrame as error:
            self._refuse(error)
        except (OSError, Broken):
            self.close()
        except Exception:
            self._fail()

    def _peek(self) -> None:
        """Something happened while a request is parked: the client left, or its next request must wait."""
        try:
            if self._sock.recv(1, socket.MSG_PEEK):
                self._read_off()
                self.server.departures.watch(self._sock.fileno(), self)
            elif self._inbox:
                self._read_off()
                self.expect_end()
            else:
                self._on_end()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()

    def _frame_length(self, data: memoryview) -> int:
        """The bytes of the frame that `data` starts with, its length included."""
        return 4 + frame_size(data, 0, self.frames) if len(data) >= 4 else 4

    def _serve_inbox(self) -> None:
        if self._serving:  # a request of the inbox gave one before it its answer; whoever serves it serves the rest
            return
        self._serving = True
        try:
            data = self._inbox.data()
            served = self._serve_frames(data, len(data))
            data.release()
            if served and not self._closed:
                self._inbox.drop(served, self.server.loop.time())
        finally:
            self._serving = False

    def _serve_frames(self, data: memoryview, end: int) -> int:
        """Serve the whole frames in `data` before `end` as far as the order of answers allows; returns their bytes."""
        serve, limit = self.serve, self.max_frame
        position = 0
        left = REQUESTS_PER_TURN
        while end - position >= 4:
            start = position + 4
            (size,) = LENGTH.unpack_from(data, position)
            if not SMALLEST_FRAME <= size <= limit:
                frame_size(data, position, self.frames)  # says what is wrong, unless the login changed it meanwhile
            stop = start + size
            if stop > end:
                break
            position = stop
            answer = serve(self, data[start:stop])
            if isinstance(answer, bytes) and not self._parked:
                self._answer_bytes(answer)
            elif isinstance(answer, Parked):
                self._park(answer)
            elif answer is HANG_UP:
                self.hang_up()
            elif self._parked:
                resolved = Parked()
                resolved.answer = answer
                self._parked.append(resolved)
            else:
                self._answer(answer)
            if self._busy or position == end:
                break
            left -= 1
            if not left:
                self._give_way()
                break
        return position

    def _give_way(self) -> None:
        """Serve other clients, and finish what is under way, before more of this client's requests."""
        self._giving_way = self._busy = True
        self.server.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._giving_way = False
        self._go_on()

    def _evict(self) -> None:
        """Others need the memory that an unfinished request takes, or one that waits because its client is muted."""
        if self._muted is not None and not self._parked:
            self._log_closed("it is throttled by a quota, and queued.max.request.bytes is used up.")
            self.close()
        elif not self._busy:
            size = self._frame_length(self._inbox.data())
            self._log_closed(
                f"its request of {size} bytes did not arrive in time, and queued.max.request.bytes is used up."
            )
            self.close()

    def _refuse(self, error: InvalidFrame) -> None:
        self._log_closed(error)
        self._send()
        self.close()

    def _log_closed(self, reason: object) -> None:
        self.server.refusals.log_closed(self, reason)

    def _fail(self) -> None:
        """A defect of ours: close this connection and no other."""
        logger.exception("Closed the connection of %s:%d on %s: its request failed.", *self.address[:2], self.listener)
        self._send()
        self.close()

    def fail_to_send(self) -> None:
        """A defect of ours in sending: close this connection and no other."""
        logger.exception("Closed the connection of %s:%d on %s: sending failed.", *self.address[:2], self.listener)
        self.close()

    # Answering

    def _park(self, parked: Parked) -> None:
        if self._closed:  # meanwhile: an answer before it was sent, and found nobody
            parked.abandon()
            return
        if self._is_gone and parked.may_be_overtaken:
            parked.abandon()
            return
        if parked.resolved and not self._parked:
            assert not isinstance(parked.answer, Parked)
            self._answer(parked.answer)
            return
        parked.notify = self._on_resolved
        self._parked.append(parked)
        if not parked.overtakable or len(self._parked) >= MOST_PARKED:
            self._busy = True

    def _on_resolved(self) -> None:
        """A parked answer came, or may be overtaken or abandoned now: send what is in order, go on with what waited.

        Requests that waited are served in the next turn of the event loop. Whoever gives an answer may be giving many,
        and a request that is served meanwhile might ask for the next ones, and so on without an end.
        """
        if self._closed:
            return
        if self._is_gone:
            self._abandon_waiting()
        while self._parked and not isinstance(answer := self._parked[0].answer, Parked):
            parked = self._parked.popleft()
            if parked.when_answered is not None:
                parked.when_answered()
            if isinstance(answer, bytes):
                self._answer_bytes(answer)
            else:
                self._answer(answer)
            if self._closed:
                return
        if self._busy and self._inbox.filled and not self._giving_way:
            self._give_way()
        else:
            self._go_on()

    def _answer(self, answer: Answer) -> None:
        if answer is None:
            return
        if self._closed:
            release(answer)
            return
        if isinstance(answer, bytes):
            self._answer_bytes(answer)
        elif answer is HANG_UP:
            self.hang_up()
        else:
            try:
                self._outbox.put(answer)
            except (Broken, OSError) as error:
                self._broken(error)
                return
            self._send()

    def hang_up(self) -> None:
        """Serve nothing more, and close when everything before is answered and sent."""
        self._hanging_up = self._busy = True
        if not (self._parked or self._outbox):
            self.close()

    def _answer_bytes(self, data: bytes) -> None:
        if self._outbox.add(data) > MOST_UNSENT:
            self._send()
        elif not self._to_flush:
            self._to_flush = True
            self.server.flush_later(self)

    def flush(self) -> None:
        """Send what was answered in this turn."""
        self._to_flush = False
        if self._closed or self._writing or self._warming:
            return
        try:
            progress = self._outbox.send()
        except Broken as error:
            self._broken(error)
            return
        if progress is not DONE:
            self._send_later(progress)
        if self._hanging_up or self.server.closing:
            self._go_on()

    def _send(self) -> bool:
        """Send what goes; whether that was everything."""
        if self._warming:
            return False
        try:
            progress = self._outbox.send()
        except Broken as error:
            self._broken(error)
            return False
        if progress is DONE:
            return True
        self._send_later(progress)
        return False

    def _send_later(self, progress: Progress) -> None:
        """Send the rest when the socket takes it, or when it was read from the disk."""
        if progress is not BLOCKED:
            self._warm_up()
        elif not self._writing:
            self._wait_for_room()

    def _broken(self, error: Exception) -> None:
        logger.info("Closed the connection of %s:%d: %s", *self.address[:2], error)
        self.close()

    def _wait_for_room(self) -> None:
        self._busy = self._writing = True
        self.server.loop.add_writer(self._sock, self._on_writable)

    def _on_writable(self) -> None:
        self.last_active = self.server.loop.time()
        if self._send() and not self._closed:
            self._writing = False
            self.server.loop.remove_writer(self._sock)
            self._go_on()

    def _warm_up(self) -> None:
        self._busy = self._warming = True
        self.server.cold_sends += 1
        if self._writing:
            self._writing = False
            self.server.loop.remove_writer(self._sock)
        future = self.server.executor.submit(self._outbox.warm_up)
        future.add_done_callback(lambda done: self.server.loop.call_soon_threadsafe(self._on_warm, done))

    def _on_warm(self, done: Future[None]) -> None:
        self._warming = False
        if self._closed:
            self._outbox.clear()
            return
        if (error := done.exception()) is not None:
            logger.error("Closed the connection of %s:%d: a log file cannot be read: %s", *self.address[:2], error)
            self.close()
            return
        if self._send() and not self._closed:
            self._go_on()

    def _go_on(self) -> None:
        """Serve what waited, unless something else must be finished first."""
        if self._closed or self._giving_way or self._writing or self._warming or self._muted is not None:
            return
        if self._parked and not (self._parked[-1].overtakable or self._parked[-1].resolved):
            return
        if self._hanging_up or self.server.closing:
            if not (self._parked or self._outbox):
                self.close()
            return
        self._busy = False
        if self._inbox.filled:
            try:
                self._serve_inbox()
            except InvalidFrame as error:
                self._refuse(error)
            except Broken:
                self.close()
            except Exception:
                self._fail()
        if not (self._busy or self._closed):
            self._read_on()

    # Leaving

    def _on_end(self) -> None:
        """Everything that the client sent was read, and nothing will come: close when it is answered."""
        self._read_off()
        self.hang_up()
        if self._is_gone:
            self.close()
        else:
            self.expect_end()

    def expect_end(self) -> None:
        """The client has closed its end; what it sent before may still wait to be read."""
        if not (self._closed or self._leaving):
            self._leaving = True
            self.server.loop.call_later(ABANDON_SECONDS, self._abandon_answers)

    def _abandon_answers(self) -> None:
        """Nobody waits for answers any more: only have done what the client asked for, and close.

        Whoever still reads what was answered before has time for that; to somebody who is gone nothing can be sent.
        """
        if self._closed:
            return
        if self._outbox:
            self.server.loop.call_later(ABANDON_SECONDS, self._abandon_answers)
            return
        self._is_gone = True
        self._outbox = DiscardingOutbox()
        if self._hanging_up:
            self.close()
            return
        self._abandon_waiting()
        self._go_on()

    def _abandon_waiting(self) -> None:
        """Wait only for work that is under way."""
        parked, self._parked = self._parked, deque()
        for each in parked:
            if each.may_be_overtaken:
                each.abandon()
            else:
                self._parked.append(each)

    # Ending

    def _read_on(self) -> None:
        if not self._reading:
            self._reading = True
            self.server.loop.add_reader(self._sock, self._on_readable)

    def _read_off(self) -> None:
        if self._reading:
            self._reading = False
            self.server.loop.remove_reader(self._sock)

    def close(self) -> None:
        """End it: what is parked is abandoned, what waits is dropped."""
        if self._closed:
            return
        self._closed = self._busy = True
        self._stop_muting()
        self._read_off()
        if self._writing:
            self.server.loop.remove_writer(self._sock)
        for parked in self._parked:
            parked.abandon()
        self._parked.clear()
        if not self._warming:
            self._outbox.clear()
        if self._inbox:
            self._inbox.clear()
        self.server.departures.forget(self._sock.fileno())
        self._sock.close()
        self.server.forget(self)
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()
