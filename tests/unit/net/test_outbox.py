"""Answers on their way out: bytes and slices of files, and clients that do not read them."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import tempfile
import tracemalloc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.net.outbox import COPIED, MOST_PER_TURN, SMALL, Broken, Outbox, Progress
from barnabas.net.reply import Parked
from tests.support.servers import Rig, answer, connect, frame, hang_up, read_answer, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import ThreadPoolExecutor


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


def test_a_parked_answer_gives_its_leases_back_once() -> None:
    file = OpenFile(-1)
    parked = Parked()
    parked.resolve([b"head", Piece(file, 0, 1)])
    parked.abandon()
    parked.abandon()
    assert file.leases == 0


class Roomy:
    """A socket that takes what it is given, or so many bytes of it at a time."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.most = most
        self.taken: list[int] = []

    def fileno(self) -> int:
        return -1

    def send(self, data: bytes, flags: int = 0) -> int:
        return self.take(len(data))

    def take(self, size: int) -> int:
        self.taken.append(min(size, self.most))
        return self.taken[-1]


def outbox_into(sock: Roomy, monkeypatch: pytest.MonkeyPatch, *parts: Any) -> Outbox:
    monkeypatch.setattr(os, "sendfile", lambda out, file, position, count: sock.take(count))
    outbox = Outbox(cast("socket.socket", sock))
    outbox.put(parts)
    return outbox


def test_an_answer_of_a_megabyte_goes_out_whole_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    sock, file = Roomy(), OpenFile(-1)
    outbox = outbox_into(sock, monkeypatch, b"head", Piece(file, 0, MOST_PER_TURN), b"end")
    assert outbox.send() is Progress.DONE
    assert sock.taken == [4, MOST_PER_TURN, 3]
    assert file.leases == 0


def test_after_a_megabyte_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    sock, file = Roomy(), OpenFile(-1, leases=2)
    pieces = Piece(file, 0, 3 * MOST_PER_TURN), Piece(file, 0, 10)
    outbox = outbox_into(sock, monkeypatch, b"head", pieces[0], b"middle", pieces[1], b"end")
    assert [outbox.send() for _ in range(4)] == [Progress.BLOCKED] * 3 + [Progress.DONE]
    assert sock.taken == [4, *[MOST_PER_TURN] * 3, 6, 10, 3]


def test_a_socket_that_takes_only_a_part_is_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sock = Roomy(most=1000)
    outbox = outbox_into(sock, monkeypatch, b"head", Piece(OpenFile(-1), 0, COPIED + 1), b"end")
    assert outbox.send() is Progress.BLOCKED
    assert sock.taken == [4, 1000]


@pytest.fixture
def stored() -> Iterator[tuple[OpenFile, bytes]]:
    """A file, and what is in it."""
    content = os.urandom(2 * COPIED)
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        yield OpenFile(file.fileno()), content


def test_an_answer_that_is_not_large_goes_out_in_one_call(
    stored: tuple[OpenFile, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = stored
    for size in (SMALL, COPIED):
        sock, file.leases = Roomy(), 2
        half = size // 2
        outbox = outbox_into(sock, monkeypatch, b"hea", Piece(file, 7, half), Piece(file, 9, size - half - 4), b"d")
        assert outbox.send() is Progress.DONE
        assert sock.taken == [size]
        assert (file.leases, bool(outbox)) == (0, False)


def test_what_is_not_known_to_be_in_memory_is_not_copied(
    stored: tuple[OpenFile, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = stored
    sock = Roomy()
    outbox = outbox_into(sock, monkeypatch, b"head", Piece(file, 0, 2 * SMALL, warm=False))
    assert outbox.send() is Progress.DONE
    assert sock.taken == [4, 2 * SMALL]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_socket_does_not_take_of_a_copy_is_sent_from_the_file(stored: tuple[OpenFile, bytes], seed: int) -> None:
    """Whatever else is answered meanwhile, and wherever a piece ended."""
    file, content = stored
    dice = random.Random(seed)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, dice.choice([4_096, 20_000, 60_000]))
        ours.setblocking(False)
        outbox = Outbox(ours)
        expected = received = b""
        file.leases = 0
        for _ in range(12):
            if dice.random() < 0.3:
                said = dice.randbytes(dice.choice([1, 5_000]))
                outbox.add(said)
                expected += said
            parts: list[Any] = []
            for _ in range(dice.randrange(1, 4)):
                position, length = dice.randrange(COPIED), dice.choice([1, 100, SMALL, 40_000])
                parts += [dice.randbytes(dice.choice([1, 30])), Piece(file, position, length)]
                expected += parts[-2] + content[position : position + length]
                file.leases += 1
            outbox.put([*parts, b"end"])
            expected += b"end"
            for _ in range(dice.randrange(5)):
                if outbox:
                    outbox.send()
                received += theirs.recv(dice.choice([1, 3_000, 100_000])) if len(received) < len(expected) else b""
        while len(received) < len(expected):
            if outbox:
                outbox.send()
            received += theirs.recv(1 << 20)
        assert received == expected
        assert not outbox
        assert file.leases == 0


def test_a_copy_that_the_socket_does_not_take_is_not_kept(stored: tuple[OpenFile, bytes]) -> None:
    """Clients that do not read cost no more than the leases."""
    file, _ = stored
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        ours.setblocking(False)
        outbox = Outbox(ours)
        outbox.put([b"head", Piece(file, 0, COPIED - 4)])
        tracemalloc.start()
        assert outbox.send() is Progress.BLOCKED
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 1_000
        assert file.leases == 1


@pytest.mark.parametrize("size", [100, COPIED - 4, 2 * COPIED - 4])
def test_an_answer_from_a_truncated_file_is_not_sent(stored: tuple[OpenFile, bytes], size: int) -> None:
    file, _ = stored
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        file.revoked = True
        outbox = Outbox(ours)
        with pytest.raises(Broken):
            outbox.put([b"head", Piece(file, 0, size)])
            outbox.send()
        outbox.clear()
        assert file.leases == 0


@pytest.mark.parametrize("size", [100, COPIED - 4])
def test_a_file_that_is_shorter_than_promised_breaks_the_connection(stored: tuple[OpenFile, bytes], size: int) -> None:
    file, content = stored
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        outbox = Outbox(ours)
        with pytest.raises(Broken):
            outbox.put([b"head", Piece(file, len(content) - size + 1, size)])
            outbox.send()
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        outbox.clear()
        assert file.leases == 0


def test_a_peer_that_closed_breaks_the_connection_and_gives_leases_back(stored: tuple[OpenFile, bytes]) -> None:
    file, _ = stored
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        ours.setblocking(False)
        outbox = Outbox(ours)
        outbox.put([b"head", Piece(file, 0, COPIED - 4)])
        with pytest.raises(Broken):
            outbox.send()
        outbox.clear()
        assert file.leases == 0


async def test_a_client_that_never_reads_is_not_read_either(executor: ThreadPoolExecutor) -> None:
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

    await run(Rig(lambda body: big), executor, story)


async def test_file_slices_go_out_between_bytes(executor: ThreadPoolExecutor) -> None:
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
        await run(Rig(lambda body: parts if body == b"fetch" else answer(body)), executor, story)


async def test_a_small_answer_goes_out_in_one_piece(executor: ThreadPoolExecutor) -> None:
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

        await run(Rig(lambda body: parts), executor, story)


async def test_of_an_answer_that_is_not_small_nothing_is_read(
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
        await run(Rig(lambda body: parts), executor, story)


async def test_truncation_below_a_response_closes_the_connection(executor: ThreadPoolExecutor) -> None:
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

        await run(Rig(lambda body: parts), executor, story)


class Picky(Roomy):
    """A socket that keeps what it took."""

    def __init__(self, *takes: int) -> None:
        super().__init__()
        self.takes = list(takes)
        self.received = b""

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        taken = bytes(data[: self.takes.pop(0) if self.takes else len(data)])
        self.received += taken
        return len(taken)


def test_an_answer_of_bytes_that_the_socket_takes_in_parts_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Fetch of hundreds of idle partitions. It was sent from its first byte again, and then for ever."""
    data = random.Random(1).randbytes(3 * SMALL)
    sock = Picky(1000, 2 * SMALL, 5)
    outbox = outbox_into(sock, monkeypatch, data)
    turns = [outbox.send() for _ in range(4)]
    assert turns == [Progress.BLOCKED, Progress.BLOCKED, Progress.BLOCKED, Progress.DONE]
    assert sock.received == data


def test_an_answer_of_bytes_leaves_nothing_behind_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = random.Random(2).randbytes(3 * SMALL), random.Random(3).randbytes(20 * SMALL)
    sock = Picky(len(first), 4000)
    outbox = outbox_into(sock, monkeypatch, first)
    assert outbox.send() is Progress.DONE
    outbox.add(second)
    assert [outbox.send(), outbox.send()] == [Progress.BLOCKED, Progress.DONE]
    assert sock.received == first + second


@pytest.mark.parametrize("seed", range(40))
def test_answers_of_all_kinds_go_out_once_and_in_order(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever the socket takes at a time."""
    chance = random.Random(seed)
    with tempfile.TemporaryFile() as file:
        content = chance.randbytes(4 * COPIED)
        file.write(content)
        file.flush()
        sock = Picky()
        leased = OpenFile(file.fileno(), leases=0)

        def sendfile(_: int, fd: int, position: int, count: int) -> int:
            return sock.send(os.pread(fd, count, position))

        monkeypatch.setattr(os, "sendfile", sendfile)
        outbox = Outbox(cast("socket.socket", sock))
        wanted = b""
        for _ in range(30):
            for _ in range(chance.randrange(3)):
                if chance.random() < 0.4:
                    data = chance.randbytes(chance.choice((1, 100, SMALL, 2 * SMALL, COPIED, 2 * COPIED)))
                    outbox.add(data)
                    wanted += data
                    continue
                parts: list[Any] = []
                for _ in range(chance.randint(1, 4)):
                    length = chance.choice((1, 500, SMALL // 2, 2 * SMALL, COPIED // 3, COPIED))
                    position = chance.randrange(len(content) - length)
                    data = content[position : position + length]
                    wanted += data
                    if chance.random() < 0.5:
                        parts.append(data)
                    else:
                        leased.leases += 1
                        parts.append(Piece(leased, position, length))
                outbox.put(parts)
            sock.takes = [chance.choice((1, 1000, SMALL, COPIED, 1 << 30)) for _ in range(chance.randrange(4))]
            outbox.send()
        turns = 0
        while outbox:
            outbox.send()
            turns += 1
            assert turns < 100
        assert sock.received == wanted
        assert leased.leases == 0
