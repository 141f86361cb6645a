"""A server: what it listens on, how much it takes, and how it closes."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.model.errors import StartupError
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.net import inbox
from barnabas.net.admission import ConnectionLimits
from barnabas.net.connection import Connection
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


plaintext = pytest.mark.parametrize("transport", ["plaintext"], indirect=True)


@dataclass
class WaitingRig(Rig):
    """Clients whose requests wait for their answers; those of others have them at once."""

    waiting: list[Parked] = field(default_factory=list)
    clients: list[socket.socket] = field(default_factory=list)

    async def begin(self, stack: ExitStack, count: int) -> None:
        """Have so many requests wait, each of a client of its own."""
        self.reply = self._park
        for _ in range(count):
            self.clients.append(stack.enter_context(socket.create_connection(("127.0.0.1", self.port))))
            self.clients[-1].sendall(frame(b"request"))
            await until(lambda: len(self.waiting) == len(self.clients))

    def _park(self, body: bytes) -> Parked:
        self.waiting.append(Parked(on_abandon=lambda: None))
        return self.waiting[-1]

    def answer_all(self) -> None:
        for parked in self.waiting:
            parked.resolve(answer(b"answer"))

    def answered(self) -> list[socket.socket]:
        """The clients that may read something now."""
        return select.select([each for each in self.clients if each.fileno() >= 0], [], [], 0)[0]


@plaintext
async def test_the_first_of_many_answers_of_a_turn_do_not_wait_for_its_end(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        assert isinstance(rig, WaitingRig)
        with ExitStack() as stack:
            await rig.begin(stack, MOST_ANSWERED + 1)
            rig.answer_all()
            assert len(rig.answered()) == MOST_ANSWERED
            await until(lambda: len(rig.answered()) == len(rig.clients))

    await run(WaitingRig(tls=None), executor, story)


@plaintext
async def test_those_who_were_answered_early_count_until_the_turn_is_over(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        assert isinstance(rig, WaitingRig)
        with ExitStack() as stack:
            await rig.begin(stack, MOST_ANSWERED)
            assert not rig.server.is_answering(())
            rig.answer_all()
            assert len(rig.answered()) == MOST_ANSWERED
            assert rig.server.is_answering(())
            assert not rig.server.is_answering(list(rig.server.connections))
            await until(lambda: not rig.server.is_answering(()))

    await run(WaitingRig(tls=None), executor, story)


@plaintext
@pytest.mark.parametrize("who", [0, 5, MOST_ANSWERED - 1])
async def test_a_client_that_is_gone_when_many_are_answered_costs_no_other_its_answer(
    executor: ThreadPoolExecutor, who: int
) -> None:
    async def story(rig: Rig) -> None:
        assert isinstance(rig, WaitingRig)
        with ExitStack() as stack:
            await rig.begin(stack, MOST_ANSWERED)
            gone = rig.clients[who]
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it resets
            gone.close()
            rig.answer_all()
            assert len(rig.answered()) == MOST_ANSWERED - 1
            await until(lambda: len(rig.server.connections) == MOST_ANSWERED - 1)

    await run(WaitingRig(tls=None), executor, story)


@plaintext
@pytest.mark.parametrize("count", [3, MOST_ANSWERED])
async def test_a_defect_in_sending_to_one_client_costs_no_other_its_answer(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    async def story(rig: Rig) -> None:
        assert isinstance(rig, WaitingRig)
        with ExitStack() as stack:
            await rig.begin(stack, count)
            bad, flush = next(iter(rig.server.connections)), Connection.flush

            def fail(connection: Connection) -> None:
                if connection is bad:
                    raise ValueError("planted")
                flush(connection)

            monkeypatch.setattr(Connection, "flush", fail)
            rig.answer_all()
            await until(lambda: len(rig.answered()) == count)  # one of them reads that it is closed
            assert bad.closed
            assert sum(len(client.recv(100)) > 0 for client in rig.clients) == count - 1

    await run(WaitingRig(tls=None), executor, story)
    assert caplog.text.count("sending failed") == 1


@plaintext
@pytest.mark.parametrize("size", [10, 40_000])
async def test_answers_of_one_client_stay_in_order_when_many_are_answered_between_them(
    executor: ThreadPoolExecutor, size: int
) -> None:
    """Its socket takes the small ones at once; of the large ones, the first has to wait."""
    bodies = [b"%d" % number * size for number in range(8)]

    async def story(rig: Rig) -> None:
        assert isinstance(rig, WaitingRig)
        with ExitStack() as stack:
            await rig.begin(stack, MOST_ANSWERED - 1)

            def reply(body: bytes) -> bytes:
                if body == b"1":
                    rig.answer_all()
                return answer(bodies[int(body)])

            rig.reply = reply
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.connect(("127.0.0.1", rig.port))
            client.sendall(b"".join(frame(b"%d" % number) for number in range(len(bodies))))
            await until(lambda: len(rig.answered()) == len(rig.clients))
            if size > 1_000:
                assert len(rig.seen) - len(rig.clients) < len(bodies), "it does not read, so it is not served further"
            client.setblocking(False)
            got = b""
            wanted = b"".join(map(answer, bodies))
            while len(got) < len(wanted):
                got += await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1 << 16), 30)
            assert got == wanted

    await run(WaitingRig(limits=Limits(send_buffer_bytes=1), tls=None), executor, story)


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
