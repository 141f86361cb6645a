"""Calls that may take long, each in a thread of its own, which the end of the process does not wait for.

For what depends on others outside of the cluster: name servers, issuers of tokens. Whoever uses this has a limit to how
many of them are under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def in_daemon_thread(name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """What a function returns or raises, which runs in a thread of this name. Whoever cancels it does not end it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # there is one where there is no error

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = function(*args, **kwargs)
        except BaseException as error:  # whoever waits is told
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
