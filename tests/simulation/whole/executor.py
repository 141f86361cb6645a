"""An executor whose work is done in the event loop, after a while.

Where a thread makes a pool and waits for it (`inline`), its work is done at once: the only thread there is would
otherwise wait for itself. What two threads could do at the same time is done one after the other here; `slow` makes a
disk slow, so that more happens before. `late` is the share of jobs that begin late, as where threads wait for each
other or for a processor: what comes after such a job overtakes it, also what had to be asked for over the network.
`in_thread` tells such work from what the event loop does itself.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.whole.loop import VirtualLoop

USUAL_SECONDS: Final = 0.002
LATE_SECONDS: Final = 0.05
_working: list[Future[Any]] = []
"""What is being worked at; one piece of work may begin another."""


def in_thread() -> bool:
    """Whether what runs now would run in a thread, and not on the event loop."""
    return bool(_working)


class LoopExecutor(Executor):
    """See the module's docstring."""

    def __init__(
        self,
        loop: VirtualLoop,
        chance: random.Random,
        slow: Callable[[], float] = lambda: 1.0,
        *,
        inline: bool = False,
        late: float = 0.0,
    ) -> None:
        self._loop = loop
        self._chance = chance
        self._slow = slow
        self._inline = inline
        self._late = late
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
            self._loop.call_later(self._seconds(), self._work, future)
        return future

    def _seconds(self) -> float:
        usual = self._chance.random() * USUAL_SECONDS * self._slow()
        is_late = self._late and self._chance.random() < self._late
        return usual + (self._chance.random() * LATE_SECONDS if is_late else 0.0)

    def _work(self, future: Future[Any]) -> None:
        job = self._waiting.pop(future, None)
        if job is None or not future.set_running_or_notify_cancel():
            return
        _working.append(future)
        try:
            result = job()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            _working.pop()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work; what waits is done now, or never."""
        self._closed = True
        for future in list(self._waiting):
            if cancel_futures:
                future.cancel()
            self._work(future)
