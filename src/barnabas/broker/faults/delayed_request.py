"""A request, or its answer, that is held back: for a time, or until somebody lets go of it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.net.reply import HANG_UP, Answer, Parked, release

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class DelayedRequest:
    """Takes its place among the answers of its connection as `parked`, so that later answers wait too."""

    def __init__(
        self,
        seconds: float,
        answer: Callable[[], Answer | Parked],
        *,
        give_up: Callable[[], None],
        done: Callable[[DelayedRequest], None],
    ) -> None:
        """`answer` is asked after so many seconds; if the connection ends before, it is `give_up` that is called."""
        self.parked = Parked(on_abandon=self._abandoned)
        self._answer = answer
        self._give_up = give_up
        self._done = done
        self._let_go = False
        self._timer = asyncio.get_running_loop().call_later(seconds, self.let_go)

    def let_go(self) -> None:
        """Wait no longer."""
        if self._end():
            return
        try:
            answer = self._answer()
        except Exception as error:
            logger.warning("A delayed request could not be served; closed the connection: %s", error)
            answer = HANG_UP
        if isinstance(answer, Parked):
            self._give_up = answer.abandon
        self.parked.follow(answer)

    def hang_up(self) -> None:
        """Wait no longer, and answer nothing."""
        if not self._end():
            self._give_up()
            self.parked.resolve(HANG_UP)

    def _abandoned(self) -> None:
        self._end()
        self._give_up()

    def _end(self) -> bool:
        """Whether it had ended before."""
        ended, self._let_go = self._let_go, True
        self._timer.cancel()
        if not ended:
            self._done(self)
        return ended


def give_up(answer: Answer | Parked) -> None:
    """Let an answer go that nobody will be sent."""
    if isinstance(answer, Parked):
        answer.abandon()
    else:
        release(answer)


def lost(answer: Answer | Parked) -> Answer | Parked:
    """The connection's end in the place of an answer, and not before the request has taken effect."""
    if not isinstance(answer, Parked):
        release(answer)
        return HANG_UP
    parked = Parked(on_abandon=answer.abandon)

    def taken_effect() -> None:
        if isinstance(answer.answer, Parked):  # it may be overtaken now
            return
        release(answer.answer)
        parked.resolve(HANG_UP)

    if answer.resolved:
        taken_effect()
    else:
        answer.notify = taken_effect
    return parked
