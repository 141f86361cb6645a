"""Faults on request: what tests ask a broker to do to the requests of its clients.

    control.py      the private socket, and what can be asked over it
    interceptor.py  stands before the dispatcher, and does to requests what the active faults say
    asked.py        what a request is about          refusals.py   the answers that are errors
    held.py         requests and answers that wait   actions.py    what needs no request: rebalance, move, expire

This package is loaded only by a broker that was started with a socket for it (`BARNABAS_FAULTS_SOCKET`). Any other
broker serves with the dispatcher itself: that there could be faults costs it nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.faults.control import Control
from barnabas.broker.faults.interceptor import Interceptor

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from barnabas.broker.context import Broker
    from barnabas.broker.faults.interceptor import Serve
    from barnabas.net.connection import Connection


class Faults:
    """The faults of one broker: `serve` takes the place of the dispatcher's."""

    def __init__(self, broker: Broker, serve: Serve, socket: Path) -> None:
        self._interceptor = Interceptor(broker, serve)
        self._control = Control(socket, broker, self._interceptor)
        self.serve = self._interceptor.serve

    async def listen(self, connections: Collection[Connection]) -> None:
        """Take orders from now on; `connections` are those of the broker's clients."""
        await self._control.listen(connections)

    async def close(self) -> None:
        """Take no more orders, and let nobody wait."""
        await self._control.close()
        self._interceptor.close()
