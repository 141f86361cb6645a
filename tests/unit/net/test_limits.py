"""Clients that go past a limit of the server: what they take is bounded, no step takes long, others are served.

Limits that have tests elsewhere: the size of a frame and the buffers of all frames (`test_server`), what a frame or a
batch unpacks to, threads, fetch sessions and sizes of groups (`tests/compat/bad_input`), open files
(`tests/unit/storage/test_files`), long answers (`tests/unit/broker/serving/test_long_answers`).
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from barnabas.broker.log_format import MOST, Limit
from barnabas.net.admission import ConnectionLimits
from barnabas.net.connection import MOST_PARKED
from barnabas.net.reply import Parked
from barnabas.net.server import Limits, Server
from tests.fuzz.rules import TimedLoop
from tests.support.servers import Rig, answer, connect, frame, hang_up, read_answer
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import ThreadPoolExecutor

pytestmark = pytest.mark.slow

LONG: Final = 0.1
"""Seconds of processor time that a step of the event loop must not take."""


class TimedReads(TimedLoop):
    """Times what is done when a socket can be read, too."""

    def add_reader(  # type: ignore[override]  # arguments without their types
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        """See AbstractEventLoop."""
        super().add_reader(fd, partial(self._timed, callback, *args))


def run_timed(rig: Rig, executor: ThreadPoolExecutor, story: Callable[[Rig], Awaitable[None]]) -> None:
    """Tell a story of a server, none of whose steps may take long; the story's own steps do not count."""

    async def main() -> None:
        rig.server = Server(rig.serve, rig.limits, executor)
        rig.port = rig.server.listen("PLAINTEXT", "127.0.0.1", 0)
        rig.server.accept()
        try:
            await asyncio.wait_for(story(rig), 90)
        finally:
            await rig.server.close(grace=0)

    loop = TimedReads()
    try:
        loop.driver = loop.create_task(main())
        loop.run_until_complete(loop.driver)
    finally:
        loop.close()
    assert loop.longest < LONG, loop.longest_name


async def is_served(rig: Rig) -> None:
    """Another client is answered, and at once."""
    reader, writer = await connect(rig)
    for number in range(5):
        writer.write(frame(b"other %d" % number))
        assert await asyncio.wait_for(read_answer(reader), 10) == b"other %d" % number
    await hang_up(writer)


def test_answers_that_wait_are_bounded_for_each_connection(executor: ThreadPoolExecutor) -> None:
    waiting: list[Parked] = []

    def park(body: bytes) -> bytes | Parked:
        if body.startswith(b"other"):
            return answer(body)
        parked = Parked()
        parked.overtakable = True
        waiting.append(parked)
        return parked

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(b"".join(frame(b"%d" % number) for number in range(3 * MOST_PARKED)))
        await until(lambda: len(waiting) == MOST_PARKED)
        await is_served(rig)
        assert len(waiting) == MOST_PARKED
        for number in range(3 * MOST_PARKED):
            await until(lambda number=number: len(waiting) > number)  # type: ignore[misc]  # of a default argument
            waiting[number].resolve(answer(b"%d" % number))
            assert await read_answer(reader) == b"%d" % number
        await hang_up(writer)

    run_timed(Rig(reply=park), executor, story)


def test_connections_of_one_address_are_bounded_and_those_that_are_there_go_on(executor: ThreadPoolExecutor) -> None:
    most = 20

    async def story(rig: Rig) -> None:
        kept = [await connect(rig) for _ in range(most)]
        await until(lambda: len(rig.server.connections) == most)
        refused = [await connect(rig) for _ in range(200)]
        for reader, writer in refused:
            assert await reader.read() == b""
            writer.close()
        assert len(rig.server.connections) == most
        for number, (reader, writer) in enumerate(kept):
            writer.write(frame(b"%d" % number))
            assert await read_answer(reader) == b"%d" % number
            await hang_up(writer)
        await until(lambda: not rig.server.connections)
        await is_served(rig)

    run_timed(Rig(limits=Limits(connections=ConnectionLimits(max_connections_per_ip=most))), executor, story)


def test_connections_beyond_all_that_are_allowed_wait_until_there_is_room(executor: ThreadPoolExecutor) -> None:
    most = 20

    async def story(rig: Rig) -> None:
        kept = [await connect(rig) for _ in range(most)]
        await until(lambda: len(rig.server.connections) == most)
        waiting = [await connect(rig) for _ in range(most)]
        for number, (_, writer) in enumerate(waiting):
            writer.write(frame(b"%d" % number))
        for number, (reader, writer) in enumerate(kept):
            writer.write(frame(b"%d" % number))
            assert await read_answer(reader) == b"%d" % number
            assert len(rig.server.connections) == most
            await hang_up(writer)
        for number, (reader, writer) in enumerate(waiting):
            assert await read_answer(reader) == b"%d" % number
            await hang_up(writer)

    run_timed(Rig(limits=Limits(connections=ConnectionLimits(max_connections=most))), executor, story)


def test_frames_that_do_not_come_to_their_end_are_bounded_together(executor: ThreadPoolExecutor) -> None:
    limit = 2_000_000

    async def story(rig: Rig) -> None:
        streams = [await connect(rig) for _ in range(30)]
        highest = 0
        for _ in range(8):
            for _, writer in streams:
                if not writer.is_closing():
                    writer.write(struct.pack(">i", 50_000_000) + b"x" * 60_000)
            await asyncio.sleep(0)
            highest = max(highest, rig.server.budget.used)
        await until(lambda: len(rig.server.connections) < len(streams))
        assert max(highest, rig.server.budget.used) <= limit
        await is_served(rig)
        for _, writer in streams:
            writer.transport.abort()

    run_timed(Rig(limits=Limits(queued_max_request_bytes=limit)), executor, story)


def test_lines_that_clients_cause_are_bounded_and_cost_little() -> None:
    lines = 100_000
    limit = Limit(lambda: 0.0)
    started = time.thread_time()
    written = sum(
        limit.filter(logging.LogRecord("barnabas.net.connection", logging.WARNING, "", 0, "closed %d", (each,), None))
        for each in range(lines)
    )
    assert written == MOST
    assert (time.thread_time() - started) / lines < 0.0001
