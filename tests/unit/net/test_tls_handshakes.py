"""TLS handshakes: what is none, slow ones, places for them, client certificates, and clients that vanish."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from barnabas.net import handshakes
from barnabas.net.admission import ConnectionLimits
from barnabas.net.keystores import KeyPair
from barnabas.net.server import Limits
from tests.support.certificates import Authority
from tests.support.servers import (
    Rig,
    TlsSides,
    blocking,
    connect,
    frame,
    hang_up,
    in_thread,
    read_answer,
    run,
    tls_rig,
)
from tests.support.waiting import pass_time, until

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        frame(b"plaintext"),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
        b"\x16\x03\x01\xff\xff" + bytes(100),
        b"\x15\x03\x03\0\2\2\x28" * 3,
    ],
)
async def test_what_is_no_tls_is_closed_and_told(
    executor: ThreadPoolExecutor, tls_sides: TlsSides, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def story(rig: Rig) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(sent)
        await reader.read()
        await until(lambda: rig.server._admission.total == 0)
        await hang_up(writer)

    await run(tls_rig(tls_sides), executor, story)
    assert "TLS handshake with 127.0.0.1" in caplog.text
    if sent.startswith((b"GET", b"\0")):
        assert "does not speak TLS" in caplog.text


async def test_silent_and_slow_handshakes_hold_nobody_up_and_end(
    executor: ThreadPoolExecutor, tls_sides: TlsSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_SECONDS", 30.0)

    async def story(rig: Rig) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", rig.port) for _ in range(100)]
        for _, writer in silent[50:]:
            writer.write(b"\x16\x03\x01\x02\x00\x01")
        await until(lambda: rig.server._admission.total == 100)
        reader, writer = await connect(rig)
        writer.write(frame(b"hello"))
        assert await read_answer(reader) == b"hello"
        await pass_time(31)
        for each, _ in silent:
            assert await each.read() == b""
        assert rig.server._admission.total == 1
        for _, each_writer in silent:
            await hang_up(each_writer)
        await hang_up(writer)

    await run(tls_rig(tls_sides), executor, story)


async def test_handshakes_wait_for_a_place_and_the_oldest_gives_it_up(
    executor: ThreadPoolExecutor, tls_sides: TlsSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "MOST_HANDSHAKES", 3)
    monkeypatch.setattr(handshakes, "FAIR_SECONDS", 0.3)

    async def story(rig: Rig) -> None:
        slow = [await asyncio.open_connection("127.0.0.1", rig.port) for _ in range(5)]
        for _, writer in slow:
            writer.write(b"\x16\x03\x01\x02\x00\x01")
        clients = [await connect(rig) for _ in range(3)]
        for reader, writer in clients:
            writer.write(frame(b"hello"))
            assert await read_answer(reader) == b"hello"
        for _, writer in [*clients, *slow]:
            writer.transport.abort()
        await until(lambda: rig.server._admission.total == 0)

    await run(tls_rig(tls_sides), executor, story)


async def test_a_client_that_waits_for_the_brokers_threads_keeps_its_place(
    executor: ThreadPoolExecutor, tls_sides: TlsSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would get in while strangers keep the threads busy: all would have had their time in the queue."""
    monkeypatch.setattr(handshakes, "MOST_HANDSHAKES", 2)
    monkeypatch.setattr(handshakes, "FAIR_SECONDS", 0.2)
    step = handshakes.Handshake.step

    def slowly(handshake: handshakes.Handshake, received: bytes) -> bool:
        time.sleep(0.3)
        return step(handshake, received)

    monkeypatch.setattr(handshakes.Handshake, "step", slowly)

    async def story(rig: Rig) -> None:
        clients = await asyncio.gather(*(connect(rig) for _ in range(6)))
        for reader, writer in clients:
            writer.write(frame(b"hello"))
            assert await read_answer(reader) == b"hello"
            writer.transport.abort()
        await until(lambda: rig.server._admission.total == 0)

    await run(tls_rig(tls_sides), executor, story)


async def test_a_client_that_sends_its_hello_bit_by_bit_gives_its_place_up(
    executor: ThreadPoolExecutor, tls_sides: TlsSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "MOST_HANDSHAKES", 2)
    monkeypatch.setattr(handshakes, "FAIR_SECONDS", 0.3)

    async def drip(rig: Rig) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        try:
            for byte in b"\x16\x03\x01\x02\x00\x01" + bytes(300):
                writer.write(bytes((byte,)))
                await asyncio.sleep(0.05)
                if reader.at_eof():
                    return
        finally:
            writer.transport.abort()

    async def story(rig: Rig) -> None:
        dripping = [asyncio.create_task(drip(rig)) for _ in range(2)]
        await until(lambda: len(rig.server._handshakes._placed) == 2)
        async with asyncio.timeout(8):  # which is before the end of their time
            reader, writer = await connect(rig)
        writer.write(frame(b"hello"))
        assert await read_answer(reader) == b"hello"
        writer.transport.abort()
        for task in dripping:
            task.cancel()
        await asyncio.gather(*dripping, return_exceptions=True)

    await run(tls_rig(tls_sides), executor, story)


async def test_handshakes_count_as_connections(executor: ThreadPoolExecutor, tls_sides: TlsSides) -> None:
    async def story(rig: Rig) -> None:
        _, first = await asyncio.open_connection("127.0.0.1", rig.port)
        await until(lambda: rig.server._admission.total == 1)
        reader, second = await asyncio.open_connection("127.0.0.1", rig.port)
        assert await reader.read() == b""
        await hang_up(first)
        await hang_up(second)
        await until(lambda: rig.server._admission.total == 0)

    await run(
        tls_rig(tls_sides, limits=Limits(connections=ConnectionLimits(max_connections_per_ip=1))), executor, story
    )


async def test_a_client_certificate_is_demanded_and_kept(executor: ThreadPoolExecutor) -> None:
    authority = Authority()
    sides = TlsSides.made(verify_mode=ssl.CERT_REQUIRED)
    sides.server.context.load_verify_locations(cadata=authority.pem)
    issued = authority.issue("client", common_name="alice")

    def receive(rig: Rig) -> None:
        with blocking(rig) as client:
            client.recv(1)

    async def story(rig: Rig) -> None:
        with pytest.raises(OSError, match=r"(?i)certificate.required|reset|closed"):
            await asyncio.to_thread(receive, rig)
        KeyPair(issued.key, (issued.certificate,), None).load_into(sides.client)
        reader, writer = await connect(rig)
        writer.write(frame(b"hello"))
        assert await read_answer(reader) == b"hello"
        (connection,) = rig.server.connections
        assert connection.certificate == ssl.PEM_cert_to_DER_cert(issued.certificate)
        await hang_up(writer)

    await run(tls_rig(sides), executor, story)


async def test_a_session_of_tls_1_2_is_resumed_until_the_clients_certificate_ends(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    authority = Authority()
    sides = TlsSides.made(verify_mode=ssl.CERT_REQUIRED)
    sides.server.context.load_verify_locations(cadata=authority.pem)
    sides.client.maximum_version = ssl.TLSVersion.TLSv1_2
    ends = datetime.now(UTC) + timedelta(hours=1)
    issued = authority.issue("client", not_after=ends)
    KeyPair(issued.key, (issued.certificate,), None).load_into(sides.client)

    def let_it_be(time: datetime) -> None:
        monkeypatch.setattr("barnabas.net.handshakes.datetime", SimpleNamespace(now=time.astimezone))

    def ask(rig: Rig, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool, bytes]:
        """Ask something within a session; gives the session, whether it was resumed, and the answer."""
        with (
            socket.create_connection(("127.0.0.1", rig.port), timeout=20) as plain,
            sides.client.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as client,
        ):
            client.sendall(frame(b"hello"))
            return client.session, bool(client.session_reused), client.recv(100)

    async def story(rig: Rig) -> None:
        session, resumed, answered = await asyncio.to_thread(ask, rig, None)
        assert not resumed
        session, resumed, again = await asyncio.to_thread(ask, rig, session)
        assert resumed
        assert again == answered
        let_it_be(ends - timedelta(seconds=2))
        session, resumed, again = await asyncio.to_thread(ask, rig, session)
        assert resumed
        assert again == answered
        let_it_be(ends + timedelta(seconds=1))
        with contextlib.suppress(OSError):
            assert (await asyncio.to_thread(ask, rig, session))[2] == b""
        assert "the client's certificate has expired since its session began" in caplog.text

    await run(tls_rig(sides), executor, story)


@pytest.mark.parametrize("reset", [False, True])
async def test_clients_that_vanish_leave_nothing_behind(
    executor: ThreadPoolExecutor, tls_sides: TlsSides, reset: bool
) -> None:
    async def story(rig: Rig) -> None:
        def work() -> bytes:
            for number in range(40):
                plain = socket.create_connection(("127.0.0.1", rig.port))
                if reset:
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if number % 2:
                    plain.sendall(b"\x16\x03\x01\x02\x00\x01")
                    plain.close()
                    continue
                client = tls_sides.client.wrap_socket(plain, server_hostname="127.0.0.1")
                client.sendall(struct.pack(">i", 1_000_000) + b"x" * 30_000)
                client.close()
            return b""

        await in_thread(work)
        await until(lambda: rig.server._admission.total == 0)
        assert rig.server.budget.used == 0
        assert not rig.server.connections

    await run(tls_rig(tls_sides), executor, story)
