"""A broker that counts the bytecodes its event loop runs: `python counted_broker.py SOCKET WORDS-OF-BARNABAS-START`.

Whoever connects to the socket sends `+` to begin and `-` to end, and is told the count; `?` then tells it by function,
as JSON. The event loop is traced opcode by opcode meanwhile, which makes it slow and changes nothing else: coroutines
that were waiting are traced from when they go on. Threads are not counted. Nothing here but the command line is of
Barnabas, so that the broker may be that of another source tree.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType, FrameType


class BytecodeCounter:
    """Counts bytecodes of the thread that it is switched on in."""

    def __init__(self) -> None:
        self._counts: Counter[CodeType] = Counter()

    def begin(self) -> None:
        """Count from now on."""
        self._counts.clear()
        sys.settrace(self._called)

    def end(self) -> int:
        """Stop; how many there were."""
        sys.settrace(None)
        return self._counts.total()

    def by_function(self) -> dict[str, int]:
        """How many there were in each function, by file and name."""
        found: Counter[str] = Counter()
        for code, count in self._counts.items():
            found[f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"] += count
        return dict(found)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._traced

    def _traced(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            self._counts[frame.f_code] += 1
        return self._traced


def listen(path: str) -> None:
    """Be at the service of one who counts, on the event loop that runs."""
    loop = asyncio.get_running_loop()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    server.setblocking(False)
    counter = BytecodeCounter()

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
            case b"?":
                connection.setblocking(True)
                connection.sendall(json.dumps(counter.by_function()).encode() + b"\n")
                connection.setblocking(False)
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
