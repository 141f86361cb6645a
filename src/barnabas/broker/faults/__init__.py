"""Faults on request: what tests ask a broker to do to the requests of its clients.

    control.py              the private socket, and the orders that it takes
    interceptor.py          stands before the dispatcher, and applies the active faults to requests
    intercepted_request.py  the topics and groups of a request
    refusals.py             the answers that are errors
    delayed_request.py      requests and answers that wait
    actions.py              what needs no request: rebalance, move a leader, expire records

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

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.faults.interceptor import Serve
    from barnabas.net.connection import Connection


class FaultInjection:
    """The faults of one broker: `serve` takes the place of the dispatcher's."""

    def __init__(self, broker: BrokerContext, serve: Serve, socket: Path) -> None:
        self._interceptor = Interceptor(broker, serve)
        self._control = Control(socket, broker, self._interceptor)
        self.serve = self._interceptor.serve

    async def listen(self, connections: Collection[Connection]) -> None:
        """Serve the socket from now on; `connections` are those of the broker's clients."""
        await self._control.listen(connections)

    async def close(self) -> None:
        """Close the socket, and end all delays."""
        await self._control.close()
        self._interceptor.close()
