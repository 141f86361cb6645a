"""How much is done in a turn of the event loop, and what a client is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.broker.serving.dispatch import Dispatcher
from tests.support.parts import answer_of
from tests.support.served_connection import served_connection
from tests.support.wire import read_response, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.context import BrokerContext


class Turns:
    """Counts what is done in each turn of the event loop."""

    def __init__(self) -> None:
        self.most = self.turns = 0
        self._now = 0
        self._begun = False

    def count(self, items: int = 1) -> None:
        if not self._begun:
            self._begun = True
            asyncio.get_running_loop().call_soon(self._next)
        self._now += items
        self.most = max(self.most, self._now)

    def _next(self) -> None:
        self.turns += 1
        self._now, self._begun = 0, False

    def counting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose calls are counted."""

        def counted(*arguments: Any, **more: Any) -> Any:
            self.count()
            return function(*arguments, **more)

        return counted


async def ask(broker: BrokerContext, key: int, version: int, values: dict[str, Any]) -> Any:
    """What a client is answered."""
    connection = served_connection()
    dispatcher = Dispatcher(broker)
    answer = await answer_of(dispatcher.serve(connection, memoryview(request(key, version, 1, values))))
    assert isinstance(answer, bytes)
    return read_response(key, version, answer[4:], 1)
