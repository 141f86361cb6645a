"""A man in the middle: between clients and a broker, able to swallow what the broker answers.

A broker that dies between storing a batch and answering leaves a client that must send it again. A real kill hardly
ever falls into that moment; with answers swallowed before the kill it always does.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Proxy:
    """Forwards connections to `target`, a port of this host that may change while the proxy runs."""

    def __init__(self) -> None:
        self.target = 0
        self.swallowed = 0
        """Bytes of answers that clients did not get, since `swallow`."""
        self._swallowing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def swallow(self) -> None:
        """Let requests through, and no answers."""
        self.swallowed = 0
        self._swallowing = True

    def let_through(self) -> None:
        """Forward answers again, on connections that are new: those of before are out of step and must be dead."""
        self._swallowing = False

    def cut(self) -> None:
        """End the connections that there are, with both ends."""
        for connection in list(self._open):
            _shut(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            self._open |= {client, broker}
            for source, sink, answers in ((client, broker, False), (broker, client, True)):
                pump = threading.Thread(target=self._pump, args=(source, sink, answers), daemon=True)
                self._threads.append(pump)
                pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            self._forward(source, sink, answers)
        _shut(source)
        _shut(sink)
        source.close()
        self._open.discard(source)

    def _forward(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        while data := source.recv(1 << 16):
            if answers and self._swallowing:
                self.swallowed += len(data)
            else:
                sink.sendall(data)


def _shut(connection: socket.socket) -> None:
    """End a connection for both of its pumps."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
