"""Calls that block, in threads beside the event loop.

A task can be cancelled, a thread cannot. A call that changes something is therefore waited for to its end: whoever
comes next finds it done or failed, and nothing goes on behind their back.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Make a call in one of the event loop's threads; if cancelled, wait for its end first."""
    return await to_the_end(asyncio.get_running_loop().run_in_executor(None, partial(call, *args, **kwargs)))


async def to_the_end(running: asyncio.Future[R]) -> R:
    """What comes of a call. If cancelled, however often, wait for the end first and then raise CancelledError."""
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from running.exception()
    return running.result()
