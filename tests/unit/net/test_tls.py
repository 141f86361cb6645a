"""TLS under connections: records, files, and clients that do what they should not; see also test_tls_handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.net import tls
from barnabas.net.reply import Parked
from tests.support.servers import (
    Rig,
    TlsSides,
    answer,
    blocking,
    connect,
    frame,
    hang_up,
    in_thread,
    read_answer,
    run,
    tls_rig,
)
from tests.support.tls_records import ForgedRecords
from tests.support.waiting import until

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from barnabas.net.reply import Answer

pytestmark = pytest.mark.slow


class LogFile:
    """A leased file, as slices have them."""

    def __init__(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self.fd = os.open(path, os.O_RDONLY)
        self.revoked = False
        self.leases = 0

    def release(self) -> None:
        self.leases -= 1


class FileSlice:
    """A slice of a LogFile."""

    def __init__(self, file: LogFile, position: int, length: int, warm: bool = False) -> None:
        self.file, self.position, self.length, self.warm = file, position, length, warm
        file.leases += 1


async def test_only_a_client_that_sends_much_is_given_a_large_buffer(
    executor: ThreadPoolExecutor, tls_sides: TlsSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL keeps the memory for what it got at once, as long as the connection lasts."""
    asked: list[tuple[int, int]] = []
    pull = tls.TlsConnection._pull

    def noted(self: tls.TlsConnection, size: int = tls.RECEIVED) -> int:
        count = pull(self, size)
        asked.append((size, count))
        return count

    monkeypatch.setattr(tls.TlsConnection, "_pull", noted)

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        for _ in range(3):
            writer.write(frame(b"small"))
            await read_answer(reader)
        assert {size for size, _ in asked} == {tls.RECEIVED}
        asked.clear()
        large = os.urandom(400_000)
        writer.write(frame(large))
        assert await read_answer(reader) == large
        sizes = {size for size, _ in asked}
        assert min(sizes) == tls.RECEIVED
        assert max(sizes) == tls.RECEIVED_MORE
        assert all(count <= size for size, count in asked)
        await hang_up(writer)

    await run(tls_rig(tls_sides), executor, story)


@pytest.mark.parametrize("warm", [True, False])
async def test_files_go_out_encrypted_and_never_by_sendfile(
    executor: ThreadPoolExecutor,
    tls_sides: TlsSides,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    warm: bool,
) -> None:
    def refuse(*_: object) -> int:
        raise AssertionError("sendfile would send what is not encrypted")

    monkeypatch.setattr(os, "sendfile", refuse)
    data = os.urandom(3_000_000)
    file = LogFile(tmp_path / "log", data)
    head = struct.pack(">i", len(data) + 8) + b"head"

    def reply(body: bytes) -> Answer:
        return [head, FileSlice(file, 0, 1_000_000, warm), FileSlice(file, 1_000_000, 2_000_000, warm), b"tail"]

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        for _ in range(3):
            writer.write(frame(b"fetch"))
            assert await read_answer(reader) == b"head" + data + b"tail"
        assert file.leases == 0
        await hang_up(writer)

    await run(tls_rig(tls_sides, reply), executor, story)


async def test_what_is_not_in_memory_is_read_by_a_thread(
    executor: ThreadPoolExecutor, tls_sides: TlsSides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(500_000)
    file = LogFile(tmp_path / "log", data)
    read_at, cold, warmed = tls._read_at, [True], []

    def sometimes_cold(descriptor: int, room: memoryview, position: int, flags: int) -> int:
        if flags and cold[0]:
            raise BlockingIOError
        return read_at(descriptor, room, position, flags)

    def warm_up(self: tls.TlsOutbox) -> None:
        warmed.append(1)
        self._warmed = True

    monkeypatch.setattr(tls, "_read_at", sometimes_cold)
    monkeypatch.setattr(tls.TlsOutbox, "warm_up", warm_up)

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"fetch"))
        assert await read_answer(reader) == data
        assert warmed
        await hang_up(writer)

    await run(
        tls_rig(tls_sides, lambda _: [struct.pack(">i", len(data)), FileSlice(file, 0, len(data))]), executor, story
    )


async def test_a_truncated_file_closes_the_connection(
    executor: ThreadPoolExecutor, tls_sides: TlsSides, tmp_path: Path
) -> None:
    file = LogFile(tmp_path / "log", b"x" * 1000)

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        file.revoked = True
        writer.write(frame(b"fetch"))
        assert await reader.read() == struct.pack(">i", 1000)[:0]
        assert file.leases == 0
        await hang_up(writer)

    await run(tls_rig(tls_sides, lambda _: [FileSlice(file, 0, 1000)]), executor, story)


async def test_a_client_that_does_not_read_is_not_read_either(
    executor: ThreadPoolExecutor, tls_sides: TlsSides
) -> None:
    large = answer(b"x" * 2_000_000)

    async def story(rig: Rig) -> None:
        def work() -> bytes:
            with blocking(rig) as client:
                client.sendall(frame(b"a") * 50)
                time.sleep(0.3)  # the test is about a client that does nothing for a while
                seen = len(rig.seen)
                received = 0
                while received < 50 * len(large):
                    received += len(client.recv(1 << 20))
                return b"%d" % seen

        assert int(await in_thread(work)) < 50
        assert len(rig.seen) == 50

    await run(tls_rig(tls_sides, lambda _: large), executor, story)


async def test_small_records_large_frames_and_requests_behind_parked_ones(
    executor: ThreadPoolExecutor, tls_sides: TlsSides
) -> None:
    parked = Parked()

    async def story(rig: Rig) -> None:
        def work() -> bytes:
            with blocking(rig) as client:
                body = os.urandom(700_000)
                sent = frame(body)
                for start in range(0, len(sent), 997):
                    client.sendall(sent[start : start + 997])
                received = b""
                while len(received) < len(body) + 4:
                    received += client.recv(1 << 20)
                assert received[4:] == body
                client.sendall(frame(b"park"))
                for byte in frame(b"behind") + frame(b"last"):
                    client.sendall(bytes([byte]))
                loop.call_soon_threadsafe(parked.resolve, answer(b"parked"))
                wanted = answer(b"parked") + answer(b"behind") + answer(b"last")
                received = b""
                while len(received) < len(wanted):
                    received += client.recv(1000)
                return received

        loop = asyncio.get_running_loop()
        assert await in_thread(work) == answer(b"parked") + answer(b"behind") + answer(b"last")

    await run(tls_rig(tls_sides, lambda body: parked if body == b"park" else answer(body)), executor, story)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_are_spoken(executor: ThreadPoolExecutor, version: ssl.TLSVersion) -> None:
    sides = TlsSides.made()
    sides.client.minimum_version = sides.client.maximum_version = version

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"hello"))
        assert await read_answer(reader) == b"hello"
        await hang_up(writer)

    await run(tls_rig(sides), executor, story)


async def test_a_client_that_says_farewell_and_waits_is_told_so_too(
    executor: ThreadPoolExecutor, tls_sides: TlsSides
) -> None:
    async def story(rig: Rig) -> None:
        def work() -> bytes:
            client = blocking(rig)
            client.sendall(frame(b"park"))
            client.unwrap().close()  # waits for the other side's farewell
            return b"done"

        assert await in_thread(work) == b"done"
        await until(lambda: not rig.server.connections)
        assert parked.abandoned

    parked = Parked(on_abandon=lambda: None)
    await run(tls_rig(tls_sides, lambda _: parked), executor, story)


async def test_a_client_that_sends_no_data_for_long_is_disconnected(
    executor: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Key updates without end, also while one of its requests is parked, or not yet whole."""
    sides = TlsSides.made()
    begun = frame(bytes(500_000))[:1_000]
    for number, before in enumerate((b"", frame(b"park"), begun)):
        keys = tmp_path / str(number)
        sides.client.keylog_filename = str(keys)

        async def story(rig: Rig, before: bytes = before, keys: Path = keys) -> None:
            def work() -> bytes:
                with blocking(rig) as client, socket.socket(fileno=client.detach()) as raw:
                    records = ForgedRecords(keys)
                    raw.settimeout(20)
                    raw.sendall(records.record(before))
                    with contextlib.suppress(OSError):  # whatever the system says of a connection that is closed
                        for _ in range(100):
                            raw.sendall(b"".join(records.key_update() for _ in range(200)))
                        raw.shutdown(socket.SHUT_WR)
                        while raw.recv(1 << 16):
                            pass
                return b""

            await in_thread(work)
            await until(lambda: not rig.server.connections)

        caplog.clear()
        await run(tls_rig(sides, lambda _: Parked()), executor, story)
        assert "came without a byte of data" in caplog.text
