"""Whether a broker may act on its image: lead, follow, coordinate.

It stands while it is registered and a controller that knows of this registration has told it everything. Otherwise it
would lead by what was true before it was away.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.broker.news import News


class Actor(Protocol):
    """Who acts on the image."""

    def resume(self) -> None:
        """Do all that the image says."""
        ...

    def resign(self) -> None:
        """Lead nothing, whatever the image says."""
        ...


class Standing:
    """A broker's standing; `broker_epoch` is the registration that it stands with."""

    def __init__(self, news: News) -> None:
        self.broker_epoch = -1
        """Creation id of the registration; -1 before there is one."""
        self.actor: Actor | None = None
        self._news = news
        self._stands = False
        self._stood = asyncio.Event()

    async def stood(self) -> None:
        """Wait until the broker stands."""
        await self._stood.wait()

    def registered(self, broker_epoch: int) -> None:
        """There is a new registration; messages for earlier ones are refused from now on."""
        self.broker_epoch = self._news.lowest_broker_epoch = broker_epoch

    def rise(self) -> None:
        """The broker knows everything."""
        if not self._stands:
            self._stands = True
            self._stood.set()
            if self.actor is not None:
                self.actor.resume()

    def fall(self) -> None:
        """The registration is gone: what controllers tell of it comes too late."""
        self._news.lowest_broker_epoch = self.broker_epoch + 1
        if self._stands:
            self._stands = False
            self._stood.clear()
            if self.actor is not None:
                self.actor.resign()
