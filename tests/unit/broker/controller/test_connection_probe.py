"""Whether a process listens at an address: also one that resets every connection at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from barnabas.broker.controller.connection_probe import ConnectionProbe
from barnabas.machines.controller.image import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THERE = Endpoint("127.0.0.1", 1)
RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)


class Reset:
    """A connection whose addresses are not known any more."""

    def __init__(self, ends: Exception | None) -> None:
        self.ends = ends
        self.is_closed = False

    def get_extra_info(self, name: str) -> None:
        if self.ends is not None:
            raise self.ends

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("ends", [None, AttributeError("no socket"), OSError("not connected")])
async def test_a_connection_whose_ends_are_not_known_was_accepted(ends: Exception | None) -> None:
    made = [Reset(ends), Reset(ends)]
    unused = iter(made)

    async def connect(host: str, port: int) -> Any:
        return None, next(unused)

    probe = ConnectionProbe(connect)
    assert await probe.is_accepted(THERE, [("127.0.0.1", 1)])
    assert not await probe.is_refused(THERE)
    assert all(one.is_closed for one in made)


@pytest.fixture
def resetting() -> Iterator[Endpoint]:
    """Something that listens, and resets every connection as soon as it has accepted it."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_WHEN_CLOSED)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Endpoint(*listening.getsockname())
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_is_reset_at_once_was_accepted(resetting: Endpoint, loop: Callable[[], Any]) -> None:
    """When the reset is noticed is up to chance."""

    async def main() -> None:
        for _ in range(50):
            assert await ConnectionProbe().is_accepted(resetting)
            assert not await ConnectionProbe().is_refused(resetting)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_an_address_where_nothing_listens_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as freed:
        endpoint = Endpoint(*freed.getsockname())
    assert await ConnectionProbe().is_refused(endpoint)
    assert not await ConnectionProbe().is_accepted(endpoint)
