"""Connections between processes, in memory.

Bytes of one connection arrive in order, after a delay that differs from connection to connection and from write to
write. What is sent over a link that is cut waits, as TCP would repeat it, until the link is mended or somebody gives
the connection up. A process that dies resets its connections; a machine without power says nothing, and resets what
arrives when it is up again.

The broker's end is a socket (`SimSocket`, for `net/connection`), the other end a transport (`SimTransport`, for
`net/channel`): both are what the real code uses.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections import deque
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.whole.loop import PROCESS, Process

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from tests.simulation.whole.loop import VirtualLoop

    Accept = Callable[["SimSocket", tuple[str, int]], object]

WINDOW: Final = 1 << 17
"""Bytes that may be under way in one direction."""
LOOK_AGAIN: Final = 0.25
"""Seconds after which somebody who cannot connect tries again."""
MSG_PEEK: Final = 2
USUAL_DELAY: Final = 0.02
LATE_SECONDS: Final = 0.05
"""Seconds that bytes take at most, as long as the network is well."""


class Listener:
    """An address where a process takes connections, or lets them wait until it does."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.context = copy_context()
        self.accept: Accept | None = None
        self.waiting: list[tuple[SimSocket, tuple[str, int]]] = []


class Network:
    """All machines and what is between them."""

    def __init__(self, loop: VirtualLoop, chance: random.Random, trace: Callable[..., None]) -> None:
        self.loop = loop
        self.chance = chance
        self.trace = trace
        self.folder = b"?"
        """The folder of the world: part of some error messages, and not the same in every run."""
        self.slowest = USUAL_DELAY
        self.late = 0.0
        """The share of messages that take longer, up to LATE_SECONDS."""
        self.pieces = 0.0
        """The share of messages that arrive in two pieces."""
        self._cut: set[tuple[str, str]] = set()
        self._dark: set[str] = set()
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._ends: list[End] = []
        self._ports = 40_000
        loop.network = self

    # Links

    def delay(self) -> float:
        """How long bytes take: mostly little, sometimes much."""
        usual = self.slowest * self.chance.random() ** 4 + 0.0002
        is_late = self.late and self.chance.random() < self.late
        return usual + (self.chance.random() * LATE_SECONDS if is_late else 0.0)

    def is_open(self, source: str, target: str) -> bool:
        """Whether bytes get from one machine to the other."""
        return (source, target) not in self._cut and source not in self._dark and target not in self._dark

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in this direction."""
        self._cut.add((source, target))

    def mend(self, source: str, target: str) -> None:
        """Let what waited through."""
        self._cut.discard((source, target))
        self._go_on()

    def power_off(self, machine: str) -> None:
        """The machine says nothing any more."""
        self._dark.add(machine)

    def power_on(self, machine: str) -> None:
        """It is up again, and knows nothing of earlier connections."""
        self._dark.discard(machine)
        self._go_on()

    def _go_on(self) -> None:
        for end in self._ends:
            end.pump()

    def reset_connections(self, one: str, other: str) -> None:
        """Break the connections between two machines."""
        for end in list(self._ends):
            if (end.process.machine, end.peer.process.machine) == (one, other):
                end.peer.reset()
                end.reset()

    # Processes

    def listen(self, host: str, port: int) -> Listener:
        """Open an address for the running process."""
        process = PROCESS.get()
        assert process is not None
        listener = self._listeners[host, port] = Listener(process)
        return listener

    def stop_listening(self, host: str, port: int) -> None:
        """Refuse connections from now on."""
        listener = self._listeners.pop((host, port), None)
        for sock, _ in listener.waiting if listener is not None else ():
            sock.close()

    def process_died(self, process: Process) -> None:
        """Its addresses are closed, its connections reset."""
        for address, listener in list(self._listeners.items()):
            if listener.process is process:
                del self._listeners[address]
        for end in list(self._ends):
            if end.process is process:
                end.drop()

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[SimTransport, Any]:
        """What loop.create_connection does; whoever asks sets the time limit."""
        process = PROCESS.get()
        assert process is not None
        await asyncio.sleep(self.delay())
        machine = machine_of(host)
        while not (self.is_open(process.machine, machine) and self.is_open(machine, process.machine)):
            await asyncio.sleep(LOOK_AGAIN)
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(111, f"Connect call failed ({host!r}, {port})")
        self._ports += 1
        here, there = (host_of(process.machine), self._ports), (host, port)
        transport = SimTransport(self, process, here, there)
        sock = SimSocket(self, listener.process, listener.context)
        transport.peer, sock.peer = sock, transport
        self._ends += (transport, sock)
        if listener.accept is None:
            listener.waiting.append((sock, here))
        else:
            self.loop.call_soon(listener.accept, sock, here, context=listener.context)
        await asyncio.sleep(self.delay())
        protocol = factory()
        transport.begin(protocol)
        return transport, protocol

    def forget(self, end: End) -> None:
        """A connection has ended on both sides."""
        if end.closed and end.peer.closed:
            self._ends = [each for each in self._ends if each is not end and each is not end.peer]


class End:
    """One end of a connection: bytes on their way to it, and what it is told."""

    peer: End

    def __init__(self, network: Network, process: Process, context: Context) -> None:
        self.network = network
        self.process = process
        self.context = context
        self.closed = False
        self._under_way: deque[tuple[float, bytes | None]] = deque()
        """When they arrive, and the bytes; None is the end of the stream."""
        self.bytes_under_way = 0
        self._last = 0.0
        self._pumping = False

    def deliver(self, data: bytes | None) -> None:
        """The other end has sent something."""
        network = self.network
        if data and network.pieces and network.chance.random() < network.pieces:
            cut = network.chance.randrange(len(data))
            self._send_off(data[:cut])
            data = data[cut:]
        self._send_off(data)

    def _send_off(self, data: bytes | None) -> None:
        network = self.network
        if data == b"":
            return
        self._last = max(self._last, network.loop.time() + network.delay())
        self._under_way.append((self._last, data))
        self.bytes_under_way += len(data) if data is not None else 0
        if not self._pumping:
            self._pump_at(self._last)

    def _pump_at(self, when: float) -> None:
        self._pumping = True
        self.network.loop.in_world(max(0.0, when - self.network.loop.time()), self._pump)

    def _pump(self) -> None:
        self._pumping = False
        self.pump()

    def pump(self) -> None:
        """Let arrive what is due, if the link lets it through."""
        if self._pumping or not self._under_way:
            return
        network = self.network
        if not network.is_open(self.peer.process.machine, self.process.machine):
            return
        now = network.loop.time()
        while self._under_way and self._under_way[0][0] <= now:
            _, data = self._under_way.popleft()
            self._arrive(data)
        if self._under_way:
            self._pump_at(self._under_way[0][0])

    def _arrive(self, data: bytes | None) -> None:
        if data is not None:
            self.bytes_under_way -= len(data)
            self.peer.room_came()
        if self.closed or not self.process.alive:
            if data is not None:
                self.peer.reset()
            return
        crc = 0 if data is None else zlib.crc32(data.replace(self.network.folder, b""))
        self.network.trace(self.peer.process.machine, self.process.machine, -1 if data is None else len(data), crc)
        self.received(data)

    def send_bytes(self, data: bytes) -> None:
        """Send to the other end."""
        if not self.closed and self.process.alive:
            self.peer.deliver(data)

    def drop(self) -> None:
        """The process that had this end is gone; the other end learns of it unless the machine has no power."""
        if not self.closed:
            self.closed = True
            self.peer.deliver(None)
            self.network.forget(self)

    def soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call something of the process that has this end."""
        self.network.loop.call_soon(callback, *args, context=self.context)

    def received(self, data: bytes | None) -> None:
        """Bytes or the end of the stream came."""
        raise NotImplementedError

    def room_came(self) -> None:
        """More can be sent."""

    def reset(self) -> None:
        """The connection is broken."""
        raise NotImplementedError


class SimTransport(End):
    """The end of who connected: an asyncio transport with its protocol."""

    def __init__(self, network: Network, process: Process, here: tuple[str, int], there: tuple[str, int]) -> None:
        super().__init__(network, process, copy_context())
        self._info = {"sockname": here, "peername": there}
        self._protocol: Any = None
        self._early: list[bytes | None] = []

    def begin(self, protocol: Any) -> None:
        """The connection is there."""
        self._protocol = protocol
        protocol.connection_made(self)
        for data in self._early:
            self.soon(self._tell, data)
        if self.closed:
            self.soon(protocol.connection_lost, ConnectionResetError(104, "Connection reset by peer"))

    def received(self, data: bytes | None) -> None:
        if self._protocol is None:
            self._early.append(data)
        else:
            self.soon(self._tell, data)

    def _tell(self, data: bytes | None) -> None:
        protocol = self._protocol
        if self.closed:
            return
        if data is None:
            protocol.eof_received()
            self._lose(None)
        elif isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and not self.closed:
                buffer = memoryview(protocol.get_buffer(-1))
                count = min(len(buffer), len(view))
                buffer[:count] = view[:count]
                protocol.buffer_updated(count)
                view = view[count:]
        else:
            protocol.data_received(data)

    def reset(self) -> None:
        if not self.closed and self._protocol is not None:
            self._lose(ConnectionResetError(104, "Connection reset by peer"))
        self.closed = True

    def _lose(self, error: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            self.peer.deliver(None)
            self.soon(self._protocol.connection_lost, error)
            self.network.forget(self)

    # What protocols call

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        self.send_bytes(bytes(data))

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send these, as one."""
        self.send_bytes(b"".join(pieces))

    def close(self) -> None:
        """Close."""
        self._lose(None)

    def abort(self) -> None:
        """Close at once."""
        self._lose(None)

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses."""
        return self._info.get(name, default)


class SimSocket(End):
    """The broker's end: what `net/connection` and `net/outbox` use of a socket."""

    def __init__(self, network: Network, process: Process, context: Context) -> None:
        super().__init__(network, process, context)
        self._arrived = bytearray()
        self._ended = False
        self._broken = False
        self._reader: tuple[Callable[..., object], tuple[Any, ...]] | None = None
        self._writer: tuple[Callable[..., object], tuple[Any, ...]] | None = None
        self._reading = False
        self._file: int | None = None
        """Where sendfile writes; see `fileno`."""
        self.on_departure: Callable[[bool], object] | None = None

    # Events

    def received(self, data: bytes | None) -> None:
        if data is None:
            self._ended = True
            if self.on_departure is not None:
                self.soon(self.on_departure, False)
        else:
            self._arrived += data
        self._look()

    def reset(self) -> None:
        if not self.closed:
            self._broken = True
            if self.on_departure is not None:
                self.soon(self.on_departure, True)
            self._look()
            self.room_came()

    def on_readable(self, callback: Callable[..., object] | None, args: tuple[Any, ...]) -> None:
        """Call back while there is something to read."""
        self._reader = None if callback is None else (callback, args)
        self._look()

    def on_writable(self, callback: Callable[..., object] | None, args: tuple[Any, ...]) -> None:
        """Call back while there is room."""
        self._writer = None if callback is None else (callback, args)
        self.room_came()

    def watch_departure(self, callback: Callable[[bool], object]) -> None:
        """Call back when the client has closed its end (False), or the connection is broken (True)."""
        self.on_departure = callback
        if self._ended or self._broken:
            self.soon(callback, self._broken)

    def _look(self) -> None:
        if self._reader is not None and not self._reading and self._is_readable:
            self._reading = True
            self.soon(self._read)

    @property
    def _is_readable(self) -> bool:
        return bool(self._arrived) or self._ended or self._broken

    def _read(self) -> None:
        self._reading = False
        if self._reader is not None and not self.closed and self._is_readable:
            callback, args = self._reader
            callback(*args)
            self._look()

    def room_came(self) -> None:
        if self._writer is not None and (self.peer.bytes_under_way < WINDOW or self._broken):
            self.soon(self._write)

    def _write(self) -> None:
        if self._writer is not None and not self.closed:
            callback, args = self._writer
            callback(*args)
            self.room_came()

    # What the broker calls

    def recv_into(self, buffer: memoryview) -> int:
        """Receive what fits."""
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive, or only look (MSG_PEEK)."""
        if self._broken:
            raise ConnectionResetError(104, "Connection reset by peer")
        if not self._arrived:
            if self._ended:
                return b""
            raise BlockingIOError
        data = bytes(self._arrived[:size])
        if not flags & MSG_PEEK:
            del self._arrived[:size]
        return data

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """Send what there is room for."""
        self._collect()
        if self._broken:
            raise BrokenPipeError(32, "Broken pipe")
        room = WINDOW - self.peer.bytes_under_way
        if room <= 0:
            raise BlockingIOError
        piece = bytes(data[:room])
        self.send_bytes(piece)
        return len(piece)

    def fileno(self) -> int:
        """A file that os.sendfile may write to; what it wrote is sent when this callback is over, or before `send`."""
        if self._file is None:
            self._file = os.memfd_create("socket")
        if not self.closed:
            self.soon(self._collect)
        return self._file

    def _collect(self) -> None:
        if self._file is not None and (size := os.fstat(self._file).st_size):
            data = os.pread(self._file, size, 0)
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
            self.send_bytes(data)

    def close(self) -> None:
        """Close: what was sent arrives."""
        self._collect()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self.on_departure = None
        self.drop()

    def drop(self) -> None:
        self.closed_file()
        super().drop()

    def closed_file(self) -> None:
        """Give back the descriptor of a process that is gone."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *_: object) -> None:
        """There are no options."""

    def getsockopt(self, *_: object) -> bytes:
        """TCP_INFO: whether both ends are open."""
        return b"\x08" if self._ended or self._broken else b"\x01"


def host_of(machine: str) -> str:
    """The address of a machine: b1 is 10.1.0.1, c3 is 10.2.0.3."""
    return f"10.{1 if machine[0] == 'b' else 2}.0.{machine[1:]}"


def machine_of(host: str) -> str:
    """The machine of an address."""
    _, kind, _, number = host.split(".")
    return f"{'b' if kind == '1' else 'c'}{number}"
