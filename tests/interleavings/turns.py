"""Two threads of which one runs at a time, and every order in which they can take turns.

Both call `Turns.point` wherever the other one may come in between. What happens there is a choice: go on, or let the
other run. `explore` makes all choices: it runs the pair, looks where another choice was possible, and runs it again
with that one, until none is left. Since nothing else is left to chance, an order that failed fails again.

The orders grow with the power of the switches that nobody is forced to, so these are bounded: with two, every defect is
found that needs one thread to be overtaken twice. A switch that is forced, because a thread has ended or waits for a
lock, is free.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Body = Callable[[], Any]

DEADLINE: Final = 30.0
"""Seconds after which a run counts as stuck in something that is no step."""


class Deadlock(Exception):
    """Each waits for the other."""


class _Abandoned(BaseException):
    """Ends a thread of a run that is given up."""


class Choice(NamedTuple):
    """Who went on at a point at which both could."""

    taken: int
    is_free: bool
    """Whether a switch is forced here, or the first thread is chosen."""
    is_switch: bool


@dataclass
class Run:
    """What came of one order."""

    choices: list[Choice] = field(default_factory=list)
    steps: list[tuple[int, str]] = field(default_factory=list)
    results: list[Any] = field(default_factory=lambda: [None, None])
    """What each body returned, or the exception that it ended with."""

    def __str__(self) -> str:
        return "\n".join(f"{'    ' * who * 6}{what}" for who, what in self.steps)


class Turns:
    """One run of two bodies, by choices that are given for its beginning."""

    def __init__(self, beginning: Sequence[int] = ()) -> None:
        self.run = Run()
        self._beginning = beginning
        self._mine = threading.local()
        self._batons = (threading.Semaphore(0), threading.Semaphore(0))
        self._waits_for: list[Any] = [None, None]
        self._ended = [False, False]
        self._given_up: BaseException | None = None

    def play(self, first: Body, second: Body) -> Run:
        """Run both to their ends."""
        threads = [threading.Thread(target=self._play, args=each, daemon=True) for each in enumerate((first, second))]
        for thread in threads:
            thread.start()
        self._batons[self._choose(0, is_free=True)].release()
        for thread in threads:
            thread.join(DEADLINE)
        if any(thread.is_alive() for thread in threads):
            raise Deadlock(f"a thread does not come to its next step:\n{self.run}")
        if self._given_up is not None:
            raise self._given_up
        return self.run

    def _play(self, me: int, body: Body) -> None:
        self._mine.number = me
        self._batons[me].acquire()
        try:
            self._check()
            self.run.results[me] = body()
        except _Abandoned:
            return
        except Exception as error:
            self.run.results[me] = error
        self._ended[me] = True
        self.run.steps.append((me, "ends"))
        other = 1 - me
        if not self._ended[other]:
            if self._is_stuck(other):
                self._give_up()
            self._batons[other].release()

    def point(self, what: str) -> None:
        """The other thread may come in between here. Does nothing for a thread that is not of the pair."""
        me = getattr(self._mine, "number", None)
        if me is None:
            return
        self._check()
        self.run.steps.append((me, what))
        other = 1 - me
        if not self._ended[other] and not self._is_stuck(other) and self._choose(me, is_free=False) == other:
            self._hand_over(me)

    def wait_for(self, lock: SteppedLock) -> None:
        """Let the other one run until it gives the lock back."""
        me: int = self._mine.number
        other = 1 - me
        self._waits_for[me] = lock
        while lock.owner is not None:
            if self._ended[other] or self._is_stuck(other):
                self._give_up()
                self._batons[other].release()
                self._check()
            self._hand_over(me)
        self._waits_for[me] = None

    @property
    def who(self) -> int | None:
        """The thread of the pair that asks; None for any other."""
        return getattr(self._mine, "number", None)

    def _is_stuck(self, who: int) -> bool:
        lock = self._waits_for[who]
        return lock is not None and lock.owner is not None

    def _hand_over(self, me: int) -> None:
        self._batons[1 - me].release()
        self._batons[me].acquire()
        self._check()

    def _give_up(self) -> None:
        self._given_up = Deadlock(f"each waits for the other:\n{self.run}")

    def _check(self) -> None:
        if self._given_up is not None:
            raise _Abandoned

    def _choose(self, current: int, *, is_free: bool) -> int:
        number = len(self.run.choices)
        taken = self._beginning[number] if number < len(self._beginning) else current
        self.run.choices.append(Choice(taken, is_free, taken != current))
        return taken


class SteppedLock:
    """A lock in the place of threading.Lock, or RLock, whose taking is a point."""

    def __init__(self, turns: Callable[[], Turns | None], *, again: bool = False) -> None:
        self._turns = turns
        self._again = again
        self._depth = 0
        self.owner: int | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; whoever is not of the pair runs alone, and finds it free."""
        me = threading.get_ident()
        if self._again and self.owner == me:
            self._depth += 1
            return True
        turns = self._turns()
        if turns is not None and turns.who is not None:
            turns.point("takes a lock")
            if self.owner is not None:
                if not blocking:
                    return False
                turns.wait_for(self)
        assert self.owner is None, "a lock is taken twice"
        self.owner, self._depth = me, 1
        return True

    def release(self) -> None:
        """Give it back."""
        assert self.owner == threading.get_ident()
        self._depth -= 1
        if self._depth:
            return
        self.owner = None  # no point: the next one comes before anything that others see

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self.owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def explore(play: Callable[[Turns], Run], *, switches: int, most: int | None = None) -> Iterator[Run]:
    """Play a pair in every order with at most so many switches that nobody is forced to; or in `most` of them."""
    waiting: list[list[int]] = [[]]
    chance = random.Random(most)
    count = 0
    while waiting and (most is None or count < most):
        if most is not None:  # a part of them, spread over all
            chosen = chance.randrange(len(waiting))
            waiting[chosen], waiting[-1] = waiting[-1], waiting[chosen]
        beginning = waiting.pop()
        run = play(Turns(beginning))
        count += 1
        yield run
        taken = [choice.taken for choice in run.choices]
        assert taken[: len(beginning)] == beginning, "the pair does not repeat itself"
        used = sum(choice.is_switch and not choice.is_free for choice in run.choices)
        waiting.extend(
            [*taken[:number], 1 - taken[number]]
            for number in range(len(beginning), len(taken))
            if used + (not run.choices[number].is_free) <= switches
        )
