"""Muted connections: clients that have used more than their quota are answered, and then not read for a while."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from barnabas.net import inbox
from barnabas.net.inbox import SHARED_SIZE
from barnabas.net.reply import Answer, Parked
from barnabas.net.server import MOST_REFUSED, Limits
from tests.support.servers import Rig, answer, connect, frame, hang_up, read_answer, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from barnabas.net.connection import Connection

pytestmark = pytest.mark.usefixtures("transport")
"""Each test runs over plaintext and over TLS."""

LONG = 600.0


@dataclass
class MutingRig(Rig):
    """Mutes the connection of every request that begins with "mute", for so many seconds."""

    seconds: float = LONG

    def serve(self, connection: Connection, data: memoryview) -> Answer | Parked:
        found = super().serve(connection, data)
        if self.seen[-1].startswith(b"mute"):
            connection.mute(self.seconds)
        return found

    @property
    def only(self) -> Connection:
        (connection,) = self.server.connections
        found: Connection = connection
        return found


async def test_a_muted_client_is_answered_at_once_and_its_next_request_waits(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        assert isinstance(rig, MutingRig)
        loop = asyncio.get_running_loop()
        reader, writer = await connect(rig)
        writer.write(frame(b"mute"))
        async with asyncio.timeout(60):  # and not after all of a long time
            assert await read_answer(reader) == b"mute"
        rig.only.unmute()
        rig.seconds = 0.3
        began = loop.time()
        writer.write(frame(b"mute") + frame(b"next"))
        assert await read_answer(reader) == b"mute"
        assert await read_answer(reader) == b"next"
        assert loop.time() - began >= 0.3
        writer.write(frame(b"later"))
        assert await read_answer(reader) == b"later"
        assert not rig.server.muted
        await hang_up(writer)

    await run(MutingRig(), executor, story)


async def test_a_client_that_pipelines_on_is_not_read_and_costs_one_buffer(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"mute") + frame(b"x" * 1000) * 4_000)
        assert await read_answer(reader) == b"mute"
        await asyncio.sleep(0.1)
        assert rig.seen == [b"mute"]
        assert rig.server.budget.used <= 2 * SHARED_SIZE
        rig.server.unmute(lambda whose: True)
        for _ in range(4_000):
            assert len(await read_answer(reader)) == 1000
        assert rig.server.budget.used == 0
        await hang_up(writer)

    await run(MutingRig(), executor, story)


async def test_nothing_of_a_request_without_an_answer_is_lost(executor: ThreadPoolExecutor) -> None:
    """A producer with acks=0 sends, closes its end, and is served when its time is over."""

    async def story(rig: Rig) -> None:
        _, writer = await connect(rig)
        bodies = [b"mute", *(b"record %d" % n for n in range(100))]
        writer.write(b"".join(map(frame, bodies)))
        await hang_up(writer)
        await until(lambda: not rig.server.connections)
        assert rig.seen == bodies
        assert rig.server.budget.used == 0

    await run(MutingRig(lambda body: None, seconds=0.2), executor, story)


async def test_that_a_muted_client_has_left_is_noticed(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"mute"))
        assert await read_answer(reader) == b"mute"
        await hang_up(writer)
        await until(lambda: not rig.server.connections)
        assert not rig.server.muted

    await run(MutingRig(), executor, story)


async def test_that_a_muted_client_was_reset_is_noticed_though_it_has_sent_more(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"mute") + frame(b"x" * 100_000) * 20)
        assert await read_answer(reader) == b"mute"
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()
        await until(lambda: not rig.server.connections)
        assert rig.server.budget.used == 0
        assert not rig.server.muted

    await run(MutingRig(), executor, story)


async def test_a_server_that_closes_does_not_wait_for_muted_clients(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"mute") + frame(b"next"))
        assert await read_answer(reader) == b"mute"
        began = asyncio.get_running_loop().time()
        await rig.server.close(grace=30)
        assert asyncio.get_running_loop().time() - began < 5
        assert rig.seen == [b"mute"]
        assert await reader.read() == b""
        assert rig.server.budget.used == 0
        with contextlib.suppress(ConnectionError):
            await hang_up(writer)

    await run(MutingRig(), executor, story)


async def test_an_answer_that_comes_while_a_client_is_muted_is_sent(executor: ThreadPoolExecutor) -> None:
    parked = Parked()

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"mute") + frame(b"next"))
        await until(lambda: rig.seen == [b"mute"])
        parked.resolve(answer(b"done"))
        assert await read_answer(reader) == b"done"
        assert rig.seen == [b"mute"]
        rig.server.unmute(lambda whose: True)
        assert await read_answer(reader) == b"next"
        await hang_up(writer)

    await run(MutingRig(lambda body: parked if body == b"mute" else answer(body)), executor, story)


async def test_the_longer_time_counts(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        assert isinstance(rig, MutingRig)
        reader, writer = await connect(rig)
        writer.write(frame(b"mute"))
        assert await read_answer(reader) == b"mute"
        rig.only.mute(0.01)
        writer.write(frame(b"next"))
        await asyncio.sleep(0.1)
        assert rig.seen == [b"mute"]
        rig.only.unmute()
        assert await read_answer(reader) == b"next"
        await hang_up(writer)

    await run(MutingRig(), executor, story)


async def test_muted_clients_give_their_memory_to_others_where_it_is_short(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "STALLED", 0.0)  # else those that have come lately are spared

    async def story(rig: Rig) -> None:
        muted = [await connect(rig) for _ in range(4)]
        for reader, writer in muted:
            writer.write(frame(b"mute") + frame(b"x" * 30_000) * 5)
            assert await read_answer(reader) == b"mute"
        reader, writer = await connect(rig)
        writer.write(frame(b"y" * 300_000))
        assert len(await read_answer(reader)) == 300_000
        assert rig.server.budget.used <= rig.server.budget.limit
        for _, each in (*muted, (reader, writer)):
            with contextlib.suppress(ConnectionError):
                await hang_up(each)

    await run(MutingRig(limits=Limits(queued_max_request_bytes=400_000, request_max_bytes=400_000)), executor, story)


async def test_too_many_connections_of_an_address_are_closed_after_a_while(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        loop = asyncio.get_running_loop()
        rig.delay_connection = lambda ip: 0.2 if ip == "127.0.0.1" else 0.0
        began = loop.time()
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        assert await reader.read() == b""
        assert 0.2 <= loop.time() - began < 5
        writer.close()
        assert not rig.server.connections
        rig.delay_connection = lambda ip: 60.0
        many = [await asyncio.open_connection("127.0.0.1", rig.port) for _ in range(MOST_REFUSED + 5)]
        closed = await asyncio.gather(*(_is_closed(reader) for reader, _ in many))
        assert sum(closed) == 5, "no more are kept than there is room for"
        await rig.server.close(grace=1)
        assert all(await asyncio.gather(*(_is_closed(reader, 5.0) for reader, _ in many)))
        for _, writer in many:
            writer.close()

    await run(Rig(), executor, story)


async def _is_closed(reader: asyncio.StreamReader, seconds: float = 0.5) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await reader.read() == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
