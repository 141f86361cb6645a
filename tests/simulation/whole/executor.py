"""An executor whose work is done in the event loop, after a while.

Where a thread makes a pool and waits for it (`inline`), its work is done at once: the only thread there is would
otherwise wait for itself. What two threads could do at the same time is done one after the other here; `slow` makes a
disk slow, so that more happens before.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.whole.loop import VirtualLoop

USUAL_SECONDS: Final = 0.002


class LoopExecutor(Executor):
    """See the module's docstring."""

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        slow: Callable[[], float] = lambda: 1.0,
        *,
        inline: bool = False,
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._slow = slow
        self._inline = inline
        self._waiting: dict[Future[Any], Callable[[], Any]] = {}
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do something later, or at once."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._waiting[future] = lambda: fn(*args, **kwargs)
        if self._inline:
            self._work(future)
        else:
            self._loop.call_later(self._chance.random() * USUAL_SECONDS * self._slow(), self._work, future)
        return future

    def _work(self, future: Future[Any]) -> None:
        job = self._waiting.pop(future, None)
        if job is None or not future.set_running_or_notify_cancel():
            return
        try:
            result = job()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; what waits is done now, or never."""
        self._closed = True
        for future in list(self._waiting):
            if cancel_futures:
                future.cancel()
            self._work(future)
