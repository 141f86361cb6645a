"""A server: what it listens on, how much it takes, and how it closes."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.model.errors import StartupError
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.net import inbox
from barnabas.net.admission import ConnectionLimits
from barnabas.net.reply import Parked
from barnabas.net.server import MOST_ANSWERED, Limits
from tests.support.servers import Rig, answer, connect, frame, hang_up, read_answer, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

pytestmark = pytest.mark.usefixtures("transport")
"""Each test runs over plaintext and over TLS."""


@pytest.mark.parametrize("length", [-1, 0, 9, 2**31 - 1, -(2**31)])
async def test_an_absurd_length_closes_only_its_connection(executor: ThreadPoolExecutor, length: int) -> None:
    async def story(rig: Rig) -> None:
        good, good_writer = await connect(rig)
        bad, bad_writer = await connect(rig)
        bad_writer.write(struct.pack(">i", length) + b"x" * 20)
        assert await bad.read() == b""
        good_writer.write(frame(b"still here"))
        assert await read_answer(good) == b"still here"
        assert rig.seen == [b"still here"]
        await hang_up(bad_writer)
        await hang_up(good_writer)

    await run(Rig(), executor, story)


async def test_what_all_unfinished_frames_take_is_bounded(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        streams = [await connect(rig) for _ in range(4)]
        for _, writer in streams:
            writer.write(struct.pack(">i", 50_000_000) + b"x" * 2_500_000)
        closed = [asyncio.ensure_future(reader.read()) for reader, _ in streams]
        done, rest = await asyncio.wait(closed, return_when=asyncio.FIRST_COMPLETED)
        assert done
        assert rig.server.budget.used <= rig.limits.queued_max_request_bytes
        for future in rest:
            future.cancel()
        reader, writer = await connect(rig)
        writer.write(frame(b"others go on"))
        assert await read_answer(reader) == b"others go on"
        for _, each in [*streams, (reader, writer)]:
            each.transport.abort()

    await run(Rig(limits=Limits(queued_max_request_bytes=8_000_000)), executor, story)


async def test_a_request_takes_the_memory_of_what_has_arrived_and_not_of_what_it_announces(
    executor: ThreadPoolExecutor,
) -> None:
    async def story(rig: Rig) -> None:
        streams = [await connect(rig) for _ in range(5)]
        for _, writer in streams:
            writer.write(struct.pack(">i", 2_000_000) + b"x" * 5)
        await until(lambda: rig.server.budget.used > 0 and all(each._inbox for each in rig.server.connections))
        assert rig.server.budget.used <= 5 * 16 * 1024
        reader, writer = await connect(rig)
        writer.write(frame(b"y" * 900_000))
        assert await read_answer(reader) == b"y" * 900_000
        for _, each in [*streams, (reader, writer)]:
            each.transport.abort()

    await run(Rig(limits=Limits(queued_max_request_bytes=4_000_000)), executor, story)


async def test_requests_that_do_not_arrive_make_room_for_those_that_do(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: Rig) -> None:
        stalled, stalled_writer = await connect(rig)
        stalled_writer.write(struct.pack(">i", 3_000_000) + b"x" * 2_500_000)
        await until(lambda: rig.server.budget.used >= 2_500_000)
        monkeypatch.setattr(inbox, "STALLED", 0.0)
        reader, writer = await connect(rig)
        writer.write(frame(b"y" * 2_000_000))
        assert await read_answer(reader) == b"y" * 2_000_000
        assert await stalled.read() == b""
        stalled_writer.transport.abort()
        await hang_up(writer)

    await run(Rig(limits=Limits(queued_max_request_bytes=4_000_000)), executor, story)
    assert "did not arrive in time" in caplog.text


@pytest.mark.parametrize("transport", ["plaintext"], indirect=True)  # TLS: test_tls
async def test_connections_beyond_the_limits_are_refused(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        first, first_writer = await connect(rig)
        await until(lambda: len(rig.server.connections) == 1)
        second, second_writer = await connect(rig)
        assert await second.read() == b""
        first_writer.write(frame(b"ok"))
        assert await read_answer(first) == b"ok"
        await hang_up(first_writer)
        await hang_up(second_writer)

    await run(Rig(limits=Limits(connections=ConnectionLimits(max_connections_per_ip=1))), executor, story)


async def test_idle_connections_are_closed(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        assert await reader.read() == b""
        await hang_up(writer)

    await run(Rig(limits=Limits(idle_ms=100)), executor, story)


async def test_without_a_limit_idle_connections_stay(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        rig.server.loop.call_later(0.3, writer.write, frame(b"still here"))
        assert await read_answer(reader) == b"still here"
        await hang_up(writer)

    await run(Rig(limits=Limits(idle_ms=-1)), executor, story)


async def test_a_host_is_listened_on_at_each_of_its_addresses(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = ["127.0.0.1", "127.0.0.2", "192.0.2.1"]  # the last is nobody's: such a one is passed over

    def resolve(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    async def story(rig: Rig) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", resolve)
            port = rig.server.listen("OTHER", "both", 0)
        rig.server.accept()
        for address in addresses[:2]:
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(frame(address.encode()))
            assert await read_answer(reader) == address.encode()
            await hang_up(writer)

    await run(Rig(), executor, story)


async def test_a_port_in_use_says_what_to_do(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(StartupError, match=f"OTHER: cannot listen on 127.0.0.1:{rig.port}") as caught:
            rig.server.listen("OTHER", "127.0.0.1", rig.port)
        assert caught.value.remedy == Remedy(RemedyKind.CHOOSE_PORT)

    await run(Rig(), executor, story)


async def test_the_first_of_many_answers_of_a_turn_do_not_wait_for_its_end(executor: ThreadPoolExecutor) -> None:
    waiting: list[Parked] = []

    def park(body: bytes) -> Parked:
        waiting.append(Parked(on_abandon=lambda: None))
        return waiting[-1]

    async def story(rig: Rig) -> None:
        with ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(("127.0.0.1", rig.port))) for _ in range(MOST_ANSWERED + 1)
            ]
            for client in clients:
                client.sendall(frame(b"request"))
            await until(lambda: len(waiting) == len(clients))
            for parked in waiting:
                parked.resolve(answer(b"answer"))
            assert len(select.select(clients, [], [], 0)[0]) == MOST_ANSWERED
            await until(lambda: len(select.select(clients, [], [], 0)[0]) == len(clients))

    await run(Rig(park, tls=None), executor, story)


async def test_closing_waits_for_what_is_under_way(executor: ThreadPoolExecutor) -> None:
    parked = Parked()

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"work"))
        await until(lambda: bool(rig.seen))
        closing = asyncio.ensure_future(rig.server.close(grace=10))
        await asyncio.sleep(0)
        parked.resolve(answer(b"done"))
        assert await read_answer(reader) == b"done"
        assert await reader.read() == b""
        await closing
        await hang_up(writer)

    await run(Rig(lambda body: parked), executor, story)


async def test_closing_tells_of_what_takes_too_long(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"work"))
        await until(lambda: bool(rig.seen))
        await rig.server.close(grace=0.01)
        assert await reader.read() == b""
        await hang_up(writer)

    await run(Rig(lambda body: Parked()), executor, story)
    assert "Closed 1 connections in the middle of a request." in caplog.messages


async def test_closing_sends_all_that_was_overtaken(executor: ThreadPoolExecutor) -> None:
    replies = {body: Parked(overtakable=True) for body in (b"1", b"2", b"3")}

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(b"".join(map(frame, replies)))
        await until(lambda: len(rig.seen) == 3)
        closing = asyncio.ensure_future(rig.server.close(grace=10))
        await asyncio.sleep(0)
        for body in (b"3", b"1", b"2"):
            replies[body].resolve(answer(body))
        assert [await read_answer(reader) for _ in replies] == [b"1", b"2", b"3"]
        assert await reader.read() == b""
        await closing
        await hang_up(writer)

    await run(Rig(lambda body: replies[body]), executor, story)
