"""Connections that are refused, and what the log says of them."""

from __future__ import annotations

import contextlib
import logging
import re
import ssl
from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import InvalidFrame, OtherProtocol
from barnabas.net.admission import ConnectionLimits
from barnabas.net.refusals import LOG_SECONDS, REMEMBERED, Refusal, RefusalLog
from barnabas.net.server import Limits
from barnabas.protocol.wire.framing import LENGTH, FrameLimits, frame_size
from tests.support.served_connection import served_connection
from tests.support.servers import Rig, TlsSides, connect, frame, hang_up, read_answer, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

AN_ADDRESS = Refusal("10.0.0.1", "CLIENTS", "it has enough.")


def test_the_same_is_logged_now_and_then_with_how_many_it_stands_for(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    log = RefusalLog(lambda: now[0])
    for _ in range(50):
        log.log(logging.WARNING, AN_ADDRESS)
    assert caplog.messages == ["Refused a connection of 10.0.0.1 on listener CLIENTS: it has enough."]
    log.log(logging.WARNING, AN_ADDRESS._replace(ip="10.0.0.2"))
    log.log(logging.WARNING, AN_ADDRESS._replace(reason="it comes too fast."))
    assert len(caplog.messages) == 3, "others are logged for themselves"
    now[0] += LOG_SECONDS
    log.log(logging.WARNING, AN_ADDRESS)
    assert caplog.messages[3].endswith("it has enough. (49 more like this were not logged)")
    now[0] += LOG_SECONDS
    log.log(logging.WARNING, AN_ADDRESS)
    assert caplog.messages[4] == caplog.messages[0]


def test_addresses_beyond_those_that_are_remembered_take_no_memory() -> None:
    log = RefusalLog(lambda: 0.0)
    for number in range(3 * REMEMBERED):
        for _ in range(2):
            log.log(logging.DEBUG, AN_ADDRESS._replace(ip=f"2001:db8::{number:x}"))
    assert len(log._logged) == REMEMBERED
    assert len(log._left_out) == REMEMBERED


async def test_an_address_with_all_that_it_may_have_is_named(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: Rig) -> None:
        _, first = await connect(rig)
        await until(lambda: len(rig.server.connections) == 1)
        for _ in range(20):
            reader, writer = await connect(rig)
            assert await reader.read() == b""
            await hang_up(writer)
        await hang_up(first)

    limits = ConnectionLimits(max_connections_per_ip=1000, per_ip_overrides={"127.0.0.1": 1})
    await run(Rig(limits=Limits(connections=limits)), executor, story)
    assert caplog.messages == [
        "Refused a connection of 127.0.0.1 on listener CLIENTS: it has all that max.connections.per.ip (or its "
        "override) allows."
    ]


async def test_an_address_that_comes_faster_than_its_quota_is_named(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: Rig) -> None:
        rig.delay_connection = lambda ip: 0.001
        for _ in range(20):
            reader, writer = await connect(rig)
            assert await reader.read() == b""
            await hang_up(writer)
        assert rig.server.turned_away == 20

    await run(Rig(), executor, story)
    assert caplog.messages == [
        "Refused a connection of 127.0.0.1 on listener CLIENTS: it comes faster than its quota "
        "(connection_creation_rate) allows."
    ]


async def test_a_listener_whose_connections_wait_says_so_once(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: Rig) -> None:
        for number in range(30):
            reader, writer = await connect(rig)
            writer.write(frame(b"%d" % number))
            assert await read_answer(reader) == b"%d" % number
            await hang_up(writer)

    caplog.set_level(logging.INFO, "barnabas.net")
    await run(Rig(limits=Limits(connections=ConnectionLimits(creation_rate=20))), executor, story)
    assert caplog.messages == [
        "Listener CLIENTS accepts connections more slowly than they come: max.connection.creation.rate is reached."
    ]


def a_tls_hello(newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> bytes:
    """What a TLS client says first."""
    context = ssl.create_default_context()
    context.maximum_version = newest
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker.example").do_handshake()
    return outgoing.read()


TLS = "it began a TLS handshake where a request was expected"
HTTP = "it sent a request of HTTP"
PROXY = "it began with the PROXY protocol"
OTHER_PROTOCOLS = {
    "TLS": (a_tls_hello(), TLS),
    "TLS 1.2": (a_tls_hello(ssl.TLSVersion.TLSv1_2), TLS),
    "GET": (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", HTTP),
    "POST": (b"POST / HTTP/1.1\r\nHost: broker\r\n\r\n", HTTP),
    "PROXY": (b"PROXY TCP4 10.0.0.1 10.0.0.2 50000 9092\r\n", PROXY),
    "PROXY 2": (b"\r\n\r\n\0\r\nQUIT\n", PROXY),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP),
}


@pytest.mark.parametrize(("sent", "told"), OTHER_PROTOCOLS.values(), ids=OTHER_PROTOCOLS)
@pytest.mark.parametrize("limits", [FrameLimits(104_857_600), FrameLimits(524_288, "sasl", 0)], ids=["any", "login"])
def test_the_beginning_of_another_protocol_is_recognised(sent: bytes, told: str, limits: FrameLimits) -> None:
    with pytest.raises(OtherProtocol, match=told):
        frame_size(memoryview(sent), 0, limits)


def test_a_text_that_is_taken_for_a_length_is_told() -> None:
    with pytest.raises(InvalidFrame, match=r"1397966893 bytes \(the text 'SSH-'\) is larger"):
        frame_size(memoryview(b"SSH-2.0-OpenSSH\r\n"), 0, FrameLimits(104_857_600))
    with pytest.raises(InvalidFrame, match=r"2147483647 bytes is larger"):
        frame_size(memoryview(b"\x7f\xff\xff\xff"), 0, FrameLimits(104_857_600))


async def test_a_client_of_another_protocol_is_said_to_speak_it_once_and_is_no_alarm(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: Rig) -> None:
        for _ in range(5):
            for sent, _ in OTHER_PROTOCOLS.values():
                reader, writer = await connect(rig)
                writer.write(sent)
                with contextlib.suppress(ConnectionResetError):  # what follows the first bytes is not read
                    assert await reader.read() == b""
                with contextlib.suppress(ConnectionResetError):
                    await hang_up(writer)
        assert not rig.seen

    caplog.set_level(logging.INFO, "barnabas.net")
    await run(Rig(tls=None), executor, story)
    assert {line.levelno for line in caplog.records} == {logging.INFO}
    assert sorted(found for line in caplog.messages for found in (TLS, HTTP, PROXY) if found in line) == sorted(
        (TLS, HTTP, PROXY)
    )


GARBAGE = [
    *(LENGTH.pack(size) for size in (-1, -500, -(2**31), 0, 3, 9)),
    *(LENGTH.pack(size) for size in (2**31 - 1, 2**31 - 2, 0x7F00_0000)),
    b"SSH-2.0-OpenSSH\r\n",
    b"EHLO mail\r\n",
    b"it's",
    b"o'\"n",
]


async def test_garbage_is_logged_once_of_its_kind_whatever_size_it_has(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever could connect wrote a warning into the log with every four bytes."""

    async def story(rig: Rig) -> None:
        for _ in range(3):
            for sent in GARBAGE:
                reader, writer = await connect(rig)
                writer.write(sent)
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                with contextlib.suppress(ConnectionResetError):
                    await hang_up(writer)
        assert not rig.seen

    caplog.set_level(logging.INFO, "barnabas.net")
    await run(Rig(tls=None), executor, story)
    assert {line.levelno for line in caplog.records} == {logging.WARNING}
    small, large, text = caplog.messages
    assert re.fullmatch(
        r"Closed the connection of 127\.0\.0\.1:\d+ on CLIENTS: a frame of -1 bytes cannot hold a request header of at "
        r"least \d+",
        small,
    )
    assert f"a frame of {2**31 - 1} bytes is larger" in large
    assert "(the text 'SSH-')" in text


def test_another_number_or_text_in_a_reason_is_the_same_reason(caplog: pytest.LogCaptureFixture) -> None:
    connection = served_connection()
    log = RefusalLog(lambda: 0.0)
    for reason in ("byte 0xc3 at 5 of 'a'", "byte 0xff at -7 of 'it\\'s'", 'byte 0x00 at 123 of "it\'s"'):
        log.log_closed(connection, InvalidFrame(reason))
    assert caplog.messages == ["Closed the connection of 127.0.0.1:1 on PLAINTEXT: byte 0xc3 at 5 of 'a'"]
    log.log_closed(connection, InvalidFrame("bytes 0xc3 at 5 of 'a'"))
    assert len(caplog.messages) == 2


async def test_a_browser_on_a_listener_with_tls_is_said_to_speak_http(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture, tls_sides: TlsSides
) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(OTHER_PROTOCOLS["GET"][0])
        assert await reader.read() == b""
        await hang_up(writer)

    caplog.set_level(logging.INFO, "barnabas.net")
    await run(Rig(tls=tls_sides), executor, story)
    assert HTTP in caplog.text
