"""Steps of logins take turns, so that a crowd of strangers holds nobody up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.security.login_turns import (
    CROWD,
    MOST_BYTES,
    MOST_YIELDED,
    OTHERS_SECONDS,
    PAUSE,
    TOGETHER,
    LoginTurns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


SIZE = 100


def nobody_is_answered(but: object) -> bool:
    return False


def served_a_moment_ago() -> LoginTurns:
    """Turns that find others answered, but for the pauses: as of a loop whose pauses have just ended."""
    turns = LoginTurns(asyncio.get_running_loop(), nobody_is_answered)
    turns._others_until = asyncio.get_running_loop().time() + 60
    turns._left = 1000
    return turns


async def test_there_is_one_step_in_each_turn_of_the_loop_while_others_are_served() -> None:
    turns = served_a_moment_ago()
    taken: list[int] = []
    assert turns.take(None, SIZE)
    forget = [turns.wait(number, lambda number=number: taken.append(number), SIZE) for number in range(5)]  # type: ignore[misc]
    assert not turns.take(None, SIZE)
    forget[1]()
    for expected in ([0], [0, 2], [0, 2, 3], [0, 2, 3, 4]):
        assert not turns.take(None, SIZE)
        await asyncio.sleep(0)
        assert taken == expected
    await asyncio.sleep(0)
    assert turns.take(None, SIZE)
    assert not turns.take(None, SIZE)


async def test_a_turn_serves_a_few_messages_while_nobody_else_is_served() -> None:
    turns = LoginTurns(asyncio.get_running_loop(), nobody_is_answered)
    taken: list[int] = []
    assert turns.take(None, SIZE)
    assert not turns.take(None, SIZE), "it is not known yet whether others are served"
    for number in range(2 * TOGETHER):
        turns.wait(number, lambda number=number: taken.append(number), SIZE)  # type: ignore[misc]
    for count in (TOGETHER, 2 * TOGETHER):
        await asyncio.sleep(0)
        assert taken == list(range(count))
        assert not turns.take(None, SIZE), "the turn is full, or others wait"
    await asyncio.sleep(0)
    assert [turns.take(None, SIZE) for _ in range(TOGETHER + 1)] == [True] * TOGETHER + [False]


@pytest.mark.parametrize("seconds", [OTHERS_SECONDS / 2, 2 * OTHERS_SECONDS])
async def test_who_was_served_long_ago_says_nothing_of_the_first_turn_after_it(seconds: float) -> None:
    loop = StandingClock()
    turns = LoginTurns(loop, nobody_is_answered)  # type: ignore[arg-type]
    assert turns.take(None, SIZE)
    await turn()
    loop.now += seconds
    assert turns.take(None, SIZE)
    assert turns.take(None, SIZE) is (seconds < OTHERS_SECONDS), "others may have come"


async def test_a_message_that_comes_does_not_overtake_one_that_waits() -> None:
    turns = LoginTurns(asyncio.get_running_loop(), nobody_is_answered)
    assert turns.take(None, SIZE)
    turns.wait("first", lambda: turns.wait("second", lambda: None, SIZE), SIZE)
    turns.wait("third", lambda: None, SIZE)
    await asyncio.sleep(0)
    turns.wait("fourth", lambda: None, SIZE)
    assert not turns.take(None, SIZE)


async def test_one_answer_to_another_ends_the_turns_of_several() -> None:
    loop, answering = StandingClock(), False
    turns = LoginTurns(loop, lambda _: answering)  # type: ignore[arg-type]
    assert turns.take(None, SIZE)
    await turn()
    answering = True
    assert turns.take(None, SIZE) and turns.take(None, SIZE)
    await turn()
    assert not turns.take(None, SIZE)
    loop.end_pause()
    await turn(MOST_YIELDED)
    taken = [turns.take(None, SIZE) for _ in range(2)]
    assert taken[1] is False


async def test_a_step_that_fails_does_not_end_the_turns_of_others() -> None:
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    turns = LoginTurns(loop, nobody_is_answered)
    assert turns.take(None, SIZE)
    taken: list[str] = []
    turns.wait("one", lambda: 1 / 0, SIZE)
    turns.wait("another", lambda: taken.append("the next"), SIZE)
    for _ in range(3):
        await asyncio.sleep(0)
    assert taken == ["the next"] and len(failures) == 1
    assert turns.take(None, SIZE)


class StandingClock:
    """The event loop's, with a clock that stands still and timers that a test ends."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], object]) -> object:
        return asyncio.get_running_loop().call_soon(callback)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> None:
        self.timers.append((seconds, callback))

    def end_pause(self) -> None:
        ((seconds, resume),) = self.timers
        assert seconds == PAUSE
        self.timers.clear()
        resume()


async def turn(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("others", [True, False])
async def test_there_is_a_pause_after_each_message_while_others_are_served(others: bool) -> None:
    loop = StandingClock()
    answering = others
    turns = LoginTurns(loop, lambda _: answering)  # type: ignore[arg-type]
    taken: list[int] = []
    assert turns.take(None, SIZE)
    for number in range(3):
        turns.wait(number, lambda number=number: taken.append(number), SIZE)  # type: ignore[misc]
    await turn(3)
    if not others:
        assert taken == [0, 1, 2] and not loop.timers
        return
    answering = False  # only a moment ago
    for expected in ([0], [0, 1], [0, 1, 2]):
        assert not turns.take(None, SIZE)
        loop.end_pause()
        assert taken == expected
        await turn()
    loop.end_pause()
    assert turns.take(None, SIZE)
    loop.now += 2 * OTHERS_SECONDS
    await turn()
    assert turns.take(None, SIZE) and not loop.timers


async def test_where_a_crowd_waits_there_are_more_messages_between_two_pauses() -> None:
    loop = StandingClock()
    turns = LoginTurns(loop, lambda _: True)  # type: ignore[arg-type]
    taken: list[int] = []
    assert turns.take(None, SIZE)
    for number in range(3 * CROWD):
        turns.wait(number, lambda number=number: taken.append(number), SIZE)  # type: ignore[misc]
    await turn()
    loop.end_pause()
    await turn(20 * MOST_YIELDED)
    assert taken == [0, 1, 2, 3], "one, and one more for each crowd"
    pauses = 1
    while len(taken) < 3 * CROWD:
        loop.end_pause()
        await turn(20 * MOST_YIELDED)
        pauses += 1
    assert pauses < 2 * CROWD
    assert taken == list(range(3 * CROWD))


async def test_answers_to_others_go_first_but_not_for_ever() -> None:
    loop = StandingClock()
    turns = LoginTurns(loop, lambda _: True)  # type: ignore[arg-type]
    taken: list[str] = []
    assert turns.take(None, SIZE)
    turns.wait("another", lambda: taken.append("at last"), SIZE)
    await turn()
    loop.end_pause()
    for _ in range(MOST_YIELDED):
        assert not taken
        await turn()
    assert taken


async def test_messages_that_wait_take_a_bounded_share_of_memory() -> None:
    turns = LoginTurns(asyncio.get_running_loop(), nobody_is_answered)
    assert turns.take(None, SIZE)
    large = MOST_BYTES // 10
    waiting: list[Callable[[], object]] = []
    while not turns.take(None, large):
        waiting.append(turns.wait(len(waiting), lambda: None, large))
        assert len(waiting) <= 10
    assert len(waiting) == 10
    waiting[0]()
    waiting[0]()
    assert not turns.take(None, large)
    await turn(12)
    assert turns.take(None, large)


async def test_whose_login_is_completed_is_no_other() -> None:
    asked: list[object] = []

    def is_answering(but: Collection[object]) -> bool:
        asked.append(list(but))
        return False

    turns = LoginTurns(asyncio.get_running_loop(), is_answering)
    assert turns.take("first", SIZE)
    turns.wait("second", lambda: None, SIZE)
    await turn(4)
    assert asked == [["first"], ["second"]]
