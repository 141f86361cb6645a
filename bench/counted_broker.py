"""A broker that counts the bytecodes its event loop runs: `python counted_broker.py SOCKET WORDS-OF-BARNABAS-START`.

Whoever connects to the socket sends `+` to begin and `-` to end, and is told the count. The event loop is traced opcode
by opcode meanwhile, which makes it slow and changes nothing else: coroutines that were waiting are traced from when
they go on. Threads are not counted. Nothing here but the command line is of Barnabas, so that the broker may be that of
another source tree.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType


class Counter:
    """Counts bytecodes of the thread that it is switched on in."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self) -> None:
        """Count from now on."""
        self.count = 0
        sys.settrace(self._called)

    def end(self) -> int:
        """Stop; how many there were."""
        sys.settrace(None)
        return self.count

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._traced

    def _traced(self, _: FrameType, event: str, __: Any) -> Any:
        if event == "opcode":
            self.count += 1
        return self._traced


def listen(path: str) -> None:
    """Be at the service of one who counts, on the event loop that runs."""
    loop = asyncio.get_running_loop()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    server.setblocking(False)
    counter = Counter()

    def accept() -> None:
        connection, _ = server.accept()
        connection.setblocking(False)
        loop.add_reader(connection, obey, connection)

    def obey(connection: socket.socket) -> None:
        match connection.recv(1):
            case b"+":
                connection.send(b"0\n")
                counter.begin()
            case b"-":
                connection.send(b"%d\n" % counter.end())
            case _:
                loop.remove_reader(connection)
                connection.close()

    loop.add_reader(server, accept)


def main() -> None:
    """Run `barnabas start`, and listen as soon as the broker is ready."""
    from barnabas.broker import app
    from barnabas.cli.main import main as barnabas

    path, *words = sys.argv[1:]
    run = app.run

    def counted(config: Any, on_ready: Any, options: Any = None) -> int:
        def ready(info: Any) -> None:
            listen(path)
            on_ready(info)

        return run(config, ready)

    app.run = counted
    sys.argv = ["barnabas", *words]
    barnabas()


if __name__ == "__main__":
    main()
