"""A channel between brokers, over real sockets."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from barnabas.net.channel import Channel, ChannelBroken, ChannelOptions
from tests.support.waiting import pass_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEADER = struct.Struct(">ihhih")


async def request(reader: asyncio.StreamReader) -> tuple[int, int, int, bytes]:
    """The next request: key, version, correlation id, and everything after the client id."""
    size, key, version, correlation_id, length = HEADER.unpack(await reader.readexactly(HEADER.size))
    rest = await reader.readexactly(size - (HEADER.size - 4))
    return key, version, correlation_id, rest[length:]


def respond(writer: asyncio.StreamWriter, correlation_id: int, body: bytes) -> None:
    writer.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        _, _, correlation_id, body = await request(reader)
        respond(writer, correlation_id, body)


@asynccontextmanager
async def peer(serve: Serve) -> AsyncIterator[Channel]:
    """A channel to something that serves."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    channel = Channel("127.0.0.1", port, ChannelOptions(client_id="broker-1", connect_seconds=5, max_response=1 << 20))
    try:
        yield channel
    finally:
        channel.close()
        server.close()


async def ask(channel: Channel, body: bytes, seconds: float = 30) -> bytes:
    return bytes(await channel.ask(9, 3, [body], flexible=True, seconds=seconds))


async def test_many_questions_at_a_time_are_answered_each() -> None:
    async with peer(echo) as channel:
        bodies = [bytes([number]) * (number * 997 % 70_000) for number in range(100)]
        assert await asyncio.gather(*(ask(channel, body) for body in bodies)) == [b"\0" + body for body in bodies]
        assert channel.is_connected


async def test_whoever_waits_is_told_when_the_connection_breaks_and_the_next_connects_again() -> None:
    connections = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await request(reader)
            return
        await echo(reader, writer)

    async with peer(once) as channel:
        with pytest.raises(ChannelBroken, match="broke"):
            await ask(channel, b"a")
        assert not channel.is_connected
        assert await ask(channel, b"b") == b"\0b"
        assert connections == 2


async def test_no_answer_in_time_ends_the_connection() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with peer(silent) as channel:
        asking = asyncio.ensure_future(ask(channel, b"a", seconds=30))
        while not channel.is_connected:
            await asyncio.sleep(0)
        await pass_time(31)
        with pytest.raises(ChannelBroken, match="did not answer within 30 s"):
            await asking
        assert not channel.is_connected


async def test_the_first_answer_that_is_overdue_ends_the_connection_whoever_asked_before() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with peer(silent) as channel:
        patient = asyncio.ensure_future(ask(channel, b"a", seconds=60))
        while not channel.is_connected:
            await asyncio.sleep(0)
        with pytest.raises(ChannelBroken, match=r"did not answer within 0\.05 s"):
            await ask(channel, b"b", seconds=0.05)
        with pytest.raises(ChannelBroken, match="broke: it did not answer in time"):
            await patient


async def test_an_answer_in_time_ends_nothing_when_the_time_is_over() -> None:
    answered = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        *_, first, _ = await request(reader)
        respond(writer, first, b"")
        *_, second, _ = await request(reader)
        await answered.wait()
        respond(writer, second, b"")

    async with peer(slow) as channel:
        await ask(channel, b"a", seconds=30)
        later = asyncio.ensure_future(ask(channel, b"b", seconds=60))
        await asyncio.sleep(0)
        await pass_time(31)
        answered.set()
        await later
        assert channel.is_connected


async def test_nobody_is_given_up_for_an_answer_that_is_not_awaited_any_more() -> None:
    came = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        *_, first, _ = await request(reader)
        came.set()
        *_, second, _ = await request(reader)
        respond(writer, first, b"")
        respond(writer, second, b"second")

    async with peer(slow) as channel:
        given_up = asyncio.ensure_future(ask(channel, b"a", seconds=30))
        await came.wait()
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await pass_time(31)
        assert await ask(channel, b"b") == b"second"


@pytest.mark.parametrize(
    ("size", "correlation_id", "reason"),
    [(1 << 21, 0, "announced a response of 2097152 bytes"), (2, 0, "announced"), (8, 99, "answered request 99")],
)
async def test_a_peer_that_talks_nonsense_is_hung_up_on(size: int, correlation_id: int, reason: str) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(struct.pack(">iii", size, correlation_id, 0))
        await reader.read()

    async with peer(nonsense) as channel:
        with pytest.raises(ChannelBroken, match=reason):
            await ask(channel, b"a")


async def test_a_channel_that_is_closed_while_it_connects_is_closed() -> None:
    async with peer(echo) as channel:
        asking = asyncio.create_task(channel.ask(1, 0, (b"x",), flexible=False, seconds=60))
        await asyncio.sleep(0)
        channel.close()
        with pytest.raises(ChannelBroken, match="closed"):
            await asyncio.wait_for(asking, 30)


async def test_nobody_there() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    channel = Channel("127.0.0.1", port, ChannelOptions(client_id="broker-1", connect_seconds=5, max_response=100))
    with pytest.raises(ChannelBroken, match="cannot be reached"):
        await ask(channel, b"a")
    channel.close()
    with pytest.raises(ChannelBroken, match="closed"):
        await ask(channel, b"a")


async def test_the_end_of_a_connection_is_waited_for() -> None:
    leave = asyncio.Event()

    async def until_told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await leave.wait()

    async with asyncio.timeout(30), peer(until_told) as channel:
        waiting = asyncio.create_task(channel.until_broken())
        while not channel.is_connected:
            await asyncio.sleep(0)
        assert not waiting.done()
        leave.set()
        await waiting
        assert not channel.is_connected
        channel.close()
        with pytest.raises(ChannelBroken):
            await channel.until_broken()
