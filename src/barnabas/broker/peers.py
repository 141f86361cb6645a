"""The other brokers: where they are reached, and channels to ask them.

A channel is made when a broker is first asked, and anew when it is found at another address. A broker answers one
request of a connection at a time, so what must not wait for each other has a purpose, and so a channel, of its own.
Whoever waits for a broker when its registration goes is told so at once. On each connection the two brokers first prove
to each other who they are (`introductions`).
"""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kio.serial import entity_writer

from barnabas.model.errors import InvalidFrame
from barnabas.net.channel import Channel, ChannelBroken
from barnabas.protocol import bounds

if TYPE_CHECKING:
    from barnabas.broker.introductions import Introducer
    from barnabas.broker.settings import Settings
    from barnabas.metadata.cache import Delta, Endpoint, MetadataCache


class Peers:
    """Every broker but this one."""

    def __init__(self, broker_id: int, metadata: MetadataCache, settings: Settings, introducer: Introducer) -> None:
        self._broker_id = broker_id
        self._introducer = introducer
        self._metadata = metadata
        self._settings = settings
        self._listener = settings.static.inter_broker_listener
        self._channels: dict[tuple[int, str], Channel] = {}

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Where a broker takes what other brokers ask; None if it is not up."""
        broker = self._metadata.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(self._listener)

    def open(self, broker_id: int, purpose: str) -> Channel:
        """A channel of one's own. Raises ChannelBroken when the broker is not up."""
        endpoint = self.endpoint(broker_id)
        if endpoint is None:
            raise ChannelBroken(f"broker {broker_id} is not up")
        number = self._settings.number
        return Channel(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._broker_id}-{purpose}",
            connect_seconds=number("controller.socket.timeout.ms") / 1000,
            max_response=number("socket.request.max.bytes"),
            introduce=partial(self._introducer.introduce, broker_id),
        )

    async def ask(
        self, broker_id: int, request: Any, response_class: type, *, seconds: float, purpose: str = "requests"
    ) -> Any:
        """Ask a broker in the version that `request` has. Raises ChannelBroken."""
        body = BytesIO()
        entity_writer(type(request))(body, request)
        data = await self._channel(broker_id, purpose).ask(
            request.__api_key__, request.__version__, [body.getvalue()], flexible=request.__flexible__, seconds=seconds
        )
        try:
            return bounds.read(response_class, data, 1 if request.__flexible__ else 0, bounds.MAX_INTERNAL_ELEMENTS)
        except InvalidFrame as error:
            raise ChannelBroken(f"broker {broker_id} sent what cannot be read: {error}") from error

    async def relay(
        self, broker_id: int, key: int, version: int, body: bytes, *, flexible: bool, seconds: float
    ) -> memoryview:
        """Hand a client's request on as it is; gives the response as it is, after its correlation id."""
        channel = self._channel(broker_id, "forwarded")
        return await channel.ask(key, version, [body], flexible=flexible, seconds=seconds)

    def _channel(self, broker_id: int, purpose: str) -> Channel:
        endpoint = self.endpoint(broker_id)
        known = self._channels.get((broker_id, purpose))
        if known is not None and endpoint is not None and (known.host, known.port) == (endpoint.host, endpoint.port):
            return known
        if known is not None:
            del self._channels[broker_id, purpose]
            known.close()
        channel = self._channels[broker_id, purpose] = self.open(broker_id, purpose)
        return channel

    def on_change(self, delta: Delta) -> None:
        """Hang up on brokers that are not up any more: whoever waits for one that hangs may go on elsewhere."""
        if delta.before.brokers is not delta.after.brokers:
            for key in [key for key in self._channels if self.endpoint(key[0]) is None]:
                self._channels.pop(key).close()

    def close(self) -> None:
        """Hang up on everyone."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
