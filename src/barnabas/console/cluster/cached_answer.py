"""An answer that is kept for a while, and asked for once however many pages want it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from barnabas.clients.errors import BrokerSilent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")

SHARE_OF_TIME: Final = 2
"""An answer is kept for this many times as long as it took: a large cluster is not asked without end.

Not so one that is not whole: the time went by in waiting for a broker that hangs, and may be back the next moment.
"""


class CachedAnswer(Generic[T]):
    """An answer that is kept for a while. One that is long in coming does not keep those waiting who got one before."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[T]],
        seconds: float,
        patience: float | None = None,
        share_of_time: float = SHARE_OF_TIME,
        is_whole: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self._ask = ask
        self._seconds = seconds
        self._patience = patience
        self._share_of_time = share_of_time
        self._is_whole = is_whole
        self._task: asyncio.Task[None] | None = None
        self._until = 0.0
        self._began = 0.0
        self._asked = 0.0
        self.newest: T | None = None

    @property
    def age(self) -> float:
        """Seconds since the newest answer was asked for."""
        return time.monotonic() - self._began

    @property
    def late(self) -> float | None:
        """For how many seconds an answer has been waited for that is long in coming; None if there is none such."""
        if self._task is None or self._patience is None:
            return None
        waited = time.monotonic() - self._asked
        return waited if waited >= self._patience else None

    async def get(self, *, fresh: bool = False) -> T:
        """The answer, asked for if it is old; `fresh`: asked for in any case, and waited for."""
        return await self._get(fresh=fresh, is_first_waited_for=True)

    async def get_soon(self) -> T:
        """As `get`, but raises BrokerSilent where nobody has answered before, and the answer is long in coming."""
        return await self._get(fresh=False, is_first_waited_for=False)

    async def _get(self, *, fresh: bool, is_first_waited_for: bool) -> T:
        asked = time.monotonic()
        while True:
            good = self._began >= asked or (not fresh and time.monotonic() < self._until)
            if self.newest is not None and good:
                return self.newest
            if self._task is None:
                self._asked = time.monotonic()
                self._task = begun(self._run())
            task = self._task
            can_wait = fresh or (is_first_waited_for and self.newest is None)
            done, _ = await asyncio.wait((task,), timeout=None if can_wait else self._left())
            if done:
                task.result()
            elif self.newest is not None:
                return self.newest
            else:
                raise BrokerSilent(f"there was no answer for {time.monotonic() - self._asked:.1f} s")

    def _left(self) -> float | None:
        """How much longer the question that is under way is waited for."""
        return None if self._patience is None else max(0.0, self._patience - (time.monotonic() - self._asked))

    async def _run(self) -> None:
        began = time.monotonic()
        try:
            self.newest = await self._ask()
        finally:
            self._task = None
        self._began = began
        took = time.monotonic() - began
        share = took * self._share_of_time if self._is_whole(self.newest) else 0.0
        self._until = time.monotonic() + max(self._seconds, share)


def begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for work whose failure nobody may wait for."""
    task = asyncio.create_task(work)
    task.add_done_callback(_look_at_failure)
    return task


def _look_at_failure(task: asyncio.Task[Any]) -> None:
    """Those who wait get it; there may be nobody any more."""
    if not task.cancelled():
        task.exception()
