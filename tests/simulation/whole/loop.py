"""An event loop with virtual time, in which several processes live.

`time()` stands still while callbacks run, but for a few microseconds a turn, and jumps to the next timer when there is
nothing to do: minutes pass in a fraction of a second.

Every callback belongs to the process in whose context it was scheduled (`PROCESS`). That makes it possible to end a
process as kill -9 does: from then on none of its callbacks run, no `finally` and no `except` of it. A process that is
stopped (SIGSTOP) runs its callbacks when it goes on. Callbacks of one process run in the order that asyncio promises;
between processes the seed decides who goes first.
"""

from __future__ import annotations

import asyncio
import heapq
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

    from tests.simulation.whole.network import Network

TURN_SECONDS: Final = 1e-5
"""Virtual time that one turn of the loop takes: a program that never waits does not stop time for ever."""
MOST_TURNS: Final = 2_000_000
"""Turns after which a world is given up: somebody waits without waiting."""


class Process:
    """One run of a program on a machine."""

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.alive = True
        self.stopped = False
        self.kept: list[asyncio.Handle] = []
        """Callbacks that wait for a stopped process to go on, or that a dead one left behind."""
        self.on_death: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"Process({self.machine})"


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""Whose code runs; None for the world's own."""


class Stuck(Exception):
    """Nothing will ever happen again, or everything happens at once."""


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module's docstring."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.network: Network | None = None
        self.late = 0.0
        """The share of work in the default executor that comes late."""
        self.turns = 0
        self._now = 0.0
        self._chance = chance
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """Those of one time in the order in which they were set."""
        self._timer_count = 0
        self._tasks: list[asyncio.Task[Any]] = []
        """Tasks of dead processes must not be collected: that would run their `finally` blocks."""
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda loop, context: None)
        self.world = copy_context()
        self.world.run(PROCESS.set, None)

    def time(self) -> float:
        """Virtual seconds since the world began."""
        return self._now

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        self._tasks.append(task)
        return task

    # Processes

    def start_in(self, process: Process, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a program as a process."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return context.run(self.create_task, main)

    def end(self, process: Process) -> None:
        """End a process at once: nothing of it runs any more."""
        if process.alive:
            process.alive = False
            for callback in process.on_death:
                callback()

    def stop_process(self, process: Process) -> None:
        """SIGSTOP."""
        process.stopped = True

    def continue_process(self, process: Process) -> None:
        """SIGCONT."""
        process.stopped = False
        kept, process.kept = process.kept, []
        if process.alive:
            self._ready.extend(kept)  # type: ignore[attr-defined]  # BaseEventLoop's queue, which typeshed leaves out

    def in_world(self, delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        """Call something of the world, which is part of no process, after a while."""
        return self.call_later(delay, callback, *args, context=self.world)

    def call_at(  # type: ignore[override]  # arguments without their types
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As BaseEventLoop does, with timers that are compared without running code of Python."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays until its time comes."""

    # What BaseEventLoop leaves to its subclasses

    def _run_once(self) -> None:
        timers = self._timers
        ready = self._ready  # type: ignore[attr-defined]
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise Stuck(f"{self.turns} turns of the event loop in {self._now:.1f} s")
        self._now += TURN_SECONDS
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise Stuck("nothing is left to do")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        batch = list(ready)
        ready.clear()
        self._run_batch(batch)

    def _run_batch(self, batch: list[asyncio.Handle]) -> None:
        owned = [(_owner(handle), handle) for handle in batch]
        if len(batch) > 1:
            owners = {owner: 0.0 for owner, _ in owned}
            if len(owners) > 1:
                for owner in owners:
                    owners[owner] = self._chance.random()
                owned.sort(key=lambda each: owners[each[0]])
        for owner, handle in owned:
            if handle.cancelled():
                continue
            if owner is not None and (not owner.alive or owner.stopped):
                owner.kept.append(handle)
            else:
                handle._run()
        handle = None  # type: ignore[assignment]  # breaks a cycle when it raises, as asyncio does

    def _process_events(self, event_list: Any) -> None:
        """There are no file descriptors."""

    def _write_to_self(self) -> None:
        """There are no threads to wake this one."""

    def run_in_executor(  # type: ignore[override]  # arguments without their types
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        """The default executor runs in this loop, too."""
        if executor is None:
            from tests.simulation.whole.executor import LoopExecutor

            executor = LoopExecutor(self, self._chance, late=self.late)
        return super().run_in_executor(executor, func, *args)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Connect over the simulated network."""
        assert self.network is not None
        return await self.network.connect(protocol_factory, host, port)

    def add_reader(  # type: ignore[override]  # arguments without their types
        self, fd: Any, callback: Any, *args: Any
    ) -> None:
        """Watch a simulated socket; other descriptors never have anything to read."""
        if not isinstance(fd, int):
            fd.on_readable(callback, args)

    def remove_reader(self, fd: Any) -> bool:
        """Watch it no more."""
        if not isinstance(fd, int):
            fd.on_readable(None, ())
        return True

    def add_writer(  # type: ignore[override]  # arguments without their types
        self, fd: Any, callback: Any, *args: Any
    ) -> None:
        """Wait for room."""
        fd.on_writable(callback, args)

    def remove_writer(self, fd: Any) -> bool:
        """Wait no more."""
        fd.on_writable(None, ())
        return True


def _owner(handle: asyncio.Handle) -> Process | None:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context.get(PROCESS)
