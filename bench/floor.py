"""The least that a broker could do, as a program: receive, append and answer; send from a file; or pass on.

No frame is looked into beyond its size, nothing is checked or remembered: these are the system calls of such requests
and the loop that makes them. What a broker reaches of its rate says what all the rest costs.

`python floor.py LISTENER append FOLDER PIECES` appends each request in so many pieces to as many files, `python
floor.py LISTENER send FILE SIZE` answers each request with the beginning of a file, and `python floor.py LISTENER
relay` lets Fetch requests wait until another request comes, and answers one of them with as many bytes. The listener is
the descriptor of a socket that is open already.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_RECEIVED: Final = 1 << 20
_SOCKET_BUFFER: Final = 102_400
"""Kafka's defaults of socket.send.buffer.bytes and socket.receive.buffer.bytes."""
_ANSWER: Final = 60
_PER_PIECE: Final = 30
"""Bytes of an answer to a Produce, about."""
_FETCH: Final = b"\0\1"
"""The key of a Fetch request, which begins it."""


class Floor:
    """The program, on some cores; a context manager that ends it."""

    def __init__(self, cores: Iterable[int], *words: str) -> None:
        self._words = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, __file__], words
        self.port = 0

    def __enter__(self) -> Self:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                listener.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)
            program, words = self._words
            descriptor = listener.fileno()
            self._process = subprocess.Popen([*program, str(descriptor), *words], pass_fds=[descriptor])
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


class Line(ABC):
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = bytearray(_RECEIVED)
        self._filled = 0

    def receive(self) -> bool:
        """Take what has come and do what it asks; whether the connection lives."""
        view = memoryview(self._buffer)
        try:
            size = self.socket.recv_into(view[self._filled :])
        except ConnectionResetError:
            return False
        self._filled += size
        at = count = 0
        while self._filled - at >= 4:
            end = at + 4 + int.from_bytes(view[at : at + 4], "big")
            if end > self._filled:
                break
            self.take(view[at:end])
            at = end
            count += 1
        self._buffer[: self._filled - at] = view[at : self._filled].tobytes()
        self._filled -= at
        if count:
            self.answer(count)
        return size > 0

    @abstractmethod
    def take(self, frame: memoryview) -> None:
        """Do what has to be done with a request."""

    @abstractmethod
    def answer(self, count: int) -> None:
        """Answer so many requests."""

    def go_on(self) -> bool:
        """Send more of what did not fit into the socket; whether there is still something left."""
        return False


class Appending(Line):
    """Requests whose pieces are appended to files."""

    def __init__(self, connection: socket.socket, folder: str, pieces: str) -> None:
        super().__init__(connection)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._files = [os.open(Path(folder, f"{number}.log"), flags) for number in range(int(pieces))]
        size = _ANSWER + _PER_PIECE * len(self._files)
        self._answer = size.to_bytes(4, "big") + bytes(size)

    def take(self, frame: memoryview) -> None:
        """Append a piece to each file."""
        piece = len(frame) // len(self._files)
        for number, file in enumerate(self._files):
            os.write(file, frame[number * piece : (number + 1) * piece])

    def answer(self, count: int) -> None:
        """Without an error, if zeros are read as such."""
        self.socket.send(self._answer * count)


class Sending(Line):
    """Requests that are answered with the beginning of a file."""

    def __init__(self, connection: socket.socket, file: str, size: str) -> None:
        super().__init__(connection)
        self._file = os.open(file, os.O_RDONLY)
        self._size = int(size)
        self._head = (self._size + _ANSWER).to_bytes(4, "big") + bytes(_ANSWER)
        self._waiting = 0
        self._sent = -1
        """Bytes of the file that were sent; -1 before the head was."""

    def take(self, frame: memoryview) -> None:
        """Nothing but the answer is due."""

    def answer(self, count: int) -> None:
        """Begin, or line up."""
        self._waiting += count

    def go_on(self) -> bool:
        """Send as much as goes into the socket."""
        try:
            while self._waiting:
                if self._sent < 0:
                    self.socket.send(self._head, socket.MSG_MORE)
                    self._sent = 0
                while self._sent < self._size:
                    self._sent += os.sendfile(self.socket.fileno(), self._file, self._sent, self._size - self._sent)
                self._sent = -1
                self._waiting -= 1
        except BlockingIOError:
            return True
        return False


class Relaying(Line):
    """Fetch requests, and others, each of which answers one that waits."""

    _waiting: ClassVar[deque[Relaying]] = deque()
    _sizes: ClassVar[deque[int]] = deque()
    """Of requests that came before somebody waited."""
    _answer: ClassVar[bytes] = (_ANSWER + _PER_PIECE).to_bytes(4, "big") + bytes(_ANSWER + _PER_PIECE)

    def take(self, frame: memoryview) -> None:
        """Wait, or wake who waits and answer."""
        if bytes(frame[4:6]) == _FETCH:
            self._waiting.append(self)
        else:
            self._sizes.append(len(frame) - 4)
        while self._waiting and self._sizes:
            size = self._sizes.popleft()
            self._waiting.popleft().socket.send(size.to_bytes(4, "big") + bytes(size))
        if bytes(frame[4:6]) != _FETCH:
            self.socket.send(self._answer)

    def answer(self, count: int) -> None:
        """Each was answered when it was taken."""


def main(descriptor: str, kind: str, *words: str) -> None:
    """Serve until killed."""
    make = {"append": Appending, "send": Sending, "relay": Relaying}[kind]
    listener = socket.socket(fileno=int(descriptor))
    listener.setblocking(False)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    lines: dict[int, Line] = {}
    while True:
        for number, event in epoll.poll():
            if number == listener.fileno():
                connection, _ = listener.accept()
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                lines[connection.fileno()] = make(connection, *words)
                epoll.register(connection, select.EPOLLIN)
                continue
            line = lines[number]
            if event & ~select.EPOLLOUT and not line.receive():
                line.socket.close()
                del lines[number]
                continue
            left = line.go_on()
            if left or event & select.EPOLLOUT:
                epoll.modify(number, select.EPOLLIN | (select.EPOLLOUT if left else 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
