"""Timers: set often, fired rarely, and at the last time that was set."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.coordinators.timers import AT_ONCE, Timers
from barnabas.model.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Hashable


class Fixture:
    """Timers under a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fired: list[Hashable] = []
        self.timers = Timers(self.clock, self.fired.append)
        self.start = self.clock.now_ms()

    def at(self, after_ms: int) -> int:
        """A time, counted from the beginning."""
        return self.start + after_ms

    def pass_to(self, after_ms: int) -> list[Hashable]:
        """Let time pass, and give what fired."""
        self.clock.advance(self.at(after_ms) - self.clock.now_ms())
        return self.due()

    def due(self) -> list[Hashable]:
        """What fires now."""
        self.timers.run_due()
        fired = list(self.fired)
        self.fired.clear()
        return fired


async def test_fires_in_order_and_once() -> None:
    fixture = Fixture()
    fixture.timers.set("late", fixture.at(300), fixture.clock.now_ms())
    fixture.timers.set("soon", fixture.at(100), fixture.clock.now_ms())
    assert fixture.pass_to(99) == []
    assert fixture.pass_to(500) == ["soon", "late"]
    assert fixture.pass_to(900) == []
    fixture.timers.clear()


async def test_the_last_time_counts_whether_it_is_later_or_sooner() -> None:
    fixture = Fixture()
    fixture.timers.set("moved on", fixture.at(100), fixture.clock.now_ms())
    fixture.timers.set("moved on", fixture.at(300), fixture.clock.now_ms())
    fixture.timers.set("moved up", fixture.at(300), fixture.clock.now_ms())
    fixture.timers.set("moved up", fixture.at(100), fixture.clock.now_ms())
    assert fixture.pass_to(200) == ["moved up"]
    assert fixture.pass_to(299) == []
    assert fixture.pass_to(300) == ["moved on"]
    fixture.timers.clear()


async def test_a_cancelled_timer_stays_silent_and_can_be_set_again() -> None:
    fixture = Fixture()
    fixture.timers.set("a", fixture.at(100), fixture.clock.now_ms())
    fixture.timers.cancel("a")
    fixture.timers.cancel("never set")
    assert fixture.pass_to(150) == []
    fixture.timers.set("a", fixture.at(200), fixture.clock.now_ms())
    assert fixture.pass_to(200) == ["a"]
    fixture.timers.clear()


async def test_moving_a_timer_often_does_not_make_the_queue_grow() -> None:
    fixture = Fixture()
    for beat in range(1000):
        fixture.timers.set("session", fixture.at(1000 + beat), fixture.clock.now_ms())
    assert len(fixture.timers._queue) == 1
    assert fixture.pass_to(1998) == []
    assert fixture.pass_to(1999) == ["session"]
    fixture.timers.clear()


async def test_the_event_loop_looks_when_the_time_has_come() -> None:
    fired = asyncio.Event()
    clock = ManualClock()
    timers = Timers(clock, lambda key: fired.set())
    timers.set("now", clock.now_ms(), clock.now_ms())
    await asyncio.wait_for(fired.wait(), 30)
    timers.clear()


async def test_a_clock_that_jumps_moves_no_timer() -> None:
    fixture = Fixture()
    fixture.timers.set("session", fixture.at(1000), fixture.clock.now_ms())
    fixture.clock._now_ms += 3_600_000
    assert fixture.due() == []
    fixture.clock._now_ms -= 7_200_000
    fixture.clock.advance(1000)
    assert fixture.due() == ["session"]
    fixture.timers.clear()


async def test_a_clock_that_jumps_before_a_timer_is_set_moves_it_no_more() -> None:
    fixture = Fixture()
    decided_ms = fixture.clock.now_ms()
    fixture.clock._now_ms += 3_600_000
    fixture.timers.set("session", decided_ms + 1000, decided_ms)
    assert fixture.due() == []
    fixture.clock.advance(1000)
    assert fixture.due() == ["session"]
    fixture.timers.clear()


async def test_after_a_pause_timers_wait_for_what_was_sent_meanwhile() -> None:
    fixture = Fixture()
    fixture.timers.set("session", fixture.at(1000), fixture.clock.now_ms())
    fixture.clock.advance(60_000)
    fixture.timers._ring()
    assert fixture.fired == []
    now_ms = fixture.clock.now_ms()
    fixture.timers.set("session", now_ms + 1000, now_ms)  # the heartbeat that lay in the socket
    fixture.timers._ring()
    assert fixture.fired == []
    fixture.timers.clear()


async def test_a_timer_whose_work_fails_holds_up_no_other() -> None:
    clock = ManualClock()
    fired: list[Hashable] = []

    def fire(key: Hashable) -> None:
        if key == "bad":
            raise ValueError(key)
        fired.append(key)

    timers = Timers(clock, fire)
    timers.set("bad", clock.now_ms() + 10, clock.now_ms())
    timers.set("good", clock.now_ms() + 20, clock.now_ms())
    clock.advance(15)
    with pytest.raises(ValueError, match="bad"):
        timers.run_due()
    assert timers._alarm is not None
    clock.advance(10)
    timers.run_due()
    assert fired == ["good"]
    timers.clear()


async def test_what_firing_makes_due_waits_for_the_next_turn() -> None:
    """Work in parts sets its timer for now: all parts would run in one turn of the event loop."""
    fixture = Fixture()
    parts = 0

    def fire(key: Hashable) -> None:
        nonlocal parts
        parts += 1
        if parts < 5:
            fixture.timers.set(key, fixture.clock.now_ms(), fixture.clock.now_ms())

    fixture.timers = Timers(fixture.clock, fire)
    fixture.timers.set("parts", fixture.at(0), fixture.clock.now_ms())
    for done in range(1, 6):
        fixture.timers.run_due()
        assert parts == done
    fixture.timers.clear()


async def test_some_of_many_timers_fire_in_a_turn() -> None:
    fixture = Fixture()
    for number in range(AT_ONCE + 5):
        fixture.timers.set(number, fixture.at(1), fixture.clock.now_ms())
    assert fixture.pass_to(1) == list(range(AT_ONCE))
    async with asyncio.timeout(30):
        while len(fixture.fired) < 5:
            await asyncio.sleep(0)
    assert fixture.fired == list(range(AT_ONCE, AT_ONCE + 5))
    fixture.timers.clear()
