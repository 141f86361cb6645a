"""The private socket over which a test drives a broker's faults, and the words it understands.

It is a Unix socket that only the user who started the broker can open. A line of JSON asks, a line answers; see
`protocol/faults`. Who asks to `hold` the broker ends it by hanging up: so no broker outlives the test run that started
it, however that ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.broker.faults import actions
from barnabas.broker.tasks import TaskSet
from barnabas.model.errors import BarnabasError, StartupError
from barnabas.protocol.faults import LINE_BYTES, InvalidFault, fault_from

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.faults.interceptor import Interceptor
    from barnabas.net.connection import Connection

logger = logging.getLogger(__name__)


class Control:
    """Serves the socket."""

    def __init__(self, path: Path, broker: BrokerContext, interceptor: Interceptor) -> None:
        self._path = path
        self._broker = broker
        self._interceptor = interceptor
        self._connections: Collection[Connection] = ()
        self._server: asyncio.Server | None = None
        self._serving = TaskSet()

    async def listen(self, connections: Collection[Connection]) -> None:
        """Open the socket; what a broker that was killed left there is replaced."""
        self._connections = connections
        self._server = await asyncio.start_unix_server(self._serve, sock=_bind(self._path), limit=LINE_BYTES)
        logger.info("Listening for faults on %s", self._path)

    async def close(self) -> None:
        """Close the socket."""
        if self._server is None:
            return
        self._server.close()
        await self._serving.cancel()
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.keep(task)
        holds = False
        try:
            while line := await reader.readline():
                words = json.loads(line)
                holds = holds or words.get("do") == "hold"
                writer.write(json.dumps(await self._answer(words)).encode() + b"\n")
                await writer.drain()
            if holds:
                logger.info("The test run that started this broker is gone; stopping.")
                os.kill(os.getpid(), signal.SIGTERM)
        except (OSError, ValueError) as error:
            logger.warning("Closed a connection to the socket for faults: %s", error)
        except asyncio.CancelledError:
            pass  # the broker stops
        finally:
            writer.close()

    async def _answer(self, words: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return {"answer": await self._do(words)}
        except BarnabasError as error:
            return {"error": str(error)}
        except Exception as error:
            logger.exception("Could not do %r", words)
            return {"error": f"the broker failed at {words.get('do')}: {error!r}"}

    async def _do(self, words: Mapping[str, Any]) -> Any:
        interceptor, broker = self._interceptor, self._broker
        match words:
            case {"do": "hold"}:
                return os.getpid()
            case {"do": "add", **fault}:
                return interceptor.add(fault_from(fault))
            case {"do": "fired", "number": int(number)}:
                return interceptor.find(number).fired
            case {"do": "wait", "number": int(number), "times": int(times), "seconds": int() | float() as seconds}:
                active = interceptor.find(number)
                await active.has_happened(times, seconds)
                return active.fired
            case {"do": "remove", "number": int(number)}:
                return interceptor.remove(number).fired
            case {"do": "clear"}:
                return interceptor.clear()
            case {"do": "rebalance", "group": str(group)}:
                return actions.rebalance(broker, group)
            case {"do": "move_leader", "topic": str(topic), "partition": int(partition)}:
                open_now = list(self._connections)
                epoch = await actions.move_leader(broker, topic, partition)
                interceptor.add_move(topic, partition, open_now)
                return epoch
            case {"do": "expire", "topic": str() | None as topic, "ahead_ms": int(ahead_ms)}:
                return await actions.expire(broker, topic, ahead_ms)
            case {"do": "settle"}:
                return await actions.settle(self._connections)
            case {"do": "log_starts", "topic": str() | None as topic}:
                return actions.log_starts(broker, topic)
        raise InvalidFault(f"unknown order {dict(words)}")


def _bind(path: Path) -> socket.socket:
    """A listening socket that is the user's alone from the moment it exists."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with suppress(FileNotFoundError):
            if path.is_socket():
                path.unlink()
        made.bind(str(path))
    except OSError as error:
        made.close()
        raise StartupError(f"the socket for faults could not be opened at {path}: {error}") from error
    finally:
        os.umask(before)
    made.listen()
    made.setblocking(False)
    return made
