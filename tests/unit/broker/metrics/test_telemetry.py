"""Metrics of clients on their way to a receiver: what is taken, and what nobody can make the broker hold."""

from __future__ import annotations

import asyncio
import threading
from email.message import Message
from typing import TYPE_CHECKING, Any, cast
from urllib.error import HTTPError
from uuid import UUID

import cramjam
import pytest

from barnabas.broker.metrics import telemetry
from barnabas.broker.metrics.telemetry import EXPANSION, PUSH_BYTES, SENDERS, TelemetryReceiver
from barnabas.broker.serving.caller import Caller, Session
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ConfigError, ErrorCode
from barnabas.protocol.records.compression import Codec
from tests.support.collector import Collector, running_collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.broker.settings import Settings

CLIENT = UUID(int=5)
CALLER = Caller(
    listener="PLAINTEXT",
    address=("127.0.0.1", 1),
    client_id="app\r\nX-Evil: 1",
    session=Session(software="librdkafka 2.16.0"),
)


def a_receiver(endpoint: str = "http://127.0.0.1:1/v1/metrics", **settings: str) -> TelemetryReceiver:
    config = BrokerConfig.load({"log.dirs": "/nowhere", "telemetry.otlp.endpoint": endpoint, **settings})
    return TelemetryReceiver(cast("Settings", config))


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as found:
        yield found


async def test_metrics_are_sent_on_as_they_came_with_their_client(collector: Collector) -> None:
    receiver = a_receiver(collector.url)
    receiver.start()
    receiver.take(CLIENT, CALLER, b"metrics")
    async with asyncio.timeout(10):
        while not receiver.sent:
            await asyncio.sleep(0.01)
    await receiver.stop()
    assert collector.bodies == [b"metrics"]
    assert collector.headers[0]["X-Kafka-Client-Instance-Id"] == str(CLIENT)
    assert collector.headers[0]["X-Kafka-Client-Id"] == "app__X-Evil:_1"
    assert "X-Evil" not in collector.headers[0]
    assert collector.headers[0]["X-Kafka-Client-Address"] == "127.0.0.1"
    assert collector.headers[0]["X-Kafka-Client-Software"] == "librdkafka 2.16.0"
    assert "Authorization" not in collector.headers[0]


async def test_the_receivers_token_goes_to_it_and_to_nobody_that_it_names(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.metrics.telemetry.PAUSE_SECONDS", 0)

    async def send_elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {collector.url}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    heads: list[bytes] = []
    async with await asyncio.start_server(send_elsewhere, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        receiver = a_receiver(f"http://{host}:{port}/v1/metrics", **{"telemetry.otlp.token": "secret"})
        receiver.start()
        receiver.take(CLIENT, CALLER, b"metrics")
        async with asyncio.timeout(10):
            while not receiver.dropped:
                await asyncio.sleep(0.01)
        await receiver.stop()
    assert b"Authorization: Bearer secret" in heads[0]
    assert collector.headers == []


def test_a_token_that_no_header_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"telemetry\.otlp\.token"):
        a_receiver(**{"telemetry.otlp.token": "a\nX-Evil: 1"})


async def test_a_receiver_that_is_away_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    receiver = a_receiver()
    receiver.start()
    receiver.take(CLIENT, CALLER, b"metrics")
    async with asyncio.timeout(10):
        while not receiver.dropped:
            await asyncio.sleep(0.01)
    await receiver.stop()
    assert "cannot be sent" in caplog.text


async def test_a_push_that_the_receiver_finds_wrong_holds_up_no_other(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client's pushes that were refused kept those of a quarter of all clients, and each was warned of again."""
    monkeypatch.setattr(telemetry, "PAUSE_SECONDS", 3600.0)
    collector.refuse = (b"bad", 400)
    receiver = a_receiver(collector.url)
    receiver.start()
    for _ in range(3):
        receiver.take(CLIENT, CALLER, b"bad")
        receiver.take(CLIENT, CALLER, b"good")
    async with asyncio.timeout(30):
        while receiver.sent < 3:
            await asyncio.sleep(0.01)
        assert (receiver.failed, caplog.text.count("cannot be sent")) == (3, 1)
        collector.refuse = (b"bad", 429)
        for push in (b"bad", b"good"):
            receiver.take(CLIENT, CALLER, push)
        while receiver.failed < 4:
            await asyncio.sleep(0.01)
    assert telemetry._is_refused(HTTPError("", 404, "", Message(), None))
    for code in (302, 429, 500, 503):
        assert not telemetry._is_refused(HTTPError("", code, "", Message(), None))
    await receiver.stop()
    assert receiver.sent == 3, "it has too much to do, and is left in peace"


async def test_a_receiver_that_answers_garbage_does_not_end_the_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.metrics.telemetry.PAUSE_SECONDS", 0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\nmetrics")
        writer.write(b"what is this\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        receiver = a_receiver(f"http://{host}:{port}/v1/metrics")
        receiver.start()
        for _ in range(2):
            receiver.take(CLIENT, CALLER, b"metrics")
        async with asyncio.timeout(10):
            while receiver.dropped < 2:
                await asyncio.sleep(0.01)
        await receiver.stop()


async def test_what_waits_for_the_receiver_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where pushes are small: their headers count."""
    monkeypatch.setattr(telemetry, "MOST_WAITING", 3 * (30 + PUSH_BYTES) + 29)
    receiver = a_receiver()
    for _ in range(10):
        receiver.take(CLIENT, CALLER, b"x" * 30)
    assert (receiver.taken, receiver.without_room, receiver.dropped) == (10, 7, 7)
    assert receiver.waiting_bytes == 3 * (30 + PUSH_BYTES)


async def test_a_receiver_that_is_slow_gets_several_at_a_time_and_those_of_one_client_in_order() -> None:
    """One client after the other was sent to it, in threads that the broker needs for other things."""
    open_now = most = 0
    bodies: list[bytes] = []
    release = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        bodies.append(await reader.readexactly(length))
        open_now += 1
        most = max(most, open_now)
        await release.wait()
        open_now -= 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(30):
        host, port = server.sockets[0].getsockname()
        receiver = a_receiver(f"http://{host}:{port}/v1/metrics")
        receiver.start()
        for number in range(3):
            for client in range(2 * SENDERS):
                receiver.take(UUID(int=client), CALLER, b"%d of %d" % (number, client))
        while most < SENDERS:
            await asyncio.sleep(0.01)
        names = {thread.name for thread in threading.enumerate()}
        assert "barnabas-telemetry" in names
        assert most == SENDERS and receiver.sent == 0
        release.set()
        while receiver.sent < 6 * SENDERS:
            await asyncio.sleep(0.01)
        await receiver.stop()
    assert (receiver.waiting_bytes, receiver.dropped, most) == (0, 0, SENDERS)
    for client in range(2 * SENDERS):
        assert [each for each in bodies if each.endswith(b" %d" % client)] == [
            b"%d of %d" % (n, client) for n in range(3)
        ]


@pytest.mark.parametrize(
    ("codec", "compress"),
    [
        (Codec.GZIP, cramjam.gzip.compress),
        (Codec.LZ4, cramjam.lz4.compress),
        (Codec.ZSTD, cramjam.zstd.compress),
    ],
)
def test_a_bomb_is_too_large_and_not_unpacked(codec: Codec, compress: Any) -> None:
    receiver = a_receiver(**{"telemetry.max.bytes": "100000"})
    bomb = bytes(compress(bytes(EXPANSION * 100_000 + 1)))
    assert len(bomb) < 100_000
    assert receiver.unpack(codec, bomb) is ErrorCode.telemetry_too_large
    assert receiver.unpack(codec, bytes(compress(b"metrics"))) == b"metrics"


def test_what_cannot_be_read_is_refused() -> None:
    receiver = a_receiver(**{"telemetry.max.bytes": "100"})
    assert receiver.unpack(Codec.NONE, b"x" * 101) is ErrorCode.telemetry_too_large
    assert receiver.unpack(Codec.NONE, b"x") == b"x"
    assert receiver.unpack(Codec.ZSTD, b"no zstd") is ErrorCode.invalid_record
    assert receiver.unpack(99, b"x") is ErrorCode.unsupported_compression_type


def test_an_endpoint_is_a_url() -> None:
    with pytest.raises(ConfigError, match=r"telemetry\.otlp\.endpoint"):
        a_receiver("localhost:4318")
