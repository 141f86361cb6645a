"""Requests of one connection: whole or in pieces, parked or overtaken, and the end of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import struct
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.model.errors import InvalidFrame
from barnabas.net import connection as connections
from barnabas.net.reply import HANG_UP, Answer, Parked
from tests.support.servers import Rig, answer, connect, frame, hang_up, read_answer, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from barnabas.net.connection import Connection

pytestmark = pytest.mark.usefixtures("transport")
"""Each test runs over plaintext and over TLS."""


async def test_pipelined_requests_are_answered_in_order(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        bodies = [f"request {n}".encode() for n in range(100)]
        writer.write(b"".join(map(frame, bodies)))
        assert [await read_answer(reader) for _ in bodies] == bodies
        await hang_up(writer)

    await run(Rig(), executor, story)


async def test_a_client_with_many_requests_at_once_lets_others_have_their_turn(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        other_reader, other_writer = await connect(rig)
        await until(lambda: len(rig.server.connections) == 2)
        bodies = [b"request %d" % n for n in range(3000)]
        writer.write(b"".join(map(frame, bodies)))
        other_writer.write(frame(b"other"))
        assert await read_answer(other_reader) == b"other"
        assert rig.seen.index(b"other") <= 2 * connections.REQUESTS_PER_TURN
        assert [await read_answer(reader) for _ in bodies] == bodies
        assert [body for body in rig.seen if body != b"other"] == bodies
        assert rig.server.budget.used == 0
        await hang_up(writer)
        await hang_up(other_writer)

    await run(Rig(), executor, story)


async def test_what_a_client_with_many_requests_sent_before_it_left_is_served(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        _, writer = await connect(rig)
        bodies = [b"request %d" % n for n in range(3000)]
        writer.write(b"".join(map(frame, bodies)))
        await hang_up(writer)
        await until(lambda: not rig.server.connections)
        assert rig.seen == bodies
        assert rig.server.budget.used == 0

    await run(Rig(lambda body: None), executor, story)


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_a_server_that_closes_does_not_wait_for_whoever_has_more_to_ask(
    executor: ThreadPoolExecutor, turns: int
) -> None:
    async def story(rig: Rig) -> None:
        _, writer = await connect(rig)
        many = 100_000  # enough for seconds
        writer.write(frame(b"request") * many)
        await until(lambda: len(rig.seen) >= turns * connections.REQUESTS_PER_TURN)
        await rig.server.close(grace=30)
        assert len(rig.seen) < many
        assert rig.server.budget.used == 0
        with contextlib.suppress(ConnectionResetError):  # what it has sent is not read any more
            await hang_up(writer)

    await run(Rig(), executor, story)


async def test_a_frame_that_comes_byte_by_byte_is_served_once(executor: ThreadPoolExecutor) -> None:
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

    await run(Rig(), executor, story)


async def test_large_frames_between_small_ones(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        bodies = [b"a", os.urandom(3_000_000), b"b" * 300_000, b"c"]
        for body in bodies:
            writer.write(frame(body))
        assert [await read_answer(reader) for _ in bodies] == bodies
        assert rig.server.budget.used == 0
        await hang_up(writer)

    await run(Rig(), executor, story)


async def test_a_parked_request_holds_back_the_next_unless_it_can_be_overtaken(executor: ThreadPoolExecutor) -> None:
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

    await run(Rig(lambda body: replies.get(body) or answer(body)), executor, story)


async def test_a_request_that_answers_an_earlier_one_of_its_connection_is_served_once(
    executor: ThreadPoolExecutor,
) -> None:
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

    await run(Rig(reply), executor, story)


async def test_what_waits_for_an_answer_is_served_when_whoever_gives_the_answer_is_done(
    executor: ThreadPoolExecutor,
) -> None:
    """Each might give another connection its answer, whose next request does so, and so on: deeper than Python goes."""
    parked = Parked()
    seen_meanwhile: list[bytes] = []

    async def story(rig: Rig) -> None:
        def reply(body: bytes) -> Answer | Parked:
            if body == b"parked":
                return parked
            if body == b"answers":
                parked.resolve(answer(b"given"))
                seen_meanwhile.extend(rig.seen)
            return answer(body)

        rig.reply = reply
        reader, writer = await connect(rig)
        writer.write(frame(b"parked") + frame(b"next"))
        await until(lambda: rig.seen == [b"parked"])
        other_reader, other_writer = await connect(rig)
        other_writer.write(frame(b"answers"))
        assert await read_answer(other_reader) == b"answers"
        assert [await read_answer(reader) for _ in range(2)] == [b"given", b"next"]
        assert seen_meanwhile == [b"parked", b"answers"]
        await hang_up(writer)
        await hang_up(other_writer)

    await run(Rig(), executor, story)


@dataclass
class HoldingRig(Rig):
    """Keeps the views of the frames that it served, as a request does whose answer comes later."""

    held: list[memoryview] = field(default_factory=list)

    def serve(self, connection: Connection, data: memoryview) -> Answer | Parked:
        self.held.append(data)
        return super().serve(connection, data)


async def test_an_inbox_grows_while_an_overtaken_request_still_looks_into_it(executor: ThreadPoolExecutor) -> None:
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

    await run(HoldingRig(lambda body: replies.get(body) or answer(body)), executor, story)


class Lease:
    """A file of which a part was to be sent."""

    fd = -1
    revoked = False
    released = 0

    def release(self) -> None:
        self.released += 1


class FilePart(NamedTuple):
    """That part."""

    file: Lease
    position: int = 0
    length: int = 10
    warm: bool = True


@pytest.mark.parametrize("kind", ["parked", "resolved", "file", "bytes"])
async def test_what_a_connection_is_answered_that_ended_meanwhile_is_let_go(
    executor: ThreadPoolExecutor, kind: str
) -> None:
    """It may end in the middle of its own request: that answers many, it is one of them, and its peer is gone."""
    parked, lease = Parked(on_abandon=lambda: None), Lease()
    if kind == "resolved":
        parked.resolve([FilePart(lease)])
    answers: dict[str, Answer | Parked] = {"file": [FilePart(lease)], "bytes": answer(b"x")}

    async def story(rig: Rig) -> None:
        def reply(body: bytes) -> Answer | Parked:
            for each in list(rig.server.connections):
                each.close()
            return answers.get(kind, parked)

        rig.reply = reply
        reader, writer = await connect(rig)
        writer.write(frame(b"first") + frame(b"second"))
        assert await reader.read() == b""
        assert rig.seen == [b"first"]
        assert parked.abandoned is (kind in ("parked", "resolved"))
        assert lease.released == (kind in ("file", "resolved"))
        await hang_up(writer)

    await run(Rig(), executor, story)


async def test_a_client_that_leaves_abandons_what_is_parked(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ABANDON_SECONDS", 0.01)
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

    await run(Rig(lambda body: parked), executor, story)


async def test_a_connection_that_ended_with_a_parked_request_is_freed_without_the_collector(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has lived long is not looked at by the collector any more, so it must not be left to it."""
    monkeypatch.setattr(connections, "ABANDON_SECONDS", 0.01)
    gc.collect()

    def number() -> int:
        return sum(isinstance(each, connections.Connection) for each in gc.get_objects())

    def reply(body: bytes) -> Parked:
        inner, outer = Parked(on_abandon=lambda: None), Parked()
        outer.follow(inner)
        return outer

    async def story(rig: Rig) -> None:
        before = number()
        for wanted in range(1, 4):
            _, writer = await connect(rig)
            writer.write(frame(b"wait"))
            await until(lambda wanted=wanted: len(rig.seen) == wanted)  # type: ignore[misc]
            await hang_up(writer)
            await until(lambda: not rig.server.connections)
        await until(lambda: number() == before)

    gc.disable()
    try:
        await run(Rig(reply), executor, story)
    finally:
        gc.enable()


def test_a_parked_answer_that_was_given_lets_go_of_whoever_waited_for_it() -> None:
    """So that handlers, which know what they parked, and connections are freed without the collector."""

    class Waiting:
        def __init__(self) -> None:
            self.parked = Parked(on_abandon=self.leave)
            self.outer = Parked()
            self.outer.notify = self.leave
            self.outer.follow(self.parked)

        def leave(self) -> None:
            pass

    gc.disable()
    try:
        waiting = Waiting()
        freed = weakref.ref(waiting)
        waiting.parked.resolve(b"answer")
        assert waiting.outer.answer == b"answer"
        del waiting
        assert freed() is None
    finally:
        gc.enable()


async def test_what_a_client_sent_before_it_left_is_served_though_a_request_is_parked(
    executor: ThreadPoolExecutor,
) -> None:
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

    await run(rig, executor, story)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that closed their end are gone at once."""
    monkeypatch.setattr(connections, "ABANDON_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
async def test_a_client_that_leaves_with_more_requests_on_the_way_abandons_what_is_parked(
    executor: ThreadPoolExecutor,
) -> None:
    async def story(rig: Rig) -> None:
        _, writer = await connect(rig)
        writer.write(frame(b"wait 1"))
        await until(lambda: len(rig.seen) == 1)
        writer.write(frame(b"wait 2") + frame(b"do") + frame(b"wait 3"))
        await until(lambda: not any(each._reading for each in rig.server.connections))
        await hang_up(writer)
        await until(lambda: not rig.server.connections)
        assert rig.seen == [b"wait 1", b"wait 2", b"do", b"wait 3"]
        assert abandoned == [b"wait 1", b"wait 2", b"wait 3"]
        assert rig.server.budget.used == 0

    abandoned: list[bytes] = []

    def reply(body: bytes) -> Answer | Parked:
        return answer(body) if body == b"do" else Parked(on_abandon=lambda: abandoned.append(body))

    await run(Rig(reply), executor, story)


@pytest.mark.usefixtures("impatient")
async def test_a_client_that_leaves_with_a_thousand_answers_due_is_noticed(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        _, writer = await connect(rig)
        writer.write(frame(b"append") * (connections.MOST_PARKED + 5))
        await until(lambda: len(rig.seen) == connections.MOST_PARKED)
        writer.write(frame(b"append"))
        await hang_up(writer)
        await until(lambda: not rig.server.connections)
        assert len(rig.seen) == connections.MOST_PARKED + 6

    await run(Rig(lambda _: Parked(overtakable=True)), executor, story)


@pytest.mark.usefixtures("impatient")
async def test_work_under_way_comes_before_what_a_client_that_left_sent_after_it(executor: ThreadPoolExecutor) -> None:
    working = Parked()

    async def story(rig: Rig) -> None:
        _, writer = await connect(rig)
        writer.write(frame(b"work") + frame(b"after"))
        await until(lambda: len(rig.seen) == 1)
        await hang_up(writer)
        await until(lambda: any(each._is_gone for each in rig.server.connections))
        assert rig.seen == [b"work"]
        working.resolve(answer(b"nobody"))
        await until(lambda: not rig.server.connections)
        assert rig.seen == [b"work", b"after"]

    await run(Rig(lambda body: working if body == b"work" else None), executor, story)


@pytest.mark.usefixtures("impatient")
async def test_what_only_waits_after_some_work_is_abandoned_by_a_client_that_left(executor: ThreadPoolExecutor) -> None:
    working = Parked()
    abandoned: list[bool] = []

    async def story(rig: Rig) -> None:
        _, writer = await connect(rig)
        writer.write(frame(b"work") + frame(b"after"))
        await until(lambda: len(rig.seen) == 1)
        await hang_up(writer)
        await until(lambda: any(each._is_gone for each in rig.server.connections))
        working.follow(Parked(on_abandon=lambda: abandoned.append(True)))
        await until(lambda: not rig.server.connections)
        assert rig.seen == [b"work", b"after"]
        assert abandoned == [True]

    await run(Rig(lambda body: working if body == b"work" else None), executor, story)


def test_what_follows_an_answer_that_nobody_waits_for_is_abandoned() -> None:
    left, abandoned = Parked(), list[bool]()
    left.abandon()
    left.follow(Parked(on_abandon=lambda: abandoned.append(True)))
    assert abandoned == [True]


@pytest.mark.parametrize("transport", ["plaintext"], indirect=True)  # TLS: test_tls
async def test_a_client_that_closes_its_end_and_reads_on_is_answered(executor: ThreadPoolExecutor) -> None:
    replies = {b"overtakable": Parked(overtakable=True), b"first": Parked(), b"second": Parked()}

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(b"".join(map(frame, replies)))
        writer.write_eof()
        await until(lambda: len(rig.seen) == 2)
        for body, parked in replies.items():
            parked.resolve(answer(body))
        assert [await read_answer(reader) for _ in replies] == list(replies)
        assert await reader.read() == b""
        await until(lambda: not rig.server.connections)
        await hang_up(writer)

    await run(Rig(lambda body: replies[body]), executor, story)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("transport", ["plaintext"], indirect=True)  # TLS: test_tls
async def test_a_client_that_closed_its_end_has_time_to_read_what_was_answered(executor: ThreadPoolExecutor) -> None:
    large = os.urandom(5_000_000)

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"large") + frame(b"more"))
        writer.write_eof()
        await until(lambda: any(each._leaving for each in rig.server.connections))
        await asyncio.sleep(0.05)
        assert await read_answer(reader) == large
        assert await read_answer(reader) == b"more"
        await hang_up(writer)

    await run(Rig(lambda body: answer(large if body == b"large" else body)), executor, story)


async def test_what_follows_an_answer_that_may_be_overtaken_may_be_overtaken(executor: ThreadPoolExecutor) -> None:
    appended, working = Parked(overtakable=True), Parked()
    replies: dict[bytes, Answer | Parked] = {b"work": working, b"next": answer(b"next")}

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"work") + frame(b"next"))
        await until(lambda: rig.seen == [b"work"])
        working.follow(appended)
        await until(lambda: rig.seen == [b"work", b"next"])
        appended.resolve(answer(b"work"))
        assert [await read_answer(reader) for _ in range(2)] == [b"work", b"next"]
        await hang_up(writer)

    await run(Rig(lambda body: replies[body]), executor, story)


async def test_hang_up_comes_after_earlier_responses(executor: ThreadPoolExecutor) -> None:
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

    await run(Rig(lambda body: replies[body]), executor, story)


async def test_nothing_is_served_after_a_hang_up(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"1") + frame(b"end") + frame(b"2"))
        assert await read_answer(reader) == b"1"
        assert await reader.read() == b""
        assert rig.seen == [b"1", b"end"]
        await hang_up(writer)

    await run(Rig(lambda body: HANG_UP if body == b"end" else answer(body)), executor, story)


async def test_what_came_before_garbage_is_answered(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"1") + struct.pack(">i", -7) + b"x" * 20)
        assert await read_answer(reader) == b"1"
        assert await reader.read() == b""
        await hang_up(writer)

    await run(Rig(), executor, story)


@pytest.mark.parametrize("error", [InvalidFrame("not a request"), TypeError("a mistake of ours")], ids=repr)
async def test_a_handler_that_refuses_a_frame_ends_that_connection(
    executor: ThreadPoolExecutor, error: Exception
) -> None:
    def refuse(body: bytes) -> Answer:
        raise error

    async def story(rig: Rig) -> None:
        reader, writer = await connect(rig)
        writer.write(frame(b"?"))
        assert await reader.read() == b""
        assert not rig.server.connections
        await hang_up(writer)

    await run(Rig(refuse), executor, story)
