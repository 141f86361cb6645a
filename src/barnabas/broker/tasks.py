"""Asyncio tasks that run beside each other until they end or are cancelled together.

The event loop holds weak references only, so a task that nobody keeps may be collected while it waits. A `TaskSet`
keeps each of its tasks until it has ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


class TaskSet:
    """The tasks of one owner."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order in which they were added: they are cancelled in this order, too."""

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Run a coroutine as a task of this set, on the running event loop."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.keep(task)
        return task

    def keep(self, task: asyncio.Task[None]) -> None:
        """Add a task that somebody else has started."""
        self._tasks[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)

    async def wait(self) -> None:
        """Wait until every task has ended, those included that are added meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def finish(self, seconds: float) -> int:
        """Wait for the tasks, at most so long, and cancel the others; returns how many were cancelled.

        Tasks that are added meanwhile have until the same deadline.
        """
        loop = asyncio.get_running_loop()
        deadline, cancelled = loop.time() + seconds, 0
        while self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=max(deadline - loop.time(), 0))
            if late and loop.time() >= deadline:
                await _cancel([task for task in self._tasks if task in late])
                cancelled += len(late)
        return cancelled

    async def cancel(self) -> None:
        """Cancel every task and wait until all have ended."""
        await _cancel(list(self._tasks))


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
