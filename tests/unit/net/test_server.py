"""A real server on a loopback port, with handlers that the test steers."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.model.errors import InvalidFrame, StartupError
from barnabas.net.outbox import SMALL
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.net.server import Limits, Server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from barnabas.net.connection import Connection

HEAD = b"\0\x12\0\0\0\0\0\x07\xff\xff"
"""A well-formed request header, so that frames pass the shortest length."""


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(HEAD) + len(body)) + HEAD + body


def answer(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@dataclass
class OpenFile:
    """A leased file over a temporary one."""

    fd: int
    revoked: bool = False
    leases: int = 1

    def release(self) -> None:
        self.leases -= 1


@dataclass
class Piece:
    file: OpenFile
    position: int
    length: int
    warm: bool = True


@dataclass
class Rig:
    """A server whose answers come from `reply`."""

    reply: Callable[[bytes], Answer | Parked] = answer
    limits: Limits = field(default_factory=Limits)
    seen: list[bytes] = field(default_factory=list)
    server: Any = None
    port: int = 0

    def serve(self, connection: Connection, data: memoryview) -> Answer | Parked:
        body = bytes(data[len(HEAD) :])
        self.seen.append(body)
        return self.reply(body)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def run(rig: Rig, executor: ThreadPoolExecutor, story: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        rig.server = Server(rig.serve, rig.limits, executor)
        rig.port = rig.server.listen("PLAINTEXT", "127.0.0.1", 0)
        rig.server.accept()
        try:
            await asyncio.wait_for(story(rig), 20)
        finally:
            await rig.server.close(grace=0)

    asyncio.run(main())


async def connect(rig: Rig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", rig.port)


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


def test_pipelined_requests_are_answered_in_order(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        bodies = [f"request {n}".encode() for n in range(100)]
        writer.write(b"".join(map(frame, bodies)))
        assert [await read_answer(reader) for _ in bodies] == bodies
        await hang_up(writer)

    run(Rig(), executor, story)


def test_a_frame_that_comes_byte_by_byte_is_served_once(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        for byte in frame(b"slow"):
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0)
        assert await read_answer(reader) == b"slow"
        assert rig.seen == [b"slow"]
        assert rig.server.budget.used == 0
        await hang_up(writer)

    run(Rig(), executor, story)


def test_large_frames_between_small_ones(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        bodies = [b"a", os.urandom(3_000_000), b"b" * 300_000, b"c"]
        for body in bodies:
            writer.write(frame(body))
        assert [await read_answer(reader) for _ in bodies] == bodies
        assert rig.server.budget.used == 0
        await hang_up(writer)

    run(Rig(), executor, story)


def test_a_parked_request_holds_back_the_next_unless_it_can_be_overtaken(executor: ThreadPoolExecutor) -> None:
    parked = Parked()
    overtakable = Parked(overtakable=True)
    replies = {b"overtakable": overtakable, b"parked": parked}

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"overtakable") + frame(b"parked") + frame(b"last"))
        await until(lambda: len(rig.seen) == 2)
        writer.write(frame(b"later"))
        parked.resolve(answer(b"2"))
        await until(lambda: len(rig.seen) == 4)
        overtakable.resolve(answer(b"1"))
        assert [await read_answer(reader) for _ in range(4)] == [b"1", b"2", b"last", b"later"]
        await hang_up(writer)

    run(Rig(lambda body: replies.get(body) or answer(body)), executor, story)


def test_a_request_that_answers_an_earlier_one_of_its_connection_is_served_once(executor: ThreadPoolExecutor) -> None:
    earlier = Parked(overtakable=True)

    def reply(body: bytes) -> Answer | Parked:
        if body == b"earlier":
            return earlier
        if not earlier.resolved:
            earlier.resolve(answer(b"earlier"))
        return answer(body)

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        in_pieces = frame(b"later") + frame(b"last")
        writer.write(frame(b"earlier") + in_pieces[:5])
        await until(lambda: len(rig.seen) == 1)
        writer.write(in_pieces[5:])
        bodies = [b"earlier", b"later", b"last"]
        assert [await read_answer(reader) for _ in bodies] == bodies
        assert rig.seen == bodies
        assert rig.server.budget.used == 0
        await hang_up(writer)

    run(Rig(reply), executor, story)


@dataclass
class HoldingRig(Rig):
    """Keeps the views of the frames that it served, as a request does whose answer comes later."""

    held: list[memoryview] = field(default_factory=list)

    def serve(self, connection: Connection, data: memoryview) -> Answer | Parked:
        self.held.append(data)
        return super().serve(connection, data)


def test_an_inbox_grows_while_an_overtaken_request_still_looks_into_it(executor: ThreadPoolExecutor) -> None:
    replies = {b"first": Parked(), b"overtaken": Parked(overtakable=True)}
    large = frame(b"large" * 100_000)

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"first") + frame(b"overtaken") + large[:100])
        await until(lambda: len(rig.seen) == 1)
        replies[b"first"].resolve(answer(b"1"))
        await until(lambda: len(rig.seen) == 2)
        writer.write(large[100:])
        await until(lambda: len(rig.seen) == 3)
        replies[b"overtaken"].resolve(answer(b"2"))
        assert [await read_answer(reader) for _ in range(3)] == [b"1", b"2", b"large" * 100_000]
        assert rig.server.budget.used == 0
        await hang_up(writer)

    run(HoldingRig(lambda body: replies.get(body) or answer(body)), executor, story)


def test_a_client_that_leaves_abandons_what_is_parked(executor: ThreadPoolExecutor) -> None:
    left: list[bool] = []
    parked = Parked(on_abandon=lambda: left.append(True))

    async def story(rig: Rig) -> None:
        _, writer = await connect(rig)
        writer.write(frame(b"wait"))
        await until(lambda: bool(rig.seen))
        await hang_up(writer)
        await until(lambda: bool(left))
        assert not rig.server.connections
        parked.resolve(answer(b"nobody"))

    run(Rig(lambda body: parked), executor, story)


def test_what_a_client_sent_before_it_left_is_served_though_a_request_is_parked(executor: ThreadPoolExecutor) -> None:
    parked = Parked()
    rig = Rig(lambda body: parked if body == b"first" else None)

    async def story(rig: Rig) -> None:
        _, writer = await connect(rig)
        writer.write(b"".join(map(frame, (b"first", b"second", b"third"))))
        await until(lambda: rig.seen == [b"first"])
        await hang_up(writer)
        await until(lambda: not any(connection._reading for connection in rig.server.connections))
        parked.resolve(None)
        await until(lambda: rig.seen == [b"first", b"second", b"third"])
        await until(lambda: not rig.server.connections)

    run(rig, executor, story)


@pytest.mark.parametrize("length", [-1, 0, 9, 2**31 - 1, -(2**31)])
def test_an_absurd_length_closes_only_its_connection(executor: ThreadPoolExecutor, length: int) -> None:
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

    run(Rig(), executor, story)


def test_what_all_unfinished_frames_take_is_bounded(executor: ThreadPoolExecutor) -> None:
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

    run(Rig(limits=Limits(queued_max_request_bytes=8_000_000)), executor, story)


def test_a_client_that_never_reads_is_not_read_either(executor: ThreadPoolExecutor) -> None:
    big = answer(b"x" * 1_000_000)

    async def story(rig: Rig) -> None:
        stuck = socket.create_connection(("127.0.0.1", rig.port))
        stuck.setblocking(False)
        sent = 0
        data = frame(b"m" * 1000) * 20_000
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                while sent < len(data):
                    await loop.sock_sendall(stuck, data[sent : sent + 65536])
                    sent += 65536
        reader, writer = await connect(rig)
        served = len(rig.seen)
        assert served < 20
        writer.write(frame(b"other"))
        assert len(await read_answer(reader)) == 1_000_000
        stuck.close()
        await hang_up(writer)

    run(Rig(lambda body: big), executor, story)


def test_file_slices_go_out_between_bytes(executor: ThreadPoolExecutor) -> None:
    content = os.urandom(5_000_000)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        opened = OpenFile(file.fileno(), leases=2)
        pieces = [Piece(opened, 100, 3_000_000), Piece(opened, 10, 1000, warm=False)]
        size = 4 + 3_000_000 + 3 + 1000 + 1

        async def story(rig: Rig) -> None:
            reader, writer = await connect(rig)
            writer.write(frame(b"fetch") + frame(b"next"))
            expected = b"head" + content[100:3_000_100] + b"mid" + content[10:1010] + b"."
            assert await read_answer(reader) == expected
            assert await read_answer(reader) == b"next"
            assert opened.leases == 0
            await hang_up(writer)

        parts: Any = [struct.pack(">i", size) + b"head", pieces[0], b"mid", pieces[1], b"."]
        run(Rig(lambda body: parts if body == b"fetch" else answer(body)), executor, story)


def test_a_small_answer_goes_out_in_one_piece(executor: ThreadPoolExecutor) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"0123456789")
        file.flush()
        opened = OpenFile(file.fileno(), leases=1)
        parts: Any = [struct.pack(">i", 8) + b"<", Piece(opened, 2, 6), b">"]

        async def story(rig: Rig) -> None:
            reader, writer = await connect(rig)
            writer.write(frame(b"fetch"))
            assert await read_answer(reader) == b"<234567>"
            assert opened.leases == 0
            await hang_up(writer)

        run(Rig(lambda body: parts), executor, story)


def test_of_an_answer_that_is_not_small_nothing_is_read(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(SMALL))
        file.flush()
        opened = OpenFile(file.fileno(), leases=2)
        parts: Any = [struct.pack(">i", 10 + SMALL), Piece(opened, 0, 10), Piece(opened, 0, SMALL)]

        async def story(rig: Rig) -> None:
            reader, writer = await connect(rig)
            writer.write(frame(b"fetch"))
            assert await read_answer(reader) == bytes(10 + SMALL)
            assert opened.leases == 0
            await hang_up(writer)

        monkeypatch.delattr(os, "pread")
        run(Rig(lambda body: parts), executor, story)


def test_truncation_below_a_response_closes_the_connection(executor: ThreadPoolExecutor) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 10)
        file.flush()
        opened = OpenFile(file.fileno(), revoked=True)
        parts: Any = [struct.pack(">i", 10), Piece(opened, 0, 10)]

        async def story(rig: Rig) -> None:
            reader, writer = await connect(rig)
            writer.write(frame(b"fetch"))
            assert len(await reader.read()) <= 4
            assert opened.leases == 0
            await hang_up(writer)

        run(Rig(lambda body: parts), executor, story)


def test_hang_up_comes_after_earlier_responses(executor: ThreadPoolExecutor) -> None:
    parked = Parked(overtakable=True)
    replies: dict[bytes, Answer | Parked] = {b"1": parked, b"2": HANG_UP}

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"1") + frame(b"2"))
        await until(lambda: len(rig.seen) == 2)
        parked.resolve(answer(b"one"))
        assert await read_answer(reader) == b"one"
        assert await reader.read() == b""
        await hang_up(writer)

    run(Rig(lambda body: replies[body]), executor, story)


def test_nothing_is_served_after_a_hang_up(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"1") + frame(b"end") + frame(b"2"))
        assert await read_answer(reader) == b"1"
        assert await reader.read() == b""
        assert rig.seen == [b"1", b"end"]
        await hang_up(writer)

    run(Rig(lambda body: HANG_UP if body == b"end" else answer(body)), executor, story)


def test_what_came_before_garbage_is_answered(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"1") + struct.pack(">i", -7) + b"x" * 20)
        assert await read_answer(reader) == b"1"
        assert await reader.read() == b""
        await hang_up(writer)

    run(Rig(), executor, story)


@pytest.mark.parametrize("error", [InvalidFrame("not a request"), TypeError("a mistake of ours")], ids=repr)
def test_a_handler_that_refuses_a_frame_ends_that_connection(executor: ThreadPoolExecutor, error: Exception) -> None:
    def refuse(body: bytes) -> Answer:
        raise error

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"?"))
        assert await reader.read() == b""
        assert not rig.server.connections
        await hang_up(writer)

    run(Rig(refuse), executor, story)


def test_connections_beyond_the_limits_are_refused(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        first, first_writer = await connect(rig)
        await until(lambda: len(rig.server.connections) == 1)
        second, second_writer = await connect(rig)
        assert await second.read() == b""
        first_writer.write(frame(b"ok"))
        assert await read_answer(first) == b"ok"
        await hang_up(first_writer)
        await hang_up(second_writer)

    run(Rig(limits=Limits(max_connections_per_ip=1)), executor, story)


def test_idle_connections_are_closed(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        assert await reader.read() == b""
        await hang_up(writer)

    run(Rig(limits=Limits(idle_ms=100)), executor, story)


def test_without_a_limit_idle_connections_stay(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        rig.server.loop.call_later(0.3, writer.write, frame(b"still here"))
        assert await read_answer(reader) == b"still here"
        await hang_up(writer)

    run(Rig(limits=Limits(idle_ms=-1)), executor, story)


def test_a_host_is_listened_on_at_each_of_its_addresses(
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

    run(Rig(), executor, story)


def test_a_port_in_use_says_what_to_do(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(StartupError, match="choose another with --listen"):
            rig.server.listen("OTHER", "127.0.0.1", rig.port)

    run(Rig(), executor, story)


def test_closing_waits_for_what_is_under_way(executor: ThreadPoolExecutor) -> None:
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

    run(Rig(lambda body: parked), executor, story)


def test_closing_sends_all_that_was_overtaken(executor: ThreadPoolExecutor) -> None:
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

    run(Rig(lambda body: replies[body]), executor, story)
