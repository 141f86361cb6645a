"""When messages of logins are served: they take turns, and take pauses while others are served.

A message takes as long as a few requests. Without turns, requests of clients that have logged in would wait for the
messages of all who come at the same time: strangers would slow down everybody. So:

- Each turn of the event loop serves one message: the first at once, every other one in a turn of its own, in the order
  in which they came. In each turn the loop looks at all connections.
- While nobody else is served, a turn serves a few messages, so that logins need not wait for one another. They hold up
  the first request that comes then, and no other.
- A request takes more than one turn: it is served in one, and its answer is sent at the end of the next. While answers
  to others are about to be sent, messages wait for one turn more, but not for ever.
- While others are served, there is a pause after each message, in which the event loop sleeps if it has nothing else
  to do. So a request waits for one message at most. And a thread that never sleeps is one that the system lets wait,
  for milliseconds, when another wants to run. Where a crowd waits there are more messages between two pauses, so that
  all of them are let in before their time is over.

Where nobody else is served, logins have the whole event loop. A broker that is never idle lets clients in all the same.

Messages that wait take memory, and anybody can send one. Where they take more than their share, the next ones are
served at once: that takes time of others, but not much more than it takes to receive them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection

MOST_YIELDED: Final = 2
"""Turns in a row that messages of logins leave to the answers of others."""
TOGETHER: Final = 4
"""Messages of logins in one turn, while nobody else is served."""
CROWD: Final = 32
"""For so many messages that wait there is one more between two pauses."""
PAUSE: Final = 0.001
"""Seconds of a pause; event loops count in milliseconds."""
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of messages that wait: those of tens of thousands of clients."""
OTHERS_SECONDS: Final = 0.1
"""For how long others count as served after they were answered."""


class LoginTurns:
    """Whose message is served now, and whose waits.

    `is_answering` says whether clients that have logged in are about to be answered, but for those that it is given:
    whose logins may just have been completed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, is_answering: Callable[[Collection[object]], bool]) -> None:
        self._loop = loop
        self._is_answering = is_answering
        self._waiting: OrderedDict[object, tuple[Callable[[], object], int]] = OrderedDict()
        """By client, what serves its message, and how many bytes that has."""
        self._served: list[object] = []
        """Whose messages were served in this turn."""
        self._room = 0
        """How many more messages may be served in this turn."""
        self._bytes = 0
        self._is_taken = False
        """Whether this turn has its message, or a later one will have."""
        self._yielded = 0
        self._left = 1
        """Messages until the next pause."""
        self._others_until = 0.0
        """Until when others count as served."""
        self._known_until = 0.0
        """Until when it is known whether others are served."""

    def take(self, client: object, size: int) -> bool:
        """Whether a client's message of so many bytes may be served now; if not, `wait` for its turn."""
        if self._bytes + size > MOST_BYTES:
            return True
        if not self._is_taken:
            if self._loop.time() >= self._known_until:
                self._room = 0
            self._begin()
        elif self._room and not self._waiting:
            self._room -= 1
        else:
            return False
        self._served.append(client)
        return True

    def wait(self, client: object, step: Callable[[], object], size: int) -> Callable[[], object]:
        """Serve a client's only message in a turn of its own; gives what takes it out of the queue again."""
        self._waiting[client] = step, size
        self._bytes += size
        return lambda: self._forget(client)

    def _forget(self, client: object) -> None:
        if client in self._waiting:
            self._bytes -= self._waiting.pop(client)[1]

    def _begin(self) -> None:
        self._is_taken = True
        self._yielded = 0
        self._left -= 1
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        is_answering = self._is_answering(self._served)
        self._served.clear()
        now = self._loop.time()
        self._known_until = now + OTHERS_SECONDS
        if is_answering:
            self._others_until = now + OTHERS_SECONDS
        are_others = now < self._others_until
        self._room = 0 if are_others else TOGETHER - 1
        if self._left < 1 and are_others:
            self._loop.call_later(PAUSE, self._after_pause)
        elif not self._waiting:
            self._is_taken = False
        elif is_answering and self._yielded < MOST_YIELDED:
            self._yielded += 1
            self._loop.call_soon(self._next)
        else:
            self._begin()
            self._serve_first()
            while self._room and self._waiting:
                self._room -= 1
                self._serve_first()

    def _serve_first(self) -> None:
        client, (step, size) = self._waiting.popitem(last=False)
        self._bytes -= size
        self._served.append(client)
        step()

    def _after_pause(self) -> None:
        self._left = 1 + len(self._waiting) // CROWD
        self._next()
