"""All brokers are asked at once, and one that hangs keeps nobody waiting for what the others tell."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread

from barnabas.clients.errors import BrokerSilent, BrokerUnreachable
from barnabas.clients.wire.connection import Node
from barnabas.console.cluster import lines as module
from barnabas.console.cluster.cached_answer import CachedAnswer
from barnabas.console.cluster.lines import BrokerLines

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

GOOD, HUNG, BROKEN = (Node(number, "host", 9092 + number) for number in range(3))
SECONDS: Final = 20.0


class OpenedConnection:
    """One that remembers whether it was closed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_closed = False

    def __exit__(self, *_: object) -> None:
        self.is_closed = True


class CountedConnections:
    """Connections to addresses, without brokers."""

    timeout = SECONDS

    def __init__(self) -> None:
        self.opened: list[OpenedConnection] = []

    def open(self, address: str) -> OpenedConnection:
        self.opened.append(OpenedConnection(address))
        return self.opened[-1]


def raises() -> str:
    raise BrokerUnreachable("nobody is there")


def made(patience: float = 0.05) -> tuple[BrokerLines[str], CountedConnections]:
    connections = CountedConnections()
    return BrokerLines(cast("Any", connections), patience), connections


def questions(hangs: Callable[[], str]) -> dict[Node, Callable[[Any], str]]:
    return {GOOD: lambda _: "fine", HUNG: lambda _: hangs(), BROKEN: lambda _: raises()}


def test_one_that_hangs_is_waited_for_once_until_it_has_answered() -> None:
    """Brokers were asked one after the other, each for eight seconds, by everybody who looked at a page."""
    answered = threading.Event()

    def hangs() -> str:
        answered.wait(SECONDS)
        return "late"

    async def run() -> None:
        lines, connections = made(1.0)
        first = await lines.ask(questions(hangs))
        assert first[GOOD] == "fine"
        assert isinstance(first[HUNG], BrokerSilent)
        assert isinstance(first[BROKEN], BrokerUnreachable)
        assert (lines.is_late(HUNG), lines.is_late(GOOD), lines.is_late(BROKEN)) == (True, False, False)
        lines._patience = SECONDS  # whoever waits for it now waits for too long
        with anyio.fail_after(SECONDS / 2):
            for _ in range(3):
                again = await lines.ask(questions(hangs))
                assert (again[GOOD], type(again[HUNG])) == ("fine", BrokerSilent)
            answered.set()
            while lines.is_late(HUNG):
                told = (await lines.ask(questions(hangs)))[HUNG]
            assert told == "late"
            assert (await lines.ask(questions(lambda: "in time")))[HUNG] == "in time"
        assert [each.address for each in connections.opened].count(HUNG.address) == 1, "the line is kept"
        lines.close()
        opened = len(connections.opened)
        assert all(each.is_closed for each in connections.opened)
        assert isinstance((await lines.ask(questions(hangs)))[GOOD], BrokerSilent), "nobody asks for one who logged out"
        assert len(connections.opened) == opened

    try:
        anyio.run(run)
    finally:
        answered.set()


def test_an_answer_that_nobody_took_for_long_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    async def run() -> None:
        lines, _ = made()
        await lines.ask({HUNG: lambda _: str(answered.wait(SECONDS))})
        answered.set()
        monkeypatch.setattr(module, "STALE_SECONDS", -1)
        with anyio.fail_after(SECONDS):
            while (found := (await lines.ask({HUNG: lambda _: "new"}))[HUNG]) != "new":
                assert isinstance(found, BrokerSilent), "it is not told what was true long ago"
                await anyio.sleep(0.01)

    try:
        anyio.run(run)
    finally:
        answered.set()


def test_a_connection_that_died_meanwhile_is_opened_anew() -> None:
    async def run() -> None:
        lines, connections = made(SECONDS)

        def question(cluster: Any) -> str:
            if cluster.is_closed:
                raise BrokerSilent("it takes connections, but: broken pipe")
            return "fine"

        assert await lines.ask({GOOD: question}) == {GOOD: "fine"}
        connections.opened[0].is_closed = True
        assert await lines.ask({GOOD: question}) == {GOOD: "fine"}
        assert len(connections.opened) == 2

    anyio.run(run)


def test_who_got_an_answer_before_does_not_wait_for_one_that_is_long_in_coming() -> None:
    came = 0

    async def run() -> None:
        answered = anyio.Event()

        async def ask() -> int:
            nonlocal came
            if came:
                await answered.wait()
            came += 1
            return came

        cached = CachedAnswer(ask, 0.0, patience=0.01)
        assert await cached.get() == 1
        await anyio.sleep(0.01)
        with anyio.fail_after(SECONDS):
            assert await cached.get() == 1
            answered.set()
            assert await cached.get(fresh=True) >= 2

    began = time.monotonic()
    anyio.run(run)
    assert time.monotonic() - began < SECONDS
