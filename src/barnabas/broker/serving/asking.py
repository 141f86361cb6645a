"""Asking a broker of the cluster, this one included: the same request, by its handler or over the brokers' channel.

Whoever asks for something that a certain broker has, such as the coordinator of a share partition or the leader of a
partition, need not care whether that is this broker.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.serving.caller import Caller
from barnabas.broker.serving.registry import BY_KEY

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext

MYSELF: Final = Caller(listener="", address=("", 0), client_id=None)


async def ask(
    broker: BrokerContext, broker_id: int, request: Any, response_class: type, *, seconds: float, purpose: str
) -> Any:
    """The response of a broker to a request of the newest version. Raises ChannelBroken, or what the handler raises."""
    if broker_id != broker.broker_id:
        return await broker.peers.ask(broker_id, request, response_class, seconds=seconds, purpose=purpose)
    api = BY_KEY[request.__api_key__]
    versions = (api.newest,) if api.takes_version else ()
    answer = api.load()(broker, request, MYSELF, *versions)
    return await answer if inspect.isawaitable(answer) else answer
